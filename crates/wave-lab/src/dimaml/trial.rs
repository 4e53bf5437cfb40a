//! Comparison of the learned initialisation with others, on another task.

use super::learned;
use super::learned::baselines::{delta_orthogonal, metainit};
use super::plan::{Plan, validated};
use super::problem::{Episode, Source};
use super::settings::Settings;
use super::small::{Examples, Parameter, Small, Usual};
use super::unrolled::{Curve, Optimiser, Unrolled, area, gradient_quotient};
use crate::run::Run;
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use rand::Rng;
use serde_json::{Value, json};
use wave_init::random;
use wave_models::Weights;
use wave_run::error::request;
use wave_run::progress::Verbosity;
use wave_run::terminal::tell;

const LEARNED: &str = "learned";

/// Separates MetaInit's random examples from all others.
const NOISE: u64 = 0x6d65_7461;

/// The learning curves of all training runs.
pub(super) struct Tests {
    data: String,
    seeds: Vec<u64>,
    /// By initialisation, then by seed.
    curves: Vec<(String, Vec<Curve>)>,
    /// Names of tensors in the order of the update rates; true for matrices and kernels.
    tensors: Vec<(String, bool)>,
}

/// Names of the other initialisations.
fn against(settings: &Settings) -> Vec<String> {
    let own = settings.against.clone();
    own.unwrap_or_else(|| vec!["usual".into()])
}

/// Rejects unknown names before any work.
pub(super) fn check(settings: &Settings, plan: &Plan) -> Result<()> {
    for name in against(settings) {
        let (start, _) = tuned(&name, plan.inner.optimiser)?;
        let mut known = vec!["usual", "kaiming", "metainit", "delta-orthogonal"];
        match plan.network {
            Small::Autoencoder(_) => {}
            Small::Fixup(_) => known = vec!["usual", "metainit"], // usual is Fixup
            Small::Lstm(_) => known.push("orthogonal-hidden"),
        }
        if !known.contains(&start) {
            return Err(request(format!(
                "against = {name}; expected {}, alone or with @lars=TRUST or @learned-rates",
                known.join(", ")
            )));
        }
    }
    validated(
        settings.test_steps.unwrap_or(plan.inner.steps),
        settings.validate_every,
    )?;
    Ok(())
}

/// Name and optimiser of an initialisation, `NAME` or `NAME@lars=TRUST`; no optimiser for `NAME@learned-rates`: the
/// default one with gradients rescaled, per tensor and step, to the update rates of the training
/// from the learned start on the same batches (DIMAML LR, figure 3).
fn tuned(name: &str, usual: Optimiser) -> Result<(&str, Option<Optimiser>)> {
    let Some((start, other)) = name.split_once('@') else {
        return Ok((name, Some(usual)));
    };
    if other == "learned-rates" {
        return Ok((start, None));
    }
    let trust = other.strip_prefix("lars=").and_then(|t| t.parse().ok());
    match trust.filter(|t: &f64| *t > 0.0 && t.is_finite()) {
        Some(trust) => Ok((start, Some(Optimiser::Lars { trust }))),
        None => Err(request(format!(
            "against = {name}; expected NAME@learned-rates, or NAME@lars=TRUST with a positive number"
        ))),
    }
}

/// Trains from every initialisation with every seed.
pub(super) fn tests(
    settings: &Settings,
    plan: &Plan,
    parameters: &Weights,
    run: &Run,
) -> Result<Tests> {
    let data = settings.test_data.clone();
    let data = data.or(settings.images.data.clone()).unwrap_or_default();
    let seeds = settings.test_seeds.clone();
    let seeds = seeds.unwrap_or_else(|| vec![0, 1, 2]);
    let starts = [LEARNED.to_string()].into_iter().chain(against(settings));
    let tensors = plan.network.shapes().into_iter();
    let tensors = tensors.map(|(name, dims)| (name, dims.len() > 1));
    let mut tests = Tests {
        data,
        curves: starts.map(|name| (name, Vec::new())).collect(),
        seeds,
        tensors: tensors.collect(),
    };
    tests.tensors.sort(); // as the curves have them
    if tests.seeds.is_empty() {
        return Ok(tests);
    }
    let mut own = settings.clone();
    own.images.hold_out = None;
    let open = |like| Source::open(&tests.data, &own, like, &run.options.context);
    let mut source = open(None)?;
    // Images of another size or number of channels are prepared like the meta-training images.
    let image = |source: &Source| source.frame().map(|(side, channels, _)| (side, channels));
    if image(&source) != image(&plan.source) {
        source = open(plan.source.images().map(|data| data.transform.clone()))?;
    }
    let classes = source.frame().map(|(_, _, classes)| classes);
    let task = Trial {
        network: plan.network.on(classes, source.vocabulary()),
        source,
    };
    let judged = task.source.tests(own.images.test_limit)?;
    let steps = own.test_steps.unwrap_or(plan.inner.steps);
    for seed in &tests.seeds {
        let training = Unrolled {
            steps,
            validate: validated(steps, own.validate_every)?,
            ..plan.inner.clone()
        };
        let stream = task.source.stream(*seed)?;
        let episode = Episode::judged_by(&stream, &training, &judged)?;
        let mut learned_rates: Option<Vec<Vec<f64>>> = None;
        for (name, curves) in &mut tests.curves {
            let (kind, optimiser) = tuned(name, training.optimiser)?;
            let rates = learned_rates.as_deref().filter(|_| optimiser.is_none());
            let start = task.start(kind, parameters, *seed)?;
            let training = Unrolled {
                optimiser: optimiser.unwrap_or(training.optimiser),
                ..training.clone()
            };
            let loss = |of, weights: &Weights| episode.loss(&task.network, of, weights);
            let curve = training.curve(&start, rates, loss)?;
            // The learned start is the first.
            learned_rates.get_or_insert_with(|| curve.update_rates.clone());
            if run.options.verbosity > Verbosity::Quiet {
                tell(&format!(
                    "test {name}, seed {seed}: area {:.4}",
                    area(&curve.losses)
                ));
            }
            curves.push(curve);
        }
    }
    Ok(tests)
}

/// The task of the tests. Its network has as many outputs as the task has classes or tokens: the
/// distribution of a head's weights is per weight, so it fits any number of them.
struct Trial {
    network: Small,
    source: Source,
}

impl Trial {
    fn start(&self, kind: &str, parameters: &Weights, seed: u64) -> Result<Weights> {
        let all = self.network.parameters();
        let mut usual = learned::usual(&all, seed)?;
        match kind {
            LEARNED => {
                let shapes = self.network.shapes();
                let noise = learned::noise(shapes, parameters, seed)?;
                Ok(learned::weights(parameters, &noise)?)
            }
            "metainit" => self.with_metainit(usual, seed),
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

    /// The default initialisation with norms by MetaInit, on normal inputs and random targets.
    fn with_metainit(&self, usual: Weights, seed: u64) -> Result<Weights> {
        let like = self.source.tests(Some(self.source.batch()))?;
        let Some(like) = like.first() else {
            return Err(request("no test examples to take MetaInit's shapes from"));
        };
        let slope = |step: u64, weights: &Weights| {
            let rng = &mut random::generator(seed ^ NOISE, step);
            let input = match self.source.vocabulary() {
                None => random::normal(like.input.dims(), 1.0, rng)?,
                Some(n) => {
                    let tokens =
                        (0..like.input.elem_count()).map(|_| rng.random_range(0..n as u32));
                    Tensor::from_vec(tokens.collect(), like.input.shape(), &Device::Cpu)?
                }
            };
            let most = like.targets.iter().max().map_or(1, |most| most + 1);
            let targets = like.targets.iter().map(|_| rng.random_range(0..most));
            let examples = Examples {
                targets: targets.collect(),
                positions: like.positions.clone(),
                input,
            };
            Ok(gradient_quotient(weights, |w| self.network.loss(w, &examples))?.1)
        };
        // The settings from copies of the paper's code.
        Ok(metainit(&usual, 500, [0.1, 0.9], slope)?)
    }
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

/// Mean and sample standard deviation (0 for a single value).
fn mean_and_std(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

impl Tests {
    /// Area under the curve and final loss of each initialisation.
    pub(super) fn summary(&self) -> Value {
        let row = |(name, curves): &(String, Vec<Curve>)| {
            let areas: Vec<f64> = curves.iter().map(|c| area(&c.losses)).collect();
            let last = |curve: &Curve| curve.losses.last().map_or(f64::NAN, |(_, loss)| *loss);
            let last: Vec<f64> = curves.iter().map(last).collect();
            let ((area, area_std), (end, end_std)) = (mean_and_std(&areas), mean_and_std(&last));
            json!({
                "start": name,
                "data": self.data,
                "area": area,
                "area_std": area_std,
                "last": end,
                "last_std": end_std,
                "areas": areas,
            })
        };
        let rows = self.curves.iter().filter(|(_, curves)| !curves.is_empty());
        rows.map(row).collect()
    }

    /// Writes `tests.json`, with all curves and the update rates of the first seed, `curves.svg` and
    /// `update-rates.svg`.
    pub(super) fn write(&self, run: &Run) -> Result<()> {
        if self.seeds.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::new();
        let mut lines = Vec::new();
        for (name, curves) in &self.curves {
            let mut mean: Vec<(f64, f64)> = Vec::new();
            for (i, (seed, curve)) in self.seeds.iter().zip(curves).enumerate() {
                let mut row = json!({
                    "start": name,
                    "seed": seed,
                    "area": area(&curve.losses),
                    "losses": curve.losses,
                });
                if i == 0 {
                    let names: Vec<&String> = self.tensors.iter().map(|(name, _)| name).collect();
                    row["tensors"] = json!(names);
                    row["update_rates"] = json!(curve.update_rates);
                    mean = curve.losses.iter().map(|(t, _)| (*t as f64, 0.0)).collect();
                }
                for (point, (_, loss)) in mean.iter_mut().zip(&curve.losses) {
                    point.1 += loss / curves.len() as f64;
                }
                rows.push(row);
            }
            mean.retain(|(_, loss)| loss.is_finite());
            lines.push((name.clone(), mean));
        }
        wave_hub::write_json(&run.file("tests.json"), &rows)?;
        let title = format!("Training on {}", self.data);
        let rates = "log10 of |gradient| / |weight|";
        for (file, label, lines) in [
            ("curves.svg", "validation loss", lines),
            ("update-rates.svg", rates, self.update_rates()),
        ] {
            run.chart(file, &title, ["step", label], &lines)?;
        }
        Ok(())
    }

    /// Update rates of the matrices from the learned initialisation and the first other one, for the
    /// first seed (DIMAML, figure 4).
    fn update_rates(&self) -> Vec<(String, Vec<(f64, f64)>)> {
        let mut lines = Vec::new();
        for (start, curves) in self.curves.iter().take(2) {
            let Some(curve) = curves.first() else {
                continue;
            };
            for (i, (tensor, _)) in self.tensors.iter().enumerate().filter(|(_, t)| t.1) {
                let steps = curve.update_rates.iter().zip(1_u32..);
                let points = steps.map(|(rates, t)| (f64::from(t), rates[i].log10()));
                let points = points.filter(|(_, rate)| rate.is_finite()).collect();
                lines.push((format!("{start} {tensor}"), points));
            }
        }
        lines
    }
}
