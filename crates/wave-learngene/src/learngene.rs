//! One set of templates for every size: from a scaler bank to the weights of any depth and width.
//!
//! The weights that templates do not compose (patches, positions, norms, biases, head) are *inherited*: read
//! at any depth and width in the same way as the bank's scalers. All of it is differentiable, so an elastic
//! condensation can train the bank at any size it samples.

use crate::bank::{gather_width, interpolate_depth, resize_scalers};
use crate::{DepthRule, Part, Plan, Scalers, Templates, compose};
use candle_core::{Device, Result, Tensor};
use wave_models::vit::{self, VitShape};
use wave_models::{Refusal, Weights, refuse, resample};
use wave_ops::profile::{Work, doing};

/// Templates and all other tensors needed to make a transformer of any shape.
#[derive(Clone, Debug)]
pub struct Learngene {
    /// Which template set composes which part.
    pub plan: Plan,
    /// Templates by set: (N, t, t).
    pub templates: Templates,
    /// The scaler bank: (K, N, r, c) for each part, at the auxiliary's width.
    pub bank: Scalers,
    /// The auxiliary's weights that templates do not compose; block weights are stacked over the K anchors.
    pub inherited: Weights,
    /// The auxiliary's largest shape; its depth is K.
    pub auxiliary: VitShape,
    /// The rule by which layers read the anchors.
    pub depth_rule: DepthRule,
    /// Learngenes of the smaller levels, smallest first: one for each level of the plan except the last.
    pub smaller: Vec<Learngene>,
}

impl Learngene {
    /// Removes the classifier, or the map to an ancestor's features that replaces it.
    pub fn headless(mut self) -> Learngene {
        self.inherited.retain(|name, _| !name.starts_with("head"));
        self.auxiliary.classes = 0;
        self.smaller = self.smaller.into_iter().map(Learngene::headless).collect();
        self
    }

    /// The shape of a model of another depth and width; everything else is as in the auxiliary. The width must be a
    /// multiple of `heads` or, without them, of the head width.
    pub fn shape(
        &self,
        depth: usize,
        width: usize,
        heads: Option<usize>,
    ) -> std::result::Result<VitShape, Refusal> {
        let head_width = self.auxiliary.head_width();
        if depth == 0 {
            refuse!("depth 0; expected at least 1");
        }
        if width == 0 || (heads.is_none() && !width.is_multiple_of(head_width)) {
            let below = (width / head_width).max(1) * head_width;
            refuse!(
                "width {width} is not a multiple of the templates' head width {head_width}; use {below} or {}",
                below.saturating_add(head_width)
            );
        }
        let shape = VitShape {
            depth,
            width,
            heads: heads.unwrap_or(width / head_width),
            ..self.auxiliary.clone()
        };
        shape.validate()?;
        Ok(shape)
    }

    /// All weights of a model of this shape under timm's names, from the bank alone.
    pub fn weights(&self, shape: &VitShape) -> Result<Weights> {
        vit::unstack(&self.stacked_weights(shape)?)
    }

    /// The same with the layers of each kind stacked: see [`vit::stack`].
    pub fn stacked_weights(&self, shape: &VitShape) -> Result<Weights> {
        let _measured = doing(Work::Composition);
        let used = self.used_by(shape);
        used.assemble(&used.scalers(shape)?, &used.inherited(shape)?, shape)
    }

    /// All weights of a model, layers stacked: `scalers` composed with the templates, plus `inherited`.
    pub fn assemble(
        &self,
        scalers: &Scalers,
        inherited: &Weights,
        shape: &VitShape,
    ) -> Result<Weights> {
        let mut weights = inherited.clone();
        for (part, w) in compose(&self.plan, &self.templates, scalers, shape)? {
            weights.insert(part.stacked_name().into(), w);
        }
        Ok(weights)
    }

    /// The bank's scalers for a model of this shape: (depth, N, r, c) for each part.
    pub fn scalers(&self, shape: &VitShape) -> Result<Scalers> {
        let of_part = |(part, bank): (&Part, &Tensor)| {
            let scalers = interpolate_depth(bank, shape.depth, self.depth_rule)?;
            let resized = resize_scalers(&self.plan, *part, &scalers, &self.auxiliary, shape)?;
            Ok((*part, resized))
        };
        self.bank.iter().map(of_part).collect()
    }

    /// The inherited weights for a model of this shape, layers stacked; positions and patches are resampled as needed.
    pub fn inherited(&self, shape: &VitShape) -> Result<Weights> {
        let of_shape = |(name, t): (&String, &Tensor)| {
            let t = match name.starts_with("blocks.") {
                true => interpolate_depth(t, shape.depth, self.depth_rule)?,
                false => t.clone(),
            };
            let t = self.of_width(name, &t, shape)?;
            let t = match name.as_str() {
                "pos_embed" if shape.grid() != self.auxiliary.grid() => {
                    resample::positions(&t, shape.prefix(), shape.grid())?
                }
                "patch_embed.proj.weight" if shape.patch != self.auxiliary.patch => {
                    resample::patches(&t, shape.patch)?
                }
                _ => t,
            };
            Ok((name.clone(), t))
        };
        self.inherited.iter().map(of_shape).collect()
    }

    /// An inherited weight at the width of a shape.
    pub(crate) fn of_width(&self, name: &str, t: &Tensor, shape: &VitShape) -> Result<Tensor> {
        let Some(c) = Channels::of(name) else {
            return Ok(t.clone());
        };
        let unit = self.plan.template_size;
        let (from, to) = (c.count(&self.auxiliary), c.count(shape));
        gather_width(t, c.axis, c.segments, unit, from, to, c.input)
    }

    /// All tensors by name, as a condensation trains them: `templates.{set}`, `bank.{part}` and the
    /// inherited weights. The values of smaller levels are left out.
    pub fn tensors(&self) -> Vec<(String, Tensor)> {
        let (templates, bank) = (self.templates.iter(), self.bank.iter());
        let all = named(templates, bank, self.inherited.iter());
        all.map(|(name, t)| (name, t.clone())).collect()
    }

    /// The tensors of [`Learngene::tensors`], to be changed in place.
    fn tensors_mut(&mut self) -> impl Iterator<Item = (String, &mut Tensor)> {
        let (templates, bank) = (self.templates.iter_mut(), self.bank.iter_mut());
        named(templates, bank, self.inherited.iter_mut())
    }

    /// The learngene with new values, by the names of [`Learngene::tensors`]; tensors that are not given are kept.
    pub fn with_tensors(&self, tensors: &Weights) -> Learngene {
        let mut gene = self.clone();
        for (name, t) in gene.tensors_mut() {
            if let Some(new) = tensors.get(&name) {
                *t = new.clone();
            }
        }
        gene
    }

    /// A copy with each of its [tensors](Learngene::tensors) changed by a function of the name and the value.
    pub(crate) fn each(&self, new: impl Fn(&str, &Tensor) -> Result<Tensor>) -> Result<Learngene> {
        let mut gene = self.clone();
        for (name, t) in gene.tensors_mut() {
            *t = new(&name, t)?;
        }
        Ok(gene)
    }

    /// A copy on a device.
    pub fn to_device(&self, device: &Device) -> Result<Learngene> {
        let mut moved = self.each(|_, t| t.to_device(device))?;
        for smaller in &mut moved.smaller {
            *smaller = smaller.to_device(device)?;
        }
        Ok(moved)
    }

    /// Number of values in templates, scaler bank and inherited weights, over all levels.
    pub fn ledger(&self) -> [(&'static str, usize); 3] {
        fn sum<'a>(values: impl Iterator<Item = &'a Tensor>) -> usize {
            values.map(Tensor::elem_count).sum()
        }
        let mut ledger = [
            ("templates", sum(self.templates.values())),
            ("scaler bank", sum(self.bank.values())),
            ("inherited", sum(self.inherited.values())),
        ];
        for smaller in &self.smaller {
            for (all, (_, more)) in ledger.iter_mut().zip(smaller.ledger()) {
                all.1 += more;
            }
        }
        ledger
    }
}

/// The names and values of a learngene's tensors: see [`Learngene::tensors`].
fn named<'a, T>(
    templates: impl Iterator<Item = (&'a String, T)>,
    bank: impl Iterator<Item = (&'a Part, T)>,
    inherited: impl Iterator<Item = (&'a String, T)>,
) -> impl Iterator<Item = (String, T)> {
    let templates = templates.map(|(set, t)| (format!("templates.{set}"), t));
    let bank = bank.map(|(part, t)| (format!("bank.{part}"), t));
    let inherited = inherited.map(|(name, t)| (name.clone(), t));
    templates.chain(bank).chain(inherited)
}

/// The channels of an inherited weight.
pub(crate) struct Channels {
    /// The axis that holds them.
    pub(crate) axis: usize,
    /// Number of runs along the axis, each over all channels.
    pub(crate) segments: usize,
    /// True for the hidden channels of the MLP.
    hidden: bool,
    /// True for inputs, which are summed over.
    pub(crate) input: bool,
}

impl Channels {
    /// The channels of the weight of this name, layers stacked, if its shape depends on the width.
    pub(crate) fn of(name: &str) -> Option<Channels> {
        let axis = match name {
            "head.bias" | "head_dist.bias" => return None,
            "cls_token" | "dist_token" | "pos_embed" => 2,
            name if name.starts_with("blocks.") || name.starts_with("head") => 1,
            _ => 0,
        };
        Some(Channels {
            axis,
            segments: if name == "blocks.attn.qkv.bias" { 3 } else { 1 },
            hidden: name == "blocks.mlp.fc1.bias",
            input: name.starts_with("head"),
        })
    }

    /// Number of these channels in a model.
    pub(crate) fn count(&self, shape: &VitShape) -> usize {
        match self.hidden {
            true => shape.hidden(),
            false => shape.width,
        }
    }
}

#[cfg(test)]
#[path = "learngene_tests.rs"]
mod tests;
