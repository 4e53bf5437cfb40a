//! A learngene in training: the values that the optimiser updates, the loss of a step, and evaluation.

use super::CondensePlan;
use crate::ancestor::AncestorOutput;
use crate::distill_targets::DistillTargets;
use crate::elastic;
use crate::score::drop_path;
use anyhow::Result;
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;
use wave_data::Batch;
use wave_learngene::{Learngene, Part, Reach};
use wave_models::vit::{self, VitShape};
use wave_models::{Weights, resample};
use wave_ops::profile::{Work, doing};
use wave_run::data::Data;
use wave_run::progress::Passes;
use wave_run::train::{self, LossInput, Parameters, Resolved, Trainable};
use wave_train::{Scores, Variable};

/// Prefix of the names of composed weights that train.
const PREFIX: &str = "composed.";

/// A learngene in training, starting from `gene`.
pub(super) struct Distillation<'a> {
    pub(super) plan: &'a CondensePlan,
    /// The sizes whose composed weights the optimiser updates; after each step, templates and scalers move towards the
    /// nearest composition (see [`Learngene::nearer`]). `None` if it updates templates and scalers, with gradients
    /// through their composition.
    pub(super) reach: Option<Reach>,
    /// The learngene before the first step.
    pub(super) gene: &'a Learngene,
    pub(super) resolved: &'a Resolved,
    pub(super) data: &'a Data,
    pub(super) distill_targets: Option<DistillTargets<'a>>,
}

impl Trainable for Distillation<'_> {
    type Batch = Batch;

    /// The variables, with composed weights included if they are updated. In that case the optimiser leaves
    /// templates and scalers to [`Distillation::follow`].
    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let (gene, resolved) = (self.gene, self.resolved);
        let variable = |(name, t): &(String, Tensor)| {
            let mut v = train::variable(name, t, resolved, gene.auxiliary.depth, device)?;
            if name.starts_with("templates.") {
                v.weight_decay = resolved.weight_decay;
            } else if name.starts_with("bank.") {
                let ratio = self.plan.given.scaler_lr_ratio.unwrap_or(1.0);
                v.rate = Some(ratio as f32);
                v.weight_decay = 0.0;
            }
            Ok(v)
        };
        let all = gene.tensors();
        let mut variables: Vec<Variable> = all.iter().map(variable).collect::<Result<_>>()?;
        let Some(reach) = &self.reach else {
            return Ok(variables);
        };
        for v in variables.iter_mut().filter(|v| is_factor(&v.name)) {
            v.rate = None;
        }
        for (part, t) in gene.composed(reach)? {
            let mut v = train::variable(part.stacked_name(), &t, resolved, t.dim(0)?, device)?;
            v.name = format!("{PREFIX}{part}");
            variables.push(v);
        }
        Ok(variables)
    }

    fn constrain(&self, live: &Parameters, step: u64) -> candle_core::Result<()> {
        let Distillation { plan, resolved, .. } = self;
        let shape = |step| elastic::sampled(&plan.sizes, &plan.auxiliary, step, resolved);
        self.follow(live, [&shape(step), &shape(step + 1)])
    }

    fn loss(&self, live: &Parameters, on: &LossInput<Batch>) -> candle_core::Result<Tensor> {
        let Distillation { plan, resolved, .. } = self;
        let targets = self.distill_targets.as_ref();
        let output = targets.map(|t| t.shown.output);
        let targets = targets.map(|t| t.targets(on.batch, on.input)).transpose()?;
        let shape = elastic::sampled(&plan.sizes, &plan.auxiliary, on.part.step, resolved);
        let weights = self.weights(&live.weights, &shape)?;
        let scales = drop_path(shape.depth, on.part, resolved);
        let images = resample::images(on.input, shape.image_size)?;
        let outputs = vit::logits_in(resolved.mode, &shape, &weights, &images, scales)?;
        match (&targets, output) {
            (Some(features), Some(AncestorOutput::Features)) => {
                wave_learngene::feature_distance(&outputs, features)
            }
            (scores, _) => plan.objective.loss(&outputs, scores.as_ref(), || {
                let classes = plan.auxiliary.classes;
                wave_train::batch_targets(on.batch, classes, resolved.label_smoothing)
            }),
        }
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let gene = self.gene.with_tensors(values);
        elastic::score(&gene, &self.plan.largest(), self.data)
    }

    fn scores_at(&self, values: &Weights, step: u64) -> Result<Vec<(String, Scores)>> {
        let gene = self.gene.with_tensors(values);
        let sizes = &self.plan.sizes;
        let largest = sizes.largest_at(step, self.resolved.steps);
        let mut tested = vec![(sizes.depths.0, sizes.widths[0]), largest];
        tested.dedup();
        let of_size = |(depth, width): (usize, usize)| {
            let shape = gene.auxiliary.with_size(depth, width);
            let scores = elastic::score(&gene, &shape, self.data)?;
            Ok((format!("{depth} x {width}"), scores))
        };
        tested.into_iter().map(of_size).collect()
    }

    fn share_done(&self, step: u64, steps: u64) -> f64 {
        let parts = &self.plan.work;
        let at = (step * parts.len() as u64 / steps.max(1)) as usize;
        let sum = |parts: &[f64]| parts.iter().sum::<f64>();
        sum(&parts[..at.min(parts.len())]) / sum(parts).max(1e-9)
    }

    fn passes(&self, step: u64, steps: u64) -> Passes {
        let targets = self.distill_targets.as_ref();
        targets.map_or_else(Passes::default, |t| t.passes(step, steps))
    }
}

impl Distillation<'_> {
    /// The weights of a model of this shape, with gradients to everything that trains.
    pub(super) fn weights(&self, live: &Weights, shape: &VitShape) -> candle_core::Result<Weights> {
        let gene = self.gene.with_tensors(live);
        match &self.reach {
            // Composed in every step, since the templates change.
            None => gene.stacked_weights(shape),
            Some(reach) => gene.weights_from(&composed(live), reach, shape),
        }
    }

    /// Moves templates and scalers towards the weights of a model of shape `moved`, which a step trained, and
    /// recomposes the weights of the `next` step's model.
    pub(super) fn follow(
        &self,
        live: &Parameters,
        [moved, next]: [&VitShape; 2],
    ) -> candle_core::Result<()> {
        let Some(reach) = &self.reach else {
            return Ok(());
        };
        let _measured = doing(Work::Composition);
        let value = |v: &Variable| (v.name.clone(), v.var.as_detached_tensor());
        let values: Weights = live.variables.iter().map(value).collect();
        let gene = self.gene.with_tensors(&values);
        let weights = composed(&values);
        let gene = gene.nearer(&weights, reach, &gene.reads(moved))?;
        let mut now: Weights = gene.tensors().into_iter().collect();
        now.retain(|name, _| is_factor(name));
        for (part, t) in gene.refreshed(&weights, reach, &gene.reads(next))? {
            now.insert(format!("{PREFIX}{part}"), t);
        }
        for v in &live.variables {
            if let Some(t) = now.get(&v.name) {
                v.var.set(t)?;
            }
        }
        Ok(())
    }
}

/// True if a variable of this name is a set of templates or a part of the bank.
fn is_factor(name: &str) -> bool {
    name.starts_with("templates.") || name.starts_with("bank.")
}

/// The composed weights among the values of all variables.
fn composed(values: &Weights) -> BTreeMap<Part, Tensor> {
    let of = |part: Part| Some((part, values.get(&format!("{PREFIX}{part}"))?.clone()));
    Part::ALL.into_iter().filter_map(of).collect()
}
