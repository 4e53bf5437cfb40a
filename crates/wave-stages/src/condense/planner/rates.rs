//! Training and data rates of a condensation, measured in a few steps on this machine.

use crate::ancestor::Ancestor;
use crate::condense::CondensePlan;
use crate::condense::start::start;
use crate::condense::training::Distillation;
use crate::timing;
use anyhow::Result;
use candle_core::{Device, Tensor};
use std::time::Instant;
use wave_learngene::Sizes;
use wave_models::vit::{self, VitShape};
use wave_run::data::Data;
use wave_run::settings::TemplateStart;
use wave_run::train::{Parameters, Trainable};
use wave_train::State;

/// Batch size of a measured step on a CPU. A GPU, where few images take as long as many, gets a full batch.
const IMAGES: usize = 32;
/// Measured steps per size, after one warm-up step: the minimum, and the maximum if they take SECONDS.
const STEPS: (usize, usize) = (2, 20);
const SECONDS: f64 = 0.5;
/// Batches of the loader; the first is not counted.
const BATCHES: u64 = 4;

/// Seconds per part of a step.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// The largest shape.
    pub(super) shape: VitShape,
    /// The smallest, a medium and the largest size.
    pub(super) measured: Vec<Measured>,
    /// Seconds per image in the ancestor; 0 without one.
    pub(super) ancestor: f64,
    /// True if the ancestor runs in every step, since outputs of one view are too large to keep.
    pub(super) ancestor_in_steps: bool,
    /// Seconds per image in the loader.
    pub(super) loading: f64,
    /// True if a GPU trains while the CPU loads.
    pub(super) ahead: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) multiply_adds: f64,
    /// Seconds of the forward and backward pass per image.
    pub(super) image: f64,
    /// Seconds of the optimiser and the composition, in a step of a condensation of all sizes up to this one.
    pub(super) update: f64,
}

impl Rates {
    /// Times training steps at these sizes, each the largest of the condensation that `plan_of` makes for it, and also
    /// the ancestor and the loader.
    pub(super) fn measure(
        plan_of: impl Fn((usize, usize)) -> Result<CondensePlan>,
        sizes: Vec<(usize, usize)>,
        data: &Data,
        ancestor: Option<&Ancestor>,
    ) -> Result<Rates> {
        let device = data.tests.context.device();
        let last = plan_of(sizes.last().copied().unwrap_or_default())?;
        let largest = last.largest();
        let output = last.output(ancestor);
        let ahead = device.is_cuda();
        let n = if ahead { data.plan.batch } else { IMAGES };
        let input = (largest.channels, largest.image_size);
        let (images, targets) = timing::examples(input, largest.classes.max(1), n, device)?;
        let mut measured = Vec::new();
        for (depth, width) in sizes {
            let mut plan = plan_of((depth, width))?;
            plan.given.template_start = TemplateStart::Xavier; // faster to initialise
            let resolved = plan.training.resolve(data)?;
            let gene = start(&plan, 0)?;
            let distillation = Distillation {
                plan: &plan,
                reach: plan.reach(&gene),
                gene: &gene,
                resolved: &resolved,
                data,
                distill_targets: None,
            };
            let live = Parameters::new(distillation.variables(device)?);
            let mut state = State::new(&live.variables, false)?;
            let shape = largest.with_size(depth, width);
            let loss = || -> candle_core::Result<Tensor> {
                let weights = distillation.weights(&live.weights, &shape)?;
                let logits = vit::logits_in(resolved.mode, &shape, &weights, &images, None)?;
                wave_ops::soft_cross_entropy(&logits, &targets)
            };
            let passes = fastest(device, || {
                wave_ops::backward(&loss()?)?;
                Ok(())
            })?;
            let step = fastest(device, || {
                wave_train::step(&loss()?, &live.variables, &mut state, 1e-6, Some(1.0))?;
                Ok(distillation.follow(&live, [&shape, &shape])?)
            })?;
            measured.push(Measured {
                depth,
                width,
                multiply_adds: shape.multiply_adds() as f64,
                image: passes / n as f64,
                update: (step - passes).max(0.0),
            });
        }
        let ancestor = ancestor.map(|a| a.seconds(output)).transpose()?;
        Ok(Rates {
            shape: largest,
            measured,
            ancestor: ancestor.unwrap_or(0.0),
            ancestor_in_steps: false,
            loading: loading(data)?,
            ahead,
        })
    }

    /// Mean seconds per image in a step that samples one of these sizes.
    pub(super) fn of_sizes(&self, sizes: &Sizes, batch: f64) -> f64 {
        const STEPS: u64 = 200;
        let reach = sizes.largest();
        let of_step = |step| {
            let all = sizes.all(2 * step + 1, 2 * STEPS); // in the middle of a step
            let seconds = all.iter().map(|size| self.step(*size, reach, batch));
            seconds.sum::<f64>() / all.len() as f64
        };
        (0..STEPS).map(of_step).sum::<f64>() / STEPS as f64 / batch
    }

    /// Seconds per step of `batch` images at a size, in a level of sizes up to `reach`.
    pub(super) fn step(
        &self,
        (depth, width): (usize, usize),
        reach: (usize, usize),
        batch: f64,
    ) -> f64 {
        let weights = |m: &Measured| (m.depth * m.width * m.width) as f64;
        let reached = (reach.0 * reach.1 * reach.1) as f64;
        let update = self.between(reached, weights, |m| m.update);
        let mut of_image = self.image(depth, width);
        if self.ancestor_in_steps {
            of_image += self.ancestor;
        }
        let (passes, loading) = (batch * of_image, batch * self.loading);
        match self.ahead {
            true => loading.max(passes + update),
            false => loading + passes + update,
        }
    }

    /// Seconds per image of evaluation.
    pub(super) fn forward(&self, depth: usize, width: usize) -> f64 {
        self.image(depth, width) / 3.0
    }

    fn image(&self, depth: usize, width: usize) -> f64 {
        let work = self.shape.with_size(depth, width).multiply_adds() as f64;
        self.between(work, |m| m.multiply_adds, |m| m.image)
    }

    /// Seconds at `x`. Seconds per unit of `x` are linear in its logarithm between the measured sizes.
    fn between(
        &self,
        x: f64,
        at: impl Fn(&Measured) -> f64,
        seconds: impl Fn(&Measured) -> f64,
    ) -> f64 {
        let point = |m: &Measured| (at(m), seconds(m) / at(m));
        let points: Vec<(f64, f64)> = self.measured.iter().map(point).collect();
        let of_unit = match points.iter().position(|(p, _)| *p >= x) {
            None => points.last().map_or(0.0, |(_, v)| *v),
            Some(0) => points[0].1,
            Some(i) => {
                let ((x0, a), (x1, b)) = (points[i - 1], points[i]);
                a + (b - a) * (x / x0).ln() / (x1 / x0).ln()
            }
        };
        x * of_unit
    }

    /// The measured rates, in images per second.
    pub(super) fn words(&self, batch: f64) -> String {
        let size = |m: &Measured| {
            let own = (m.depth, m.width);
            let rate = batch / self.step(own, own, batch);
            format!("{} x {} {rate:.0}", m.depth, m.width)
        };
        let mut all: Vec<String> = self.measured.iter().map(size).collect();
        if self.ancestor > 0.0 {
            all.push(format!("ancestor {:.0}", 1.0 / self.ancestor));
        }
        format!("{} images per second", all.join(", "))
    }
}

/// Seconds of the fastest of several runs.
fn fastest(device: &Device, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let least = |seconds: Vec<f64>| seconds.into_iter().fold(f64::INFINITY, f64::min);
    let first = least(timing::clock(device, 1, STEPS.0, &mut work)?);
    let more = ((SECONDS / first) as usize).min(STEPS.1 - STEPS.0);
    Ok(first.min(least(timing::clock(device, 0, more, work)?)))
}

fn loading(data: &Data) -> Result<f64> {
    let mut batches = data.loader.prefetch(0, BATCHES);
    let _first = batches.next().transpose()?;
    let began = Instant::now();
    let sizes = batches.map(|batch| Ok(batch?.size));
    let images = sizes.sum::<Result<usize>>()?;
    Ok(began.elapsed().as_secs_f64() / images.max(1) as f64)
}
