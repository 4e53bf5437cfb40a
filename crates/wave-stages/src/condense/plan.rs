//! What a condensation is to train: sizes, templates, first scalers, checked against each other.

use crate::ancestor::Ancestor;
use crate::layout;
use anyhow::Result;
use std::collections::BTreeMap;
use wave_hub::FloatType;
use wave_init::DirectMethod;
use wave_learngene::{DepthRule, Kronecker, Objective, Part, Plan, Sizes};
use wave_models::default_patch;
use wave_models::vit::VitShape;
use wave_ops::Mode;
use wave_run::data::DEFAULT_SIDE;
use wave_run::error::request;
use wave_run::forecast::Memory;
use wave_run::settings::Condense;
use wave_run::train;

/// Share of the steps over which sizes grow, where the settings are silent.
const DEFAULT_GROWTH: f64 = 0.9;

/// How late in that share they do.
const DEFAULT_GROWTH_POWER: f64 = 3.0;

/// Condensation settings that make sense together.
#[derive(Clone, Debug)]
pub struct CondensePlan {
    /// The auxiliary's largest shape; its depth is the number of anchors.
    pub auxiliary: VitShape,
    /// The depths and widths drawn from.
    pub sizes: Sizes,
    /// What is minimised.
    pub objective: Objective,
    /// Templates and parts.
    pub templates: Plan,
    /// First templates, and first values of the auxiliary's other weights.
    pub template_start: DirectMethod,
    /// First scalers.
    pub start: ScalerStart,
    /// Where layers read the anchors.
    pub depth_rule: DepthRule,
    /// What all values are stored as, and measured.
    pub float: FloatType,
}

/// How the scalers of a condensation begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalerStart {
    /// From one half of the templates at the first layer to the other half at the last.
    Ramp,
    /// Linear expansion, as TELG: a base and a slope.
    Telg,
    /// One block for every layer, as Share Init.
    Share,
    /// Normal, variance 1 / N.
    Random,
}

impl CondensePlan {
    /// Checks the settings against each other, and against the data.
    pub fn new(settings: &Condense, channels: usize, classes: usize) -> Result<CondensePlan> {
        let a = &settings.auxiliary;
        let head_width = a.head_width.unwrap_or(64);
        let width = a.width.unwrap_or(384);
        if head_width == 0 || !width.is_multiple_of(head_width) || width == 0 {
            return Err(request(format!(
                "auxiliary.width {width} is not a multiple of auxiliary.head_width {head_width}"
            )));
        }
        let depth = a.depth.unwrap_or(12);
        let depths = match settings.depths.as_deref() {
            None => (depth, depth),
            Some([one]) => (*one, *one),
            Some([least, most]) if least <= most => (*least, *most),
            Some(other) => {
                return Err(request(format!(
                    "depths = {other:?}; give one depth, or the least and the most"
                )));
            }
        };
        if depths.0 == 0 {
            return Err(request("depths start at 0; expected at least 1"));
        }
        let growth = settings.growth.unwrap_or(DEFAULT_GROWTH);
        let growth_power = settings.growth_power.unwrap_or(DEFAULT_GROWTH_POWER);
        let image_size = a.image_size.unwrap_or(DEFAULT_SIDE);
        let auxiliary = VitShape {
            image_size,
            channels,
            patch: a.patch.unwrap_or_else(|| default_patch(image_size, 16)),
            depth: settings.anchors.unwrap_or(depth),
            width,
            heads: width / head_width,
            mlp_ratio: a.mlp_ratio.unwrap_or(4.0),
            classes,
            class_token: a.class_token.unwrap_or(false),
            ..VitShape::default()
        };
        auxiliary.validate()?;
        let mut widths = settings.widths.clone().unwrap_or_else(|| vec![width]);
        widths.sort_unstable();
        widths.dedup();
        if widths.is_empty() {
            return Err(request("widths is empty; give at least one"));
        }
        for w in &widths {
            if *w == 0 || *w > width || !w.is_multiple_of(head_width) {
                return Err(request(format!(
                    "widths: {w} is not a multiple of the head width {head_width} up to the \
                     auxiliary's width {width}"
                )));
            }
        }
        let templates = template_plan(settings, &widths)?;
        let start = match settings.scaler_start.as_deref().unwrap_or("ramp") {
            "ramp" => ScalerStart::Ramp,
            "telg" => ScalerStart::Telg,
            "share" => ScalerStart::Share,
            "random" => ScalerStart::Random,
            other => {
                return Err(request(format!(
                    "scaler_start = {other}; expected ramp, telg, share or random"
                )));
            }
        };
        // Scalers that stay what TELG's are make TELG's layers at every depth.
        let fixed = settings.scaler_lr_ratio == Some(0.0);
        let depth_rule = match start {
            ScalerStart::Telg if fixed && auxiliary.depth < 2 => {
                return Err(request(format!(
                    "anchors = {}: telg scalers that stay need two, a base and a base with its \
                     slope; set anchors = 2",
                    auxiliary.depth
                )));
            }
            ScalerStart::Telg if fixed => DepthRule::Tleg,
            _ => DepthRule::LastIsOne,
        };
        let template_start = match settings.template_start.as_deref().unwrap_or("mimetic") {
            "mimetic" => DirectMethod::Mimetic,
            "xavier" => DirectMethod::Xavier,
            other => {
                return Err(request(format!(
                    "template_start = {other}; expected mimetic or xavier"
                )));
            }
        };
        Ok(CondensePlan {
            auxiliary,
            sizes: Sizes {
                depths,
                widths,
                growth,
                growth_power,
            },
            objective: Objective {
                ce_weight: settings.ce_weight.unwrap_or(1.0),
                kl_weight: settings.kl_weight.unwrap_or(1.0),
                temperature: settings.temperature.unwrap_or(1.0),
            },
            templates,
            template_start,
            start,
            depth_rule,
            float: layout::float(settings.dtype.as_deref())?,
        })
    }

    /// The largest shape that is trained.
    pub fn largest(&self) -> VitShape {
        self.auxiliary
            .with_size(self.sizes.depths.1, self.auxiliary.width)
    }

    /// What is trained, in numbers: templates, scaler bank, and the auxiliary's other weights, as
    /// [`wave_learngene::Learngene::ledger`] counts them.
    pub fn ledger(&self) -> [(&'static str, usize); 3] {
        let a = &self.auxiliary;
        let composed = Part::ALL.map(|part| {
            let (rows, cols) = part.rows_cols(a);
            rows * cols
        });
        let composed = a.depth * composed.iter().sum::<usize>();
        [
            ("templates", self.templates.template_parameters()),
            ("scaler bank", self.templates.scaler_count(a, a.depth)),
            ("inherited", a.parameter_count() - composed),
        ]
    }

    /// What training takes, beside an ancestor.
    pub fn memory(&self, mode: Mode, ancestor: Option<&Ancestor>) -> Memory {
        let values = self.ledger().iter().map(|(_, n)| n).sum();
        let memory = Memory::of_composed(&self.largest(), mode, values);
        match ancestor {
            Some(ancestor) => memory.beside(&ancestor.network),
            None => memory,
        }
    }

    /// The shape that a step trains.
    pub(super) fn shape_of_step(&self, seed: u64, step: u64, steps: u64) -> VitShape {
        let (depth, width) = self
            .sizes
            .draw(step, steps, &mut train::size_generator(seed, step));
        self.auxiliary.with_size(depth, width)
    }

    /// Multiply-adds of an average forward pass of one image, over the sizes drawn.
    pub fn mean_multiply_adds(&self) -> f64 {
        self.sizes.mean_multiply_adds(&self.auxiliary)
    }
}

fn template_plan(settings: &Condense, widths: &[usize]) -> Result<Plan> {
    let reference = widths[0]; // the narrowest
    let t = settings.template_size.unwrap_or(reference);
    let order = settings.kronecker.as_deref().unwrap_or("tile");
    let kronecker = Kronecker::from_name(order).ok_or_else(|| {
        request(format!(
            "unknown Kronecker order {order:?}; expected tile or interleave"
        ))
    })?;
    let default = Plan::default_budget(reference, t)?;
    let mut counts: BTreeMap<Part, usize> = Part::ALL
        .iter()
        .map(|part| (*part, default.counts[&default.sets[part]]))
        .collect();
    if let Some(given) = &settings.templates {
        let [qkv, proj, fc1, fc2] = given[..] else {
            return Err(request(format!(
                "templates = {given:?}; give four counts, of qkv, proj, fc1 and fc2"
            )));
        };
        counts = Part::ALL.into_iter().zip([qkv, proj, fc1, fc2]).collect();
    }
    let mut sets: BTreeMap<Part, String> = Part::ALL
        .iter()
        .map(|part| (*part, part.name().to_string()))
        .collect();
    let mut by_set: BTreeMap<String, usize> = counts
        .iter()
        .map(|(part, n)| (part.name().to_string(), *n))
        .collect();
    if settings.share_mlp.unwrap_or(false) {
        let shared = by_set.remove("fc1").unwrap_or(0) + by_set.remove("fc2").unwrap_or(0);
        by_set.insert("mlp".into(), shared);
        sets.insert(Part::Fc1, "mlp".into());
        sets.insert(Part::Fc2, "mlp".into());
    }
    Ok(Plan::new(t, kronecker, sets, by_set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave_run::settings::Auxiliary;

    #[test]
    fn what_is_trained_is_counted_before_it_is_made() {
        let settings = Condense {
            depths: Some(vec![2, 12]),
            widths: Some(vec![128, 64, 192]),
            template_size: Some(64),
            auxiliary: Auxiliary {
                depth: Some(12),
                width: Some(192),
                image_size: Some(28),
                patch: Some(7),
                ..Auxiliary::default()
            },
            ..Condense::default()
        };
        let plan = CondensePlan::new(&settings, 1, 10).unwrap();
        let gene = crate::condense::start(&plan, 0).unwrap();
        assert_eq!(plan.ledger(), gene.ledger());
    }
}
