//! The outer loop: Adam on the parameters of distributions, with gradients through whole training runs.

use super::learned;
use super::plan::Plan;
use super::problem::Episode;
use super::unrolled::{Optimiser, area, gradient_of};
use anyhow::{Result, bail};
use candle_core::{Tensor, Var};
use rand::Rng;
use wave_models::Weights;
use wave_run::progress::Report;
use wave_run::run_dir::Options;
use wave_run::train::step_generator;

/// The paper's decay rate (appendix B.1).
const ADAM: Optimiser = Optimiser::Adam { beta2: 0.997 };

/// Number of consecutive training runs without a finite gradient after which learning fails.
const PATIENCE: u32 = 10;

/// A learned parameter with the first and second moments of Adam.
struct Learned {
    name: String,
    value: Var,
    moments: [Tensor; 2],
}

/// All parameters, with the learned ones at their current values, tracked or not.
fn current(first: &Weights, learned: &[Learned], tracked: bool) -> Weights {
    let mut all = first.clone();
    for of in learned {
        let t = match tracked {
            true => of.value.as_tensor().clone(),
            false => of.value.as_detached_tensor(),
        };
        all.insert(of.name.clone(), t);
    }
    all
}

/// Learns the parameters of distributions. Must run inside [`super::second_order()`].
pub(super) fn learn(plan: &Plan, options: &Options) -> Result<Weights> {
    let usual = learned::usual(&plan.network.parameters(), plan.seed)?;
    let first = learned::first_parameters(plan.family, &usual)?;
    let learns = |(name, _): &(&String, &Tensor)| !name.starts_with("constant.");
    let parameters = first.iter().filter(learns);
    let mut learned = parameters
        .map(|(name, t)| {
            Ok(Learned {
                name: name.clone(),
                value: Var::from_tensor(&t.copy()?)?,
                moments: [t.zeros_like()?, t.zeros_like()?],
            })
        })
        .collect::<candle_core::Result<Vec<_>>>()?;
    let stream = plan.source.stream(plan.seed)?;
    let mut report = Report::new("learning", 0, plan.steps, options.verbosity);
    let examples = plan.source.batch() * plan.inner.steps as usize;
    let (mut failures, mut skipped) = (0, 0);
    for k in 0..plan.steps {
        let seed = step_generator(plan.seed, k).random();
        let parameters = current(&first, &learned, true);
        let noise = learned::noise(plan.family, plan.network.shapes(), &parameters, seed)?;
        let drawn = learned::weights(plan.family, &parameters, &noise)?;
        let start: candle_core::Result<Weights> = drawn
            .iter()
            .map(|(name, t)| Ok((name.clone(), t.detach())))
            .collect();
        let episode = Episode::new(&stream, &plan.inner, k)?;
        let found = plan.inner.meta_gradient(&start?, |examples, weights| {
            episode.loss(&plan.network, examples, weights)
        })?;
        // The gradient of <a, w(parameters)>, where a is the gradient of the objective.
        let mut product = Tensor::new(0f32, &candle_core::Device::Cpu)?;
        for (name, t) in &drawn {
            let a = found.of[name].to_dtype(t.dtype())?;
            product = (product + (t * a)?.sum_all()?)?;
        }
        let mut store = product.backward()?;
        let mut gradients = Vec::new();
        let mut squares = 0.0;
        for Learned { value, .. } in &learned {
            let g = gradient_of(&mut store, value)?.detach();
            squares += f64::from(g.sqr()?.sum_all()?.to_scalar::<f32>()?);
            gradients.push(g);
        }
        let (area, norm) = (area(&found.losses), squares.sqrt());
        let step = k + 1;
        if area.is_finite() && norm.is_finite() {
            failures = 0;
            let scale = (plan.clip / norm.max(1e-12)).min(1.0);
            for (of, g) in learned.iter_mut().zip(&gradients) {
                let w = of.value.as_detached_tensor();
                let (lr, g) = (plan.learning_rate, (g * scale)?);
                let (w, slots) = ADAM.update(lr, step - skipped, &w, &g, &of.moments)?;
                of.value.set(&w)?;
                of.moments = [slots[0].clone(), slots[1].clone()];
            }
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
    Ok(current(&first, &learned, false))
}
