//! The outer loop: Adam on the parameters of distributions, with gradients through whole training runs.

use super::learned;
use super::plan::Plan;
use super::problem::Episode;
use super::unrolled::{Optimiser, area, gradients, named, variables};
use anyhow::{Result, bail};
use candle_core::Tensor;
use rand::Rng;
use wave_models::Weights;
use wave_run::progress::Report;
use wave_run::run_dir::Options;
use wave_run::train::step_generator;

/// The paper's decay rate (appendix B.1).
const ADAM: Optimiser = Optimiser::Adam { beta2: 0.997 };

/// Number of consecutive training runs without a finite gradient after which learning fails.
const PATIENCE: u32 = 10;

/// Learns the parameters of distributions. Must run inside [`super::second_order()`].
pub(super) fn learn(plan: &Plan, options: &Options) -> Result<Weights> {
    let usual = learned::usual(&plan.network.parameters(), plan.seed)?;
    let first = learned::first_parameters(plan.pieces, &usual)?;
    let is_constant = |(name, _): &(String, Tensor)| name.starts_with("constant.");
    let (constants, learned): (Weights, Weights) = first.into_iter().partition(is_constant);
    let mut point = ADAM.start(&learned)?;
    let stream = plan.source.stream(plan.seed)?;
    let mut report = Report::new("learning", 0, plan.steps, options.verbosity);
    let examples = plan.source.batch() * plan.inner.steps as usize;
    let (mut failures, mut skipped) = (0, 0);
    for k in 0..plan.steps {
        let seed = step_generator(plan.seed, k).random();
        let tracked = variables(&point[0])?;
        let mut parameters = constants.clone();
        parameters.extend(named(&tracked));
        let noise = learned::noise(plan.network.shapes(), &parameters, seed)?;
        let drawn = learned::weights(&parameters, &noise)?;
        let episode = Episode::new(&stream, &plan.inner, k)?;
        let found = plan.inner.meta_gradient(&drawn, |examples, weights| {
            episode.loss(&plan.network, examples, weights)
        })?;
        // The gradient of <a, w(parameters)>, where a is the gradient of the objective.
        let mut product = Tensor::new(0f32, &candle_core::Device::Cpu)?;
        for (name, t) in &drawn {
            let a = found.of[name].to_dtype(t.dtype())?;
            product = (product + (t * a)?.sum_all()?)?;
        }
        let mut gradients = gradients(&product, &tracked)?;
        let mut squares = 0.0;
        for g in gradients.values() {
            squares += f64::from(g.sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
        let (area, norm) = (area(&found.losses), squares.sqrt());
        let step = k + 1;
        if area.is_finite() && norm.is_finite() {
            failures = 0;
            let scale = (plan.clip / norm.max(1e-12)).min(1.0);
            for g in gradients.values_mut() {
                *g = (&*g * scale)?;
            }
            point = ADAM.step(plan.learning_rate, step - skipped, &point, &gradients)?;
        } else {
            failures += 1;
            skipped += 1;
            report.line(&format!(
                "training {step}: objective {area}, gradient norm {norm}; skipped"
            ));
            if failures >= PATIENCE {
                bail!(
                    "the objective or its gradient was not finite for {failures} trainings in a \
                     row; lower inner_lr or inner_steps"
                );
            }
        }
        report.step(step, examples, &format!("objective {area:.4}, "));
    }
    let mut learned = point.swap_remove(0);
    learned.extend(constants);
    Ok(learned)
}
