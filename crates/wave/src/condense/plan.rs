//! What a condensation is to train: sizes, templates, first scalers, checked against each other.

use crate::ancestor::Ancestor;
use crate::data::DEFAULT_SIDE;
use crate::elastic::block_shape;
use crate::error::request;
use crate::forecast::Memory;
use crate::layout;
use crate::settings::Condense;
use crate::train;
use anyhow::Result;
use std::collections::BTreeMap;
use wave_hub::FloatType;
use wave_init::Method;
use wave_learngene::{DepthRule, Kronecker, Part, Plan};
use wave_models::default_patch;
use wave_models::vit::VitShape;
use wave_ops::Mode;

/// Share of the steps over which sizes grow, where the settings are silent.
const DEFAULT_GROWTH: f64 = 0.9;

/// How late in that share they do.
const DEFAULT_GROWTH_POWER: f64 = 3.0;

/// Condensation settings that make sense together.
#[derive(Clone, Debug)]
pub struct CondensePlan {
    /// The auxiliary's largest shape; its depth is the number of anchors.
    pub auxiliary: VitShape,
    /// The depths drawn from, least and most.
    pub depths: (usize, usize),
    /// The share of the steps over which the most depth grows from the least, and the widest width
    /// from the narrowest, 0 to 1.
    pub growth: f64,
    /// The power of that share's elapsed part with which they grow, above 0: 1 is linear, more
    /// stays small for longer.
    pub growth_power: f64,
    /// The widths drawn from, ascending; at least one.
    pub widths: Vec<usize>,
    /// Templates and parts.
    pub templates: Plan,
    /// First templates, and first values of the auxiliary's other weights.
    pub template_start: Method,
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
            "mimetic" => Method::Mimetic,
            "xavier" => Method::Xavier,
            other => {
                return Err(request(format!(
                    "template_start = {other}; expected mimetic or xavier"
                )));
            }
        };
        Ok(CondensePlan {
            auxiliary,
            depths,
            growth,
            growth_power,
            widths,
            templates,
            template_start,
            start,
            depth_rule,
            float: layout::float(settings.dtype.as_deref())?,
        })
    }

    /// The largest shape that is trained.
    pub(crate) fn largest(&self) -> VitShape {
        self.auxiliary
            .with_size(self.depths.1, self.auxiliary.width)
    }

    /// What is trained, in numbers: templates, scaler bank, and the auxiliary's other weights, as
    /// [`Learngene::ledger`](crate::elastic::Learngene::ledger) counts them.
    pub(crate) fn ledger(&self) -> [(&'static str, usize); 3] {
        let (a, blocks) = (&self.auxiliary, block_shape(&self.auxiliary));
        let composed = Part::ALL.map(|part| {
            let (rows, cols) = part.rows_cols(&blocks);
            rows * cols
        });
        let composed = a.depth * composed.iter().sum::<usize>();
        [
            ("templates", self.templates.template_parameters()),
            ("scaler bank", self.templates.scaler_count(&blocks, a.depth)),
            ("inherited", a.parameter_count() - composed),
        ]
    }

    /// What training takes, beside an ancestor.
    pub(crate) fn memory(&self, mode: Mode, ancestor: Option<&Ancestor>) -> Memory {
        let values = self.ledger().iter().map(|(_, n)| n).sum();
        let memory = Memory::of_composed(&self.largest(), mode, values);
        match ancestor {
            Some(ancestor) => memory.beside(&ancestor.network),
            None => memory,
        }
    }

    /// The shape that a step trains.
    pub(super) fn shape_of_step(&self, seed: u64, step: u64, steps: u64) -> VitShape {
        let (depths, widths) = self.sizes_of_step(step, steps);
        let (depth, width) = train::size_of_step(seed, step, depths, widths);
        self.auxiliary.with_size(depth, width)
    }

    /// The least and the most depth, and the widths, that a step draws from.
    fn sizes_of_step(&self, step: u64, steps: u64) -> ((usize, usize), &[usize]) {
        let (least, most) = self.depths;
        let grown = step as f64 / (self.growth * steps as f64); // infinite or NaN without growth
        let grown = grown.min(1.0).powf(self.growth_power);
        let part_of = |n: usize| (n as f64 * grown).round() as usize;
        let widths = &self.widths[..=part_of(self.widths.len() - 1)];
        ((least, least + part_of(most - least)), widths)
    }

    /// Multiply-adds of an average forward pass of one image, over the sizes drawn.
    pub(crate) fn mean_multiply_adds(&self) -> f64 {
        let steps = 1000; // enough for the growth of any depth
        let of_step = |step| {
            let (depths, widths) = self.sizes_of_step(step, steps);
            train::mean_multiply_adds(&self.auxiliary, depths, widths)
        };
        (0..steps).map(of_step).sum::<f64>() / steps as f64
    }
}

fn template_plan(settings: &Condense, widths: &[usize]) -> Result<Plan> {
    let reference = widths[0]; // the narrowest
    let t = settings.template_size.unwrap_or(reference);
    let kronecker: Kronecker = settings.kronecker.as_deref().unwrap_or("tile").parse()?;
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
    use crate::settings::Auxiliary;

    fn plan(growth: impl Into<Option<f64>>, growth_power: impl Into<Option<f64>>) -> CondensePlan {
        let settings = Condense {
            depths: Some(vec![2, 12]),
            widths: Some(vec![128, 64, 192]),
            template_size: Some(64),
            growth: growth.into(),
            growth_power: growth_power.into(),
            auxiliary: Auxiliary {
                depth: Some(12),
                width: Some(192),
                image_size: Some(28),
                patch: Some(7),
                ..Auxiliary::default()
            },
            ..Condense::default()
        };
        CondensePlan::new(&settings, 1, 10).unwrap()
    }

    #[test]
    fn what_is_trained_is_counted_before_it_is_made() {
        let plan = plan(None, None);
        let gene = crate::condense::start(&plan, 0).unwrap();
        assert_eq!(plan.ledger(), gene.ledger());
    }

    #[test]
    fn sizes_grow_and_then_stay() {
        let steps = 1000;
        let plan = plan(0.5, 1.0);
        let most = |step| plan.sizes_of_step(step, steps).0.1;
        assert_eq!([0, 250, 500, 999].map(most), [2, 7, 12, 12]);
        let widths = |step| plan.sizes_of_step(step, steps).1;
        assert_eq!([0, 124].map(widths), [[64], [64]]);
        assert_eq!([125, 374].map(widths), [[64, 128], [64, 128]]);
        assert_eq!([375, 999].map(widths), [[64, 128, 192], [64, 128, 192]]);
        let drawn = |step| plan.shape_of_step(3, step, steps);
        for step in 0..steps {
            let shape = drawn(step);
            assert!((2..=most(step)).contains(&shape.depth), "{step}");
            assert!(widths(step).contains(&shape.width), "{step}");
        }
        let late: Vec<VitShape> = (500..steps).map(drawn).collect();
        assert!((2..=12).all(|depth| late.iter().any(|shape| shape.depth == depth)));
    }

    #[test]
    fn a_higher_power_stays_small_for_longer() {
        let most = |power, step| plan(0.5, power).sizes_of_step(step, 1000).0.1;
        assert_eq!([0, 250, 500].map(|step| most(3.0, step)), [2, 3, 12]); // 10 / 2^3
        assert_eq!([0, 250, 500].map(|step| most(0.5, step)), [2, 9, 12]); // 10 / 2^(1/2)
    }

    #[test]
    fn without_growth_every_step_draws_from_all_sizes() {
        let plan = plan(0.0, None);
        let all = ((2, 12), &[64, 128, 192][..]);
        assert_eq!(plan.sizes_of_step(0, 10), all);
        assert_eq!(plan.sizes_of_step(0, 0), all);
    }

    #[test]
    fn growth_saves_the_work_of_large_steps() {
        let work = |growth: f64, power: f64| {
            let mut plan = plan(growth, power);
            plan.widths = vec![64];
            plan.mean_multiply_adds()
        };
        let of = |depth| {
            plan(None, None)
                .auxiliary
                .with_size(depth, 64)
                .multiply_adds() as f64
        };
        let layer = (of(12) - of(2)) / 10.0;
        // Drawn from all: 7 layers on average. While they grow: as many as their power's mean.
        for (growth, power) in [(0.8, 1.0), (0.9, 3.0)] {
            let saved = (work(0.0, power) - work(growth, power)) / layer;
            let expected = growth * (5.0 - 5.0 / (power + 1.0));
            assert!((saved - expected).abs() < 0.05, "{saved}, not {expected}");
        }
        assert!(plan(None, None).mean_multiply_adds() < plan(0.0, None).mean_multiply_adds());
    }
}
