//! `wave-lab dimaml`: a distribution for each weight tensor of a small network, learned by backpropagation
//! through its training (DIMAML), and compared with other initialisations on another task.
//!
//! `model.safetensors` holds the parameters (`mean.NAME`, `std.NAME`; or `start.NAME`, `slopes.NAME`,
//! `scale.NAME`; or `constant.NAME`, a single number).

pub mod learned;
mod plan;
mod problem;
mod second_order;
mod settings;
pub mod small;
mod trial;
pub mod unrolled;

use crate::run::{Run, count};
use anyhow::{Result, bail};
use candle_core::{Device, Tensor};
use plan::Plan;
use problem::Episode;
use rand::Rng;
use serde_json::{Value, json};
use unrolled::{Optimiser, area, gradients, named, variables};
use wave_models::Weights;
use wave_run::progress::Report;
use wave_run::run_dir::Options;
use wave_run::train::step_generator;

pub use second_order::{VARIABLE, second_order};
pub use settings::Settings;

/// The paper's decay rate (appendix B.1).
const ADAM: Optimiser = Optimiser::Adam { beta2: 0.997 };

/// Gradients of a larger norm are scaled down to this one.
const CLIP: f64 = 10.0;

/// Number of consecutive training runs without a finite gradient after which learning fails.
const PATIENCE: u32 = 10;

/// Learns distributions, tests them, and writes both. Must run inside [`second_order()`].
pub fn run(settings: &Settings, run: &Run) -> Result<Value> {
    let plan = Plan::new(settings, &run.options.context)?;
    wave_hub::prepare_out(&run.out)?;
    let parameters = learn(&plan, &run.options)?;
    let moments = learned::moments(&parameters)?;
    run.write_network(&plan.network, &parameters)?;
    let tests = trial::tests(settings, &plan, &parameters, run)?;
    if plan.pieces.is_some() {
        draw_quantiles(&plan, &moments, &parameters, run)?;
    }
    run.finish(json!({
        "parameters": count(&parameters),
        "steps": plan.steps,
        "tests": tests,
        "moments": moments,
    }))
}

/// The outer loop: Adam on the parameters of distributions, with gradients through whole training runs.
fn learn(plan: &Plan, options: &Options) -> Result<Weights> {
    let usual = learned::usual(&plan.network.parameters(), plan.seed)?;
    let first = learned::first_parameters(plan.pieces, &usual)?;
    let is_constant = |(name, _): &(String, Tensor)| name.starts_with("constant.");
    let (constants, learned): (Weights, Weights) = first.into_iter().partition(is_constant);
    let mut point = ADAM.start(&learned)?;
    let [trained, judged] = plan.source.stream(plan.seed)?;
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
        let episode = Episode::new(&trained, &plan.inner, k, |n| Ok(vec![judged(n)?]))?;
        let found = plan.inner.meta_gradient(&drawn, |examples, weights| {
            episode.loss(&plan.network, examples, weights)
        })?;
        // The gradient of <a, w(parameters)>, where a is the gradient of the objective.
        let mut product = Tensor::new(0f32, &Device::Cpu)?;
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
            let scale = (CLIP / norm.max(1e-12)).min(1.0);
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

/// Number of points of a quantile function in its chart.
const PLACES: usize = 100;

/// Plots the quantile functions of learned matrices and kernels, with the uniform one that they started from. Each
/// is standardised: minus its mean, divided by its standard deviation.
fn draw_quantiles(
    plan: &Plan,
    moments: &[(String, f64, f64)],
    parameters: &Weights,
    run: &Run,
) -> Result<()> {
    let place = |i: usize| (i as f64 + 0.5) / PLACES as f64;
    let uniform = (0..PLACES).map(|i| (place(i), (place(i) - 0.5) * 12f64.sqrt()));
    let mut lines = vec![("uniform".to_owned(), uniform.collect::<Vec<_>>())];
    let shapes = plan.network.shapes();
    let is_matrix = |name: &String| shapes.iter().any(|(n, dims)| n == name && dims.len() > 1);
    for (name, mean, std) in moments {
        if is_matrix(name) && *std > 0.0 {
            let all = learned::quantiles(parameters, name, PLACES)?;
            let all = all.iter().enumerate();
            let points = all.map(|(i, q)| (place(i), (q - mean) / std));
            lines.push((name.clone(), points.collect()));
        }
    }
    let title = "Quantiles of the learned distributions";
    let labels = ["probability", "weight, in standard deviations"];
    run.chart("quantiles.svg", title, labels, &lines)
}

#[cfg(test)]
mod tests;
