//! The sizes that a condensation trains, and their cost: values, memory, compute and time.

use super::{CondensePlan, start};
use crate::ancestor::Ancestor;
use crate::timing::{WARM_UP, descend, random};
use anyhow::Result;
use candle_core::Tensor;
use wave_learngene::{Learngene, Part, Reach};
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_ops::Mode;
use wave_run::forecast::Memory;
use wave_run::settings::{Auxiliary, Condense, Duration, TemplateStart, Trained};

impl CondensePlan {
    /// The total work of its steps, in multiply-adds times the unit of its duration: epochs or steps. At least 1, so
    /// that it has a share in that of all levels.
    pub(super) fn work_in_all(&self) -> f64 {
        let length = match self.training.duration {
            Duration::Epochs(epochs) => epochs,
            Duration::Steps(steps) => steps as f64,
        };
        let mean = self.work.iter().sum::<f64>() / self.work.len().max(1) as f64;
        (length * mean).max(1.0)
    }

    pub(super) fn largest(&self) -> VitShape {
        let (depth, width) = self.sizes.largest();
        self.auxiliary.with_size(depth, width)
    }

    /// The sizes whose composed weights train, if they do.
    pub(super) fn reach(&self, gene: &Learngene) -> Option<Reach> {
        let (depth, width) = self.sizes.largest();
        (self.train == Trained::Weights).then(|| gene.reach(depth, width))
    }

    /// Parameters of templates, scaler bank and the auxiliary's other weights, as counted by
    /// [`Learngene::ledger`].
    pub(super) fn ledger(&self) -> [(&'static str, usize); 3] {
        let a = &self.auxiliary;
        [
            ("templates", self.templates.template_parameters()),
            ("scaler bank", self.templates.scaler_count(a)),
            ("inherited", a.parameter_count() - composed(a)),
        ]
    }

    pub(super) fn memory(&self, ancestor: Option<&Ancestor>, mode: Mode) -> Memory {
        let costliest = self.sizes.costliest(&self.auxiliary);
        let memory = Memory::of_composed(&costliest, mode, self.values_in_training());
        match self.taught_by(ancestor) {
            Some(ancestor) => memory.beside(&ancestor.network),
            None => memory,
        }
    }

    /// Number of values held in training: the transferred tensors and, if composed weights train, those weights at
    /// every anchor.
    pub(super) fn values_in_training(&self) -> usize {
        let transferred: usize = self.ledger().iter().map(|(_, n)| n).sum();
        let (a, (_, width)) = (&self.auxiliary, self.sizes.largest());
        match self.train {
            Trained::Factors => transferred,
            Trained::Weights => transferred + composed(&a.with_size(a.depth, width)),
        }
    }

    /// Mean multiply-adds of the forward passes for one image in a step.
    pub fn mean_multiply_adds(&self) -> f64 {
        self.sizes.mean_multiply_adds(&self.auxiliary)
    }
}

/// Number of values in the weights that templates compose.
fn composed(shape: &VitShape) -> usize {
    let of_part = |part: Part| {
        let (rows, columns) = part.rows_cols(shape);
        rows * columns
    };
    shape.depth * Part::ALL.map(of_part).iter().sum::<usize>()
}

/// Seconds of each step of a condensation whose ancestor outputs are already computed.
pub(crate) fn step_seconds(
    shape: &VitShape,
    images: &Tensor,
    targets: &Tensor,
    how: Mode,
    steps: usize,
) -> Result<Vec<f64>> {
    let settings = Condense {
        auxiliary: Auxiliary::from(shape),
        template_start: Some(TemplateStart::Xavier), // faster to initialise
        ..Condense::default()
    };
    let plan = CondensePlan::new(&settings)?.on(shape.channels, shape.classes);
    let gene = start(&plan, 0)?;
    let device = images.device();
    let teacher = random(&[targets.dim(0)?, shape.classes], device)?;
    let loss = |weights: &Weights| {
        let weights = gene.with_tensors(weights).stacked_weights(shape)?;
        let logits = vit::logits_in(how, shape, &weights, images, None)?;
        plan.objective
            .loss(&logits, Some(&teacher), || Ok(targets.clone()))
    };
    descend(gene.tensors(), device, (WARM_UP, steps), loss)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let plan = CondensePlan::new(&settings).unwrap().on(1, 10);
        let gene = crate::condense::start(&plan, 0).unwrap();
        assert_eq!(plan.ledger(), gene.ledger());
    }
}
