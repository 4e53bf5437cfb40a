//! `wave-lab dimaml`: a distribution for each weight tensor of a small network, learned by backpropagation
//! through its training (DIMAML), and compared with other initialisations on another task.
//!
//! `model.safetensors` holds the parameters (`mean.NAME`, `std.NAME`; or `start.NAME`, `slopes.NAME`,
//! `scale.NAME`; or `constant.NAME`, a single number).

mod learn;
pub mod learned;
mod plan;
mod problem;
mod second_order;
mod settings;
pub mod small;
mod trial;
pub mod unrolled;

use crate::run::{Run, count};
use anyhow::Result;
use plan::Plan;
use serde_json::{Value, json};
use wave_models::Weights;

pub use second_order::{VARIABLE, second_order};
pub use settings::Settings;

/// Learns distributions, tests them, and writes both. Must run inside [`second_order()`].
pub fn run(settings: &Settings, run: &Run) -> Result<Value> {
    let plan = Plan::new(settings, &run.options.context)?;
    trial::check(settings, &plan)?;
    let parameters = learn::learn(&plan, &run.options)?;
    let tests = trial::tests(settings, &plan, &parameters, run)?;
    let moments = learned::moments(&parameters)?;
    run.write_network(&plan.network, &parameters)?;
    tests.write(run)?;
    if plan.pieces.is_some() {
        draw_quantiles(&plan, &moments, &parameters, run)?;
    }
    run.finish(json!({
        "parameters": count(&parameters),
        "steps": plan.steps,
        "tests": tests.summary(),
        "moments": moments,
    }))
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
