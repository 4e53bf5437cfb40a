//! One set of templates, every size: from a scaler bank to the weights of any depth and width.
//!
//! The bank holds scalers at K anchors over relative depth, for the auxiliary's largest width.
//! A model's layer takes the interpolation of its two neighbouring anchors; a narrower model
//! takes the first blocks, a wider one repeats them. The auxiliary's other weights (patches,
//! positions, norms, biases, head) travel the same way. Everything is differentiable, so that an
//! elastic condensation trains the bank at whatever sizes it draws.

use crate::error::request;
use crate::model::{decimal, transform};
use crate::resample;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use wave_data::{CropMode, Interpolation, Transform};
use wave_hub::{Accuracy, FloatType, Preprocessing, TemplateConfig};
use wave_learngene::{BlockShape, DepthRule, Kronecker, Part, Plan, Scalers};
use wave_models::Weights;
use wave_models::vit::{self, LAYER_NORM_EPS, VitShape};

/// Templates and everything that travels with them.
#[derive(Clone, Debug)]
pub struct Learngene {
    /// Which template set composes which weight.
    pub plan: Plan,
    /// Templates by set: (N, t, t).
    pub templates: BTreeMap<String, Tensor>,
    /// The scaler bank: (K, N, r, c) for each part, at the auxiliary's width.
    pub bank: Scalers,
    /// The auxiliary's uncomposed weights, those of its blocks stacked over the K anchors.
    pub outer: Weights,
    /// The auxiliary's largest shape.
    pub auxiliary: VitShape,
    /// Where layers read the anchors.
    pub depth_rule: DepthRule,
}

/// The sizes of a block that composition needs.
pub fn block_shape(shape: &VitShape) -> BlockShape {
    BlockShape {
        width: shape.width,
        hidden: shape.hidden(),
    }
}

impl Learngene {
    /// What a directory that stores all values as `float` reads back as.
    ///
    /// # Errors
    /// Naming a value that is beyond `float`.
    pub fn rounded(&self, float: FloatType) -> Result<Learngene> {
        let names = self.bank.keys().map(|part| part.name().to_owned());
        let bank = names.zip(self.bank.values().cloned()).collect();
        let bank = float.rounded(&bank)?;
        Ok(Learngene {
            templates: float.rounded(&self.templates)?,
            bank: (self.bank.keys().copied())
                .map(|part| (part, bank[part.name()].clone()))
                .collect(),
            outer: float.rounded(&self.outer)?,
            ..self.clone()
        })
    }

    /// The shape of a model of another depth and width: everything else is the auxiliary's.
    ///
    /// # Errors
    /// If `width` is no multiple of the head width, or `heads` do not divide it.
    pub fn shape(&self, depth: usize, width: usize, heads: Option<usize>) -> Result<VitShape> {
        let head_width = self.auxiliary.head_width();
        if depth == 0 {
            return Err(request("depth 0; expected at least 1"));
        }
        if width == 0 || (heads.is_none() && !width.is_multiple_of(head_width)) {
            let below = (width / head_width).max(1) * head_width;
            return Err(request(format!(
                "width {width} is not a multiple of the templates' head width {head_width}; use \
                 {below} or {}",
                below + head_width
            )));
        }
        let mut shape = self.auxiliary.with_size(depth, width);
        shape.heads = heads.unwrap_or(shape.heads);
        shape.validate()?;
        Ok(shape)
    }

    /// The bank's scalers for a model of this shape: (depth, N, r, c) for each part.
    pub fn scalers(&self, shape: &VitShape) -> candle_core::Result<Scalers> {
        let (from, to) = (block_shape(&self.auxiliary), block_shape(shape));
        self.bank
            .iter()
            .map(|(part, bank)| {
                let scalers =
                    wave_learngene::interpolate_depth(bank, shape.depth, self.depth_rule)?;
                let resized =
                    wave_learngene::resize_scalers(&self.plan, *part, &scalers, &from, &to)?;
                Ok((*part, resized))
            })
            .collect()
    }

    /// How many scalers a model of this shape has.
    pub fn scalers_of(&self, shape: &VitShape) -> usize {
        let blocks = block_shape(shape);
        let of = |part: &Part| self.plan.scaler_shape(*part, &blocks);
        let layer = Part::ALL
            .iter()
            .map(|part| of(part).iter().product::<usize>());
        shape.depth * layer.sum::<usize>()
    }

    /// The uncomposed weights for a model of this shape, blocks stacked; positions and patches
    /// resampled where its images or patches have another size.
    pub fn uncomposed(&self, shape: &VitShape) -> candle_core::Result<Weights> {
        let unit = self.plan.template_size;
        let (from, to) = (self.auxiliary.width, shape.width);
        let (hidden_from, hidden_to) = (self.auxiliary.hidden(), shape.hidden());
        let gather = |t: &Tensor, axis, segments, from, to, divide| {
            wave_learngene::gather_width(t, axis, segments, unit, from, to, divide)
        };
        self.outer
            .iter()
            .map(|(name, t)| {
                let t = match name.as_str() {
                    "head.bias" | "head_dist.bias" => t.clone(),
                    "head.weight" | "head_dist.weight" => gather(t, 1, 1, from, to, true)?,
                    "cls_token" | "dist_token" => gather(t, 2, 1, from, to, false)?,
                    "pos_embed" => {
                        let t = gather(t, 2, 1, from, to, false)?;
                        match shape.grid() == self.auxiliary.grid() {
                            true => t,
                            false => resample::positions(&t, shape.prefix(), shape.grid())?,
                        }
                    }
                    "patch_embed.proj.weight" => {
                        let t = gather(t, 0, 1, from, to, false)?;
                        match shape.patch == self.auxiliary.patch {
                            true => t,
                            false => resample::patches(&t, shape.patch)?,
                        }
                    }
                    _ if !name.starts_with("blocks.") => gather(t, 0, 1, from, to, false)?,
                    _ => {
                        let t = wave_learngene::interpolate_depth(t, shape.depth, self.depth_rule)?;
                        match name.as_str() {
                            "blocks.attn.qkv.bias" => gather(&t, 1, 3, from, to, false)?,
                            "blocks.mlp.fc1.bias" => {
                                gather(&t, 1, 1, hidden_from, hidden_to, false)?
                            }
                            _ => gather(&t, 1, 1, from, to, false)?,
                        }
                    }
                };
                Ok((name.clone(), t))
            })
            .collect()
    }

    /// All weights of a model, blocks stacked: `scalers` composed with the templates, beside
    /// `uncomposed`.
    pub fn assemble(
        &self,
        scalers: &Scalers,
        uncomposed: &Weights,
        shape: &VitShape,
    ) -> candle_core::Result<Weights> {
        let mut weights = uncomposed.clone();
        let composed =
            wave_learngene::compose(&self.plan, &self.templates, scalers, &block_shape(shape))?;
        for (part, w) in composed {
            weights.insert(part.stacked_name().to_string(), w);
        }
        Ok(weights)
    }

    /// All weights of a model of this shape, from the bank alone.
    pub fn weights(&self, shape: &VitShape) -> candle_core::Result<Weights> {
        self.assemble(&self.scalers(shape)?, &self.uncomposed(shape)?, shape)
    }

    /// The same on a device.
    pub fn to_device(&self, device: &Device) -> candle_core::Result<Learngene> {
        let mut gene = self.clone();
        let tensors = gene.templates.values_mut().chain(gene.bank.values_mut());
        for t in tensors.chain(gene.outer.values_mut()) {
            *t = t.to_device(device)?;
        }
        Ok(gene)
    }

    /// Values in templates, scaler bank, and the auxiliary's other weights.
    pub fn ledger(&self) -> [(&'static str, usize); 3] {
        let sum = |values: &mut dyn Iterator<Item = &Tensor>| values.map(Tensor::elem_count).sum();
        [
            ("templates", sum(&mut self.templates.values())),
            ("scaler bank", sum(&mut self.bank.values())),
            ("inherited", sum(&mut self.outer.values())),
        ]
    }
}

/// A template directory.
pub struct TemplateDir {
    /// The templates.
    pub learngene: Learngene,
    /// Its configuration.
    pub config: TemplateConfig,
    /// How images become input.
    pub transform: Transform,
}

/// Reads a template directory.
pub fn read(dir: &Path) -> Result<TemplateDir> {
    let dir = &crate::hub::locate(dir)?;
    let (config, weights) = wave_hub::read_templates(dir)?;
    let number = |key: &str| config.auxiliary.get(key).and_then(Value::as_f64);
    let flag = |key: &str| config.auxiliary.get(key).and_then(Value::as_bool);
    let needed = |key: &str| -> Result<f64> {
        number(key).ok_or_else(|| {
            request(format!(
                "{}: config.json has no number auxiliary.{key}",
                dir.display()
            ))
        })
    };
    let auxiliary = VitShape {
        image_size: config.image_size,
        channels: config.channels,
        patch: config.patch,
        depth: config.anchors,
        width: needed("width")? as usize,
        heads: needed("heads")? as usize,
        mlp_ratio: needed("mlp_ratio")?,
        classes: config.classes,
        class_token: flag("class_token").unwrap_or(false),
        distilled: flag("distilled").unwrap_or(false),
        norm_eps: number("norm_eps").unwrap_or(LAYER_NORM_EPS),
    };
    auxiliary.validate()?;
    let kronecker: Kronecker = config.kronecker.parse()?;
    let sets = Part::ALL
        .iter()
        .filter_map(|part| Some((*part, config.sets.get(part.name())?.clone())))
        .collect();
    let plan = Plan::new(config.template_size, kronecker, sets, config.counts.clone())?;
    let templates = config
        .counts
        .keys()
        .filter_map(|set| {
            Some((
                set.clone(),
                weights.get(&format!("templates.{set}"))?.clone(),
            ))
        })
        .collect();
    let mut bank = Scalers::new();
    for part in Part::ALL {
        let anchors: Vec<&Tensor> = (0..config.anchors)
            .map(|k| {
                let name = format!("bank.{k}.{}", part.name());
                weights
                    .get(&name)
                    .ok_or_else(|| request(format!("tensor {name} is missing")))
            })
            .collect::<Result<_>>()?;
        let scalers = Tensor::stack(&anchors, 0)?;
        let expected = plan.scaler_shape(part, &block_shape(&auxiliary));
        if scalers.dims()[1..] != expected {
            return Err(request(format!(
                "the bank of {} has scalers {:?}, expected {expected:?} for width {}; the files \
                 of {} do not belong together",
                part.name(),
                &scalers.dims()[1..],
                auxiliary.width,
                dir.display()
            )));
        }
        bank.insert(part, scalers);
    }
    let mut outer: Weights = weights
        .iter()
        .filter_map(|(name, t)| Some((name.strip_prefix("auxiliary.")?.to_string(), t.clone())))
        .collect();
    vit::check_weights(&outer, &uncomposed_parameters(&auxiliary))?;
    outer = stack_uncomposed(&outer, config.anchors)?;
    let steps = Preprocessing {
        channels: config.channels,
        size: [config.image_size; 2],
        interpolation: config.interpolation.clone().unwrap_or("bicubic".into()),
        crop_pct: config.crop_pct,
        crop_mode: config.crop_mode.clone().unwrap_or("center".into()),
        mean: config.mean.clone(),
        std: config.std.clone(),
    };
    let transform = transform(&steps, &dir.join("config.json"), config.image_size)?;
    let learngene = Learngene {
        plan,
        templates,
        bank,
        outer,
        auxiliary,
        depth_rule: match &config.depth_rule {
            Some(rule) => rule.parse()?,
            None => DepthRule::default(),
        },
    };
    Ok(TemplateDir {
        learngene,
        config,
        transform,
    })
}

/// Names and shapes of the weights that templates do not compose, per layer.
fn uncomposed_parameters(shape: &VitShape) -> Vec<(String, Vec<usize>)> {
    let composed = |name: &str| {
        name.starts_with("blocks.")
            && name.ends_with(".weight")
            && (name.contains(".attn.") || name.contains(".mlp."))
    };
    shape
        .parameters()
        .into_iter()
        .filter(|(name, _)| !composed(name))
        .collect()
}

fn stack_uncomposed(weights: &Weights, layers: usize) -> Result<Weights> {
    let mut out = Weights::new();
    for (name, t) in weights {
        match name.strip_prefix("blocks.0.") {
            Some(tensor) => {
                let all: Vec<&Tensor> = (0..layers)
                    .filter_map(|l| weights.get(&format!("blocks.{l}.{tensor}")))
                    .collect();
                out.insert(format!("blocks.{tensor}"), Tensor::stack(&all, 0)?);
            }
            None if name.starts_with("blocks.") => {}
            None => {
                out.insert(name.clone(), t.clone());
            }
        }
    }
    Ok(out)
}

/// What a template directory says beside its tensors.
pub struct About<'a> {
    /// How images become input.
    pub transform: &'a Transform,
    /// A name for each class.
    pub label_names: Vec<String>,
    /// Recipe, ancestor, data, seed.
    pub provenance: Value,
    /// Accuracies measured.
    pub accuracies: Vec<Accuracy>,
}

/// Writes a template directory, all values as `float`.
pub fn write(
    dir: &Path,
    gene: &Learngene,
    float: FloatType,
    about: About,
    card: &str,
) -> Result<()> {
    let (a, plan) = (&gene.auxiliary, &gene.plan);
    let auxiliary = json!({
        "depth": a.depth,
        "width": a.width,
        "heads": a.heads,
        "mlp_ratio": a.mlp_ratio,
        "class_token": a.class_token,
        "distilled": a.distilled,
        "norm_eps": a.norm_eps,
    });
    let config = TemplateConfig {
        format_version: wave_hub::FORMAT_VERSION,
        kronecker: plan.kronecker.to_string(),
        template_size: plan.template_size,
        counts: plan.counts.clone(),
        sets: plan
            .sets
            .iter()
            .map(|(p, s)| (p.name().to_string(), s.clone()))
            .collect(),
        anchors: a.depth,
        depth_rule: (gene.depth_rule != DepthRule::default()).then(|| gene.depth_rule.to_string()),
        auxiliary: auxiliary.as_object().cloned().unwrap_or_default(),
        head_width: a.head_width(),
        patch: a.patch,
        image_size: a.image_size,
        channels: a.channels,
        classes: a.classes,
        label_names: about.label_names,
        mean: about.transform.mean.iter().map(|v| decimal(*v)).collect(),
        std: about.transform.std.iter().map(|v| decimal(*v)).collect(),
        crop_pct: decimal(about.transform.crop_pct),
        interpolation: (about.transform.interpolation != Interpolation::default())
            .then(|| about.transform.interpolation.to_string()),
        crop_mode: (about.transform.crop_mode != CropMode::default())
            .then(|| about.transform.crop_mode.to_string()),
        provenance: about.provenance,
        accuracies: about.accuracies,
    };
    let mut weights = Weights::new();
    for (set, t) in &gene.templates {
        weights.insert(format!("templates.{set}"), t.clone());
    }
    for (part, bank) in &gene.bank {
        for k in 0..bank.dim(0)? {
            weights.insert(format!("bank.{k}.{}", part.name()), bank.get(k)?);
        }
    }
    for (name, t) in vit::unstack(&gene.outer)? {
        weights.insert(format!("auxiliary.{name}"), t);
    }
    Ok(wave_hub::write_templates(
        dir, &config, &weights, float, card,
    )?)
}
