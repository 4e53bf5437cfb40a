//! The training loop of all stages, which logs, evaluates and saves.

use crate::progress::{Passes, Report};
use crate::run_dir::{Options, RunDir};
use crate::terminal::detail;
use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use observer::Observer;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use wave_models::Weights;
use wave_ops::Matrices;
use wave_ops::profile::{self, Profile};
use wave_train::{Batches, Hyperparameters, MicroBatch, Scores, TrainError, Variable};

mod observer;
mod plan;

pub use plan::{Defaults, Resolved, TrainingData, TrainingPlan};

/// A variable of a network on a device. Weight decay applies to matrices and kernels, not to biases, norms, positions
/// or tokens. `depth` is the number of layers in the rows of a stacked weight.
pub fn variable(
    name: &str,
    t: &Tensor,
    settings: &Resolved,
    depth: usize,
    device: &Device,
) -> Result<Variable> {
    let stacked = usize::from(name.starts_with("blocks.") && depth > 0 && t.dim(0)? == depth);
    let decayed = name.ends_with(".weight") && !name.contains("norm") && t.rank() - stacked >= 2;
    Ok(Variable {
        name: name.to_string(),
        var: Var::from_tensor(&t.to_device(device)?)?,
        rate: Some(1.0),
        weight_decay: if decayed { settings.weight_decay } else { 0.0 },
        muon: match settings.muon {
            true => matrices(name, t, decayed.then_some(stacked)),
            false => None,
        },
    })
}

/// The matrices that Muon updates a tensor as: weights of blocks, those of stages included, whose `stacked` leading axes
/// count layers; all templates (N, t, t) of a set as N rows; all scalers (K, N, r, c) of a part as N rows. None for
/// depthwise filters.
fn matrices(name: &str, t: &Tensor, stacked: Option<usize>) -> Option<Matrices> {
    let one = |rows| Matrices { stacked: 0, rows };
    match (name, stacked) {
        _ if name.starts_with("templates.") => Some(one(0)),
        _ if name.starts_with("bank.") || name.starts_with("scalers.") => Some(one(1)),
        (_, Some(stacked)) if name.contains("blocks.") => {
            let depthwise = t.rank() - stacked > 2 && t.dims()[stacked + 1] == 1;
            (!depthwise).then_some(Matrices {
                stacked,
                rows: stacked,
            })
        }
        _ => None,
    }
}

/// The micro-batch that a loss is computed on.
pub struct LossInput<'a, B> {
    /// Its examples.
    pub batch: &'a B,
    /// The network's input, on the device.
    pub input: &'a Tensor,
    /// Its place in the step.
    pub part: &'a MicroBatch,
}

/// A trainable model: its values, its loss and its evaluation.
pub trait Trainable {
    /// The batches that it trains on.
    type Batch;

    /// The initial values, on the device.
    fn variables(&self, device: &Device) -> Result<Vec<Variable>>;

    /// The loss on a micro-batch.
    fn loss(&self, live: &Parameters, on: &LossInput<Self::Batch>) -> candle_core::Result<Tensor>;

    /// Projects the variables to their allowed values after step `step`, counted from 0. By default, all are allowed.
    fn constrain(&self, _: &Parameters, _step: u64) -> candle_core::Result<()> {
        Ok(())
    }

    /// Evaluates the given values.
    fn score(&self, values: &Weights) -> Result<Scores>;

    /// Evaluates the values after some of the steps; if steps train several models, each by name, the most
    /// informative last.
    fn scores_at(&self, values: &Weights, _step: u64) -> Result<Vec<(String, Scores)>> {
        Ok(vec![(String::new(), self.score(values)?)])
    }

    /// The fraction of the work of all `steps` that is done after `step` of them.
    fn share_done(&self, step: u64, steps: u64) -> f64 {
        step as f64 / steps.max(1) as f64
    }

    /// Passes in addition to the steps, after `step` of all `steps`. None by default.
    fn passes(&self, _step: u64, _steps: u64) -> Passes {
        Passes::default()
    }
}

/// A training: its data, its settings, and when it is tested.
pub struct TrainRun<'a, D> {
    /// Label of the progress report.
    pub label: &'a str,
    /// The training data.
    pub data: &'a D,
    /// The resolved settings.
    pub resolved: &'a Resolved,
    /// True if it is tested after every epoch, not only at the end.
    pub every_epoch: bool,
}

/// The values during training.
pub struct Parameters {
    /// The variables of the optimiser.
    pub variables: Vec<Variable>,
    /// The same as a weight map that tracks gradients, except for frozen ones.
    pub weights: Weights,
}

impl Parameters {
    /// The parameters with these variables.
    pub fn new(variables: Vec<Variable>) -> Parameters {
        let tensor = |v: &Variable| match v.rate.is_none() {
            true => v.var.as_detached_tensor(), // shares the storage, so follows later updates
            false => v.var.as_tensor().clone(),
        };
        let named = variables.iter().map(|v| (v.name.clone(), tensor(v)));
        Parameters {
            weights: named.collect(),
            variables,
        }
    }
}

/// The result of training.
pub struct Outcome {
    /// The trained values: the EMA of the weights if kept, else the variables.
    pub values: Weights,
    /// Final accuracy, if there was anything to test on.
    pub scores: Option<Scores>,
    /// Accuracy after each epoch.
    pub curve: Vec<(f64, f64)>,
    /// Steps taken: all, unless patience or time ran out.
    pub steps: u64,
    /// Passes over the training examples in these steps.
    pub epochs: f64,
    /// Why training stopped before its last step, if it did.
    pub stopped: Option<String>,
    /// Time profile, if requested.
    pub profile: Option<Value>,
}

/// The time profile of a training on this many images, as printed in a result.
fn profiled(times: &Profile, images: u64) -> Value {
    let total = times.total.as_secs_f64().max(1e-9);
    let rounded = |value: f64| (1e6 * value).round() / 1e6;
    let row = |(name, time): &(&str, Duration)| {
        let seconds = time.as_secs_f64();
        json!({ "part": name, "seconds": rounded(seconds), "share": rounded(seconds / total) })
    };
    json!({
        "seconds": rounded(total),
        "images_per_second": (images as f64 / total).round(),
        "parts": times.parts.iter().map(row).collect::<Vec<_>>(),
    })
}

impl Outcome {
    /// Adds to a result why training stopped early, if it did, and the time profile, if requested.
    pub fn tell(&self, result: &mut Value) {
        if let Some(why) = &self.stopped {
            result["stopped"] = json!(why);
        }
        if let Some(profile) = &self.profile {
            result["profile"] = profile.clone();
        }
    }
}

/// Trains, and logs and saves in `run`, if there is one. An interruption is an error, once the state is saved.
pub fn train<T, D>(
    trainable: &T,
    train_run: &TrainRun<D>,
    run: Option<&mut RunDir>,
    options: &Options,
) -> Result<Outcome>
where
    T: Trainable,
    D: TrainingData<Batches: Batches<Batch = T::Batch>>,
{
    let (label, resolved) = (train_run.label, train_run.resolved);
    let batches = train_run.data.batches();
    let context = &options.context;
    let interruption = context.interruption();
    if options.profile {
        profile::begin();
    }
    let live = Parameters::new(trainable.variables(context.device())?);
    let (mut observer, mut state) = Observer::begin(trainable, train_run, &live, run, options)?;
    let first = state.step;
    observer.stop_early(state.step);
    if state.step < resolved.steps && observer.stopped.is_none() {
        let saving = observer.run.is_some().then(|| interruption.saving());
        let (steps, batch) = (resolved.steps, batches.batch_size());
        detail(|| {
            let values: usize = live.variables.iter().map(|v| v.var.elem_count()).sum();
            format!("{label}: steps {first} to {steps} of batch {batch}, {values} values")
        });
        let mut report = Report::new(label, state.step, resolved.steps, options.verbosity);
        observer.since = (Instant::now(), state.step);
        let done = wave_train::fit(
            batches,
            context.ranks(),
            Hyperparameters {
                schedule: resolved.schedule,
                clip: Some(resolved.optimisation.clip),
                ema_decay: resolved.ema,
                micro_batches: resolved.optimisation.accumulate,
            },
            &live.variables,
            &mut state,
            |batch, input, part| trainable.loss(&live, &LossInput { batch, input, part }),
            |progress, state| {
                trainable.constrain(&live, progress.step.saturating_sub(1))?;
                let flow = observer.observe(progress, state, &mut report);
                flow.map_err(|e| e.into_boxed_dyn_error())
            },
        );
        match done {
            // Interrupted while outputs of an ancestor were computed at the start of an epoch.
            Err(TrainError::Tensor(_)) if interruption.requested() => {
                return Err(TrainError::Interrupted(state.step).into());
            }
            done => done?,
        }
        drop(saving);
        if context.interrupted() {
            return Err(TrainError::Interrupted(state.step).into());
        }
        detail(|| format!("{label}: training finished"));
    }
    let mut outcome = observer.finish(&state)?;
    let images = (state.step - first) * batches.batch_size() as u64;
    outcome.profile = profile::end().map(|times| profiled(&times, images));
    Ok(outcome)
}

/// The random generator of one step, the same when the step is repeated.
pub fn step_generator(seed: u64, step: u64) -> rand_chacha::ChaCha8Rng {
    use rand::SeedableRng;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(step.wrapping_add(1));
    rng
}
