//! Comparison of the learned initialisation with others, on another task.

use super::learned::baselines::{delta_orthogonal, gradient_quotient, metainit};
use super::learned::{self, mean_and_std};
use super::plan::{LEARNED, Plan, network};
use super::problem::{Episode, Source};
use super::settings::Settings;
use super::small::{Examples, Parameter, Small, Usual};
use super::unrolled::{Curve, Unrolled, area};
use crate::run::Run;
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use rand::Rng;
use serde_json::{Value, json};
use wave_init::random;
use wave_models::Weights;
use wave_run::terminal::tell;

/// Separates MetaInit's random examples from all others.
const NOISE: u64 = 0x6d65_7461;

/// The learning curves of an initialisation, one for each seed.
type Curves<'a> = (&'a str, Vec<Curve>);

/// Trains from every initialisation with every seed. Writes the curves and returns their summary.
pub(super) fn tests(
    settings: &Settings,
    plan: &Plan,
    parameters: &Weights,
    run: &Run,
) -> Result<Value> {
    let mut own = settings.clone();
    own.images.hold_out = None;
    let data = own.test_data.as_ref().or(own.images.data.as_ref());
    let data = data.map_or("", String::as_str);
    let source = Source::open(data, &own, Some(&plan.source), &run.options.context)?;
    let network = network(&own, &source);
    let judged = source.tests(own.images.test_limit)?;
    let seeds = own.test_seeds.as_deref().unwrap_or(&[0, 1, 2]);
    let names = plan.starts.iter().map(|start| start.name.as_str());
    let mut all: Vec<Curves> = names.map(|name| (name, Vec::new())).collect();
    for (i, seed) in seeds.iter().enumerate() {
        let [trained, _] = source.stream(*seed)?;
        let episode = Episode::new(&trained, &plan.tested, 0, |_| Ok(judged.clone()))?;
        for (k, start) in plan.starts.iter().enumerate() {
            let learned = || all[0].1[i].update_rates.as_slice();
            let rates = start.learned_rates.then(learned);
            let training = Unrolled {
                optimiser: start.optimiser,
                ..plan.tested.clone()
            };
            let weights = first_weights(&start.kind, &network, parameters, &judged, *seed)?;
            let loss = |of, weights: &Weights| episode.loss(&network, of, weights);
            let curve = training.curve(&weights, rates, loss)?;
            let (name, area) = (&start.name, area(&curve.losses));
            tell(&format!("test {name}, seed {seed}: area {area:.4}"));
            all[k].1.push(curve);
        }
    }
    write(&all, seeds, data, plan, run)?;
    Ok(all.iter().map(|curves| summary(curves, data)).collect())
}

/// The first weights of a network for this task: the distribution of a head's weights is per weight, so it fits any
/// number of classes or tokens.
fn first_weights(
    kind: &str,
    network: &Small,
    parameters: &Weights,
    tests: &[Examples],
    seed: u64,
) -> Result<Weights> {
    let all = network.parameters();
    let mut usual = learned::usual(&all, seed)?;
    match kind {
        LEARNED => {
            let noise = learned::noise(network.shapes(), parameters, seed)?;
            Ok(learned::weights(parameters, &noise)?)
        }
        "metainit" => with_metainit(network, usual, &tests[0], seed),
        _ => {
            for (i, p) in all.iter().enumerate() {
                if let Some(t) = redrawn(kind, p, seed, (1 << 32) + i as u64)? {
                    usual.insert(p.name.clone(), t);
                }
            }
            Ok(usual)
        }
    }
}

/// The default initialisation with norms by MetaInit, on normal images and random classes as many as in `like`.
fn with_metainit(network: &Small, usual: Weights, like: &Examples, seed: u64) -> Result<Weights> {
    let slope = |step: u64, weights: &Weights| {
        let rng = &mut random::generator(seed ^ NOISE, step);
        let input = random::normal(like.input.dims(), 1.0, rng)?;
        let most = like.targets.iter().max().map_or(1, |most| most + 1);
        let targets = like.targets.iter().map(|_| rng.random_range(0..most));
        let examples = Examples {
            targets: targets.collect(),
            positions: Vec::new(),
            input,
        };
        Ok(gradient_quotient(weights, |w| network.loss(w, &examples))?.1)
    };
    // The settings from copies of the paper's code.
    Ok(metainit(&usual, 500, [0.1, 0.9], slope)?)
}

/// A weight by an initialisation, if it differs from the default for this weight.
fn redrawn(kind: &str, p: &Parameter, seed: u64, stream: u64) -> Result<Option<Tensor>> {
    // PyTorch's bound is 1 / sqrt(fan-in); standard deviations for ReLUs are sqrt(2) times as much.
    let gain = 2f64.sqrt();
    let dims = p.dims.as_slice();
    Ok(Some(match (kind, p.usual) {
        // Only the hidden-to-hidden maps, a common initialisation of recurrent networks.
        ("orthogonal-hidden", _) if p.name.ends_with(".hidden") => {
            delta_orthogonal(dims, 1.0, seed, stream)?
        }
        ("kaiming" | "delta-orthogonal", Usual::Uniform(_)) if dims.len() == 1 => {
            Tensor::zeros(dims, DType::F32, &Device::Cpu)?
        }
        ("kaiming", Usual::Uniform(bound)) => {
            random::normal(dims, gain * bound, &mut random::generator(seed, stream))?
        }
        ("delta-orthogonal", Usual::Uniform(_)) => delta_orthogonal(dims, gain, seed, stream)?,
        _ => return Ok(None), // norms, embeddings, and Fixup's own tensors
    }))
}

/// Area under the curve and final loss of an initialisation: mean and sample standard deviation (0 for a single seed).
fn summary((name, curves): &Curves, data: &str) -> Value {
    let areas: Vec<f64> = curves.iter().map(|c| area(&c.losses)).collect();
    let last = |curve: &Curve| curve.losses.last().map_or(f64::NAN, |(_, loss)| *loss);
    let last: Vec<f64> = curves.iter().map(last).collect();
    let freedom = (curves.len() as f64 - 1.0).max(1.0);
    let (area, area_std) = mean_and_std(&areas, freedom);
    let (end, end_std) = mean_and_std(&last, freedom);
    json!({
        "start": name,
        "data": data,
        "area": area,
        "area_std": area_std,
        "last": end,
        "last_std": end_std,
        "areas": areas,
    })
}

/// Writes all curves to `tests.json`, their means to `curves.svg`, and to `update-rates.svg` the rates of the matrices
/// from the learned initialisation and the first other one, for the first seed (DIMAML, figure 4).
fn write(all: &[Curves], seeds: &[u64], data: &str, plan: &Plan, run: &Run) -> Result<()> {
    let mut rows = Vec::new();
    let mut means = Vec::new();
    for (name, curves) in all {
        for (seed, curve) in seeds.iter().zip(curves) {
            let losses = &curve.losses;
            let area = area(losses);
            rows.push(json!({ "start": name, "seed": seed, "area": area, "losses": losses }));
        }
        let n = curves.len() as f64;
        let mean = |(i, t): (usize, &u64)| {
            let losses = curves.iter().map(|curve| curve.losses[i].1 / n);
            (*t as f64, losses.sum::<f64>())
        };
        let mean = plan.tested.validate.iter().enumerate().map(mean);
        let mean: Vec<_> = mean.filter(|(_, loss)| loss.is_finite()).collect();
        means.push(((*name).to_owned(), mean));
    }
    let mut rates = Vec::new();
    let mut tensors = plan.network.shapes();
    tensors.sort(); // as the curves have them
    for (start, curves) in all.iter().take(2) {
        let matrices = tensors.iter().enumerate().filter(|(_, t)| t.1.len() > 1);
        for (i, (tensor, _)) in matrices {
            let steps = curves.iter().take(1).flat_map(|curve| &curve.update_rates);
            let point = |(rates, t): (&Vec<f64>, u32)| (f64::from(t), rates[i].log10());
            let points = steps.zip(1..).map(point);
            let points: Vec<_> = points.filter(|(_, rate)| rate.is_finite()).collect();
            rates.push((format!("{start} {tensor}"), points));
        }
    }
    wave_hub::write_json(&run.file("tests.json"), &rows)?;
    let title = format!("Training on {data}");
    run.chart("curves.svg", &title, ["step", "validation loss"], &means)?;
    let labels = ["step", "log10 of |gradient| / |weight|"];
    run.chart("update-rates.svg", &title, labels, &rates)
}
