//! The training rate of a condensation, measured on a few random images.

use super::{CondensePlan, start};
use crate::timing::{WARM_UP, descend, random, variables};
use anyhow::Result;
use candle_core::Tensor;
use wave_models::vit::{self, VitShape};
use wave_ops::Mode;
use wave_run::settings::{Auxiliary, Condense, TemplateStart};
use wave_run::train::tracked;

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
