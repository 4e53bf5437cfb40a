//! The training rate of a condensation, measured on a few random images.

use super::{CondensePlan, start};
use crate::timing::{WARM_UP, descend, examples, random, variables};
use anyhow::Result;
use candle_core::{Device, Tensor};
use wave_models::vit::{self, VitShape};
use wave_ops::Mode;
use wave_run::settings::{Auxiliary, Condense, TemplateStart};
use wave_run::train::tracked;

/// Floating-point operations per second of a condensation, measured on a few images.
pub(super) fn condensing(
    shape: &VitShape,
    images: usize,
    how: Mode,
    device: &Device,
) -> Result<f64> {
    let (input, targets) = examples(shape, images, device)?;
    let seconds = step_seconds(shape, &input, &targets, how, 1)?;
    Ok(6.0 * shape.multiply_adds() as f64 * images as f64 / seconds[0])
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
    let variables = variables(gene.tensors(), images.device())?;
    let live = gene.with_tensors(&tracked(&variables));
    let teacher = random(&[targets.dim(0)?, shape.classes], images.device())?;
    let step = || -> candle_core::Result<Tensor> {
        let weights = live.stacked_weights(shape)?;
        let logits = vit::logits_in(how, shape, &weights, images, None)?;
        plan.objective
            .loss(&logits, Some(&teacher), || Ok(targets.clone()))
    };
    descend(images.device(), &variables, WARM_UP, steps, step)
}
