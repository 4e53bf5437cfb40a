//! What the trained stages share: settings resolved, a loop that logs, evaluates and saves.

use crate::checkpoint::Best;
use crate::data::Data;
use crate::device::{device, place};
use crate::error::request;
use crate::interrupt::{INTERRUPTED, Saving};
use crate::progress::{Report, Verbosity};
use crate::ranks::{self, ranks};
use crate::run_dir::{self, RunDir};
use crate::settings::{self, Duration, Training};
use crate::terminal::detail;
use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wave_models::Weights;
use wave_ops::Mode;
use wave_train::{
    Batches, Flow, Hyperparameters, MicroBatch, Progress, Rate, Schedule, Scores, State,
    TrainError, Variable,
};

/// Steps between two lines of the log.
const LOG_EVERY: u64 = 20;

/// What a stage does where the settings are silent.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// How long to train.
    pub duration: Duration,
    /// Peak learning rate.
    pub lr: f64,
    /// Weight decay of matrices.
    pub weight_decay: f64,
}

/// What a stage trains on, as the loop sees it.
pub trait TrainingData {
    /// What makes its batches.
    type Batches: Batches;

    /// Training batches.
    fn batches(&self) -> &Self::Batches;

    /// Whether there is anything to test on.
    fn has_tests(&self) -> bool;

    /// Whether examples are mixed in pairs, which stay together when a step is computed in parts.
    fn in_pairs(&self) -> bool;
}

impl TrainingData for Data {
    type Batches = wave_data::Loader;

    fn batches(&self) -> &wave_data::Loader {
        &self.loader
    }

    fn has_tests(&self) -> bool {
        !self.tests.indices.is_empty()
    }

    fn in_pairs(&self) -> bool {
        self.augment.mixing.is_some()
    }
}

/// Training settings with every gap filled.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Steps in all.
    pub steps: u64,
    /// The learning rate over them.
    pub schedule: Schedule,
    /// Weight decay of matrices.
    pub weight_decay: f32,
    /// Largest norm of the gradient.
    pub clip: f64,
    /// Decay of the moving average, if one is kept.
    pub ema: Option<f64>,
    /// Label smoothing.
    pub label_smoothing: f32,
    /// Drop-path rate of the last layer.
    pub drop_path: f64,
    /// Learning-rate factor from each layer to the one below.
    pub layer_decay: f64,
    /// Steps between two checkpoints within an epoch.
    pub checkpoint_steps: Option<u64>,
    /// Time between two checkpoints, if they are to follow it.
    pub checkpoint_every: Option<std::time::Duration>,
    /// Whether the values that tested best are kept, in the place of the last.
    pub keep_best: bool,
    /// Parts that a step is computed in.
    pub accumulate: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// How a transformer's blocks are computed.
    pub mode: Mode,
}

impl Resolved {
    /// Fills the gaps.
    pub fn new(
        training: &Training,
        defaults: Defaults,
        data: &impl TrainingData,
    ) -> Result<Resolved> {
        training.validate()?;
        let per_epoch = data.batches().steps_per_epoch();
        let steps = training.duration(defaults.duration)?.steps(per_epoch);
        let warmup = match training.warmup_epochs {
            Some(epochs) => (epochs * per_epoch as f64).round() as u64,
            None => (steps / 20).max(1),
        };
        if warmup > steps && steps > 0 {
            return Err(request(format!(
                "the warm-up of {warmup} steps is longer than the training of {steps}; lower \
                 warmup_epochs"
            )));
        }
        let schedule = Schedule {
            peak: training.lr.unwrap_or(defaults.lr),
            steps,
            warmup,
            floor: training.min_lr_ratio.unwrap_or(0.01),
        };
        Ok(Resolved {
            steps,
            schedule,
            weight_decay: training.weight_decay.unwrap_or(defaults.weight_decay) as f32,
            clip: training.clip.unwrap_or(1.0),
            ema: training.ema.filter(|decay| *decay > 0.0),
            label_smoothing: training.label_smoothing.unwrap_or(0.0) as f32,
            drop_path: training.drop_path.unwrap_or(0.0),
            layer_decay: training.layer_decay.unwrap_or(1.0),
            checkpoint_steps: training.checkpoint_steps.filter(|n| *n > 0),
            checkpoint_every: checkpoint_every(training.checkpoint_minutes)?,
            keep_best: match training.keep.as_deref().unwrap_or("last") {
                "last" => false,
                "best" => true,
                other => return Err(request(format!("keep = {other}; expected last or best"))),
            },
            accumulate: parts(training, data)?,
            seed: training.seed.unwrap_or(0),
            mode: settings::mode(training.precision.as_deref(), training.recompute)?,
        })
    }
}

impl Resolved {
    /// How long it trains, for a plan.
    pub fn describe(&self, data: &impl TrainingData) -> String {
        let batches = data.batches();
        let epochs = self.steps as f64 / batches.steps_per_epoch() as f64;
        let of = match self.accumulate {
            1 => String::new(),
            parts => format!(" in {parts} parts each"),
        };
        format!(
            "{} steps with batch = {}{of} ({epochs:.1} epochs)\n",
            self.steps,
            batches.batch_size()
        )
    }
}

/// Time between two checkpoints, if they are to follow it; 10 minutes where nothing is said.
pub fn checkpoint_every(minutes: Option<f64>) -> Result<Option<std::time::Duration>> {
    let minutes = minutes.unwrap_or(10.0);
    let every = std::time::Duration::try_from_secs_f64(60.0 * minutes).map_err(|_| {
        request(format!(
            "checkpoint_minutes = {minutes}; expected a number from 0 on"
        ))
    })?;
    Ok((!every.is_zero()).then_some(every))
}

/// Parts that a step is computed in, on each rank.
fn parts(training: &Training, data: &impl TrainingData) -> Result<usize> {
    let parts = training.accumulate.unwrap_or(1);
    let share = data.batches().share(ranks().rank(), ranks().size())?;
    let examples = share.rows().len();
    if !examples.is_multiple_of(parts) {
        let of = match ranks().size() {
            1 => format!("batch of {examples}"),
            n => format!("{examples} that each of {n} ranks has of a batch"),
        };
        return Err(request(format!(
            "accumulate = {parts} does not divide the {of} into equal parts"
        )));
    }
    if parts > 1 && data.in_pairs() && (examples / parts) % 2 == 1 {
        return Err(request(format!(
            "accumulate = {parts} leaves parts of {} images; mixup and cutmix mix pairs, and need \
             an even number",
            examples / parts
        )));
    }
    Ok(parts)
}

/// A variable of a network, on the chosen device, with the learning rate and weight decay that its
/// name calls for.
///
/// Decayed are matrices and kernels: not biases, norms, positions or tokens. `depth` is that of a
/// stacked weight whose rows are layers, for the layer-wise decay of the rate.
pub fn variable(name: &str, t: &Tensor, settings: &Resolved, depth: usize) -> Result<Variable> {
    let decayed = name.ends_with(".weight") && !name.contains("norm") && {
        let rank =
            t.rank() - usize::from(name.starts_with("blocks.") && depth > 0 && t.dim(0)? == depth);
        rank >= 2
    };
    let rate = if settings.layer_decay == 1.0 || depth == 0 {
        Rate::Uniform(1.0)
    } else if name.starts_with("blocks.") {
        let factor = |l| settings.layer_decay.powi((depth - l) as i32) as f32;
        Rate::ByLayer((0..depth).map(factor).collect())
    } else if name.starts_with("head") || name.contains("norm.") {
        Rate::Uniform(1.0)
    } else {
        Rate::Uniform(settings.layer_decay.powi(depth as i32 + 1) as f32)
    };
    Ok(Variable {
        name: name.to_string(),
        var: Var::from_tensor(&t.to_device(device())?)?,
        rate,
        weight_decay: if decayed { settings.weight_decay } else { 0.0 },
    })
}

/// The variables as a weight map that gradients flow to, except to frozen ones.
pub fn tracked(variables: &[Variable]) -> Weights {
    let tensor = |v: &Variable| match v.rate.is_frozen() {
        true => v.var.as_detached_tensor(), // of the same values, whatever becomes of them
        false => v.var.as_tensor().clone(),
    };
    variables
        .iter()
        .map(|v| (v.name.clone(), tensor(v)))
        .collect()
}

/// What training produced.
pub struct Outcome {
    /// The trained values: the moving averages if they were kept, else the variables.
    pub values: Weights,
    /// Accuracy at the end, if there was anything to measure it on.
    pub scores: Option<Scores>,
    /// Accuracy after each epoch.
    pub curve: Vec<(f64, f64)>,
}

/// One training, with its surroundings.
pub struct Job<'a, D = Data> {
    /// Shown beside the progress.
    pub label: String,
    /// Settings.
    pub settings: &'a Resolved,
    /// What to train on.
    pub data: &'a D,
    /// What to train.
    pub variables: &'a [Variable],
    /// Where to log and save, if anywhere.
    pub run: Option<&'a mut RunDir>,
    /// Continue from the saved state.
    pub resume: bool,
    /// How much to say.
    pub verbosity: Verbosity,
    /// Whether to test after every epoch, not only at the end.
    pub every_epoch: bool,
}

/// Trains: `loss` is the objective, `score` measures given values on what there is to test on.
pub fn train<D: TrainingData>(
    mut job: Job<D>,
    loss: impl FnMut(
        &<D::Batches as Batches>::Batch,
        &Tensor,
        &MicroBatch,
    ) -> candle_core::Result<Tensor>,
    score: impl Fn(&Weights) -> Result<Scores>,
) -> Result<Outcome> {
    let Resolved {
        steps,
        schedule,
        clip,
        ema,
        accumulate,
        ..
    } = *job.settings;
    let variables = job.variables;
    let restored = match (&mut job.run, job.resume) {
        (Some(run), true) => run.restore(variables)?,
        _ => None,
    };
    let (mut state, mut best) = match restored {
        Some(restored) => restored,
        None => (State::new(variables, ema.is_some())?, None),
    };
    state = state.of_first(variables, ranks())?;
    best = Best::of_first(best, variables)?;
    let values = |state: &State| -> Result<Weights> {
        Ok(match state.averages(variables)? {
            Some(averages) => averages,
            None => variables
                .iter()
                .map(|v| Ok((v.name.clone(), v.var.as_detached_tensor())))
                .collect::<Result<_>>()?,
        })
    };
    let tests = job.data.has_tests();
    let mut curve = Vec::new();
    if state.step < steps {
        let saving = job.run.is_some().then(Saving::begin);
        detail(|| {
            let values: usize = variables.iter().map(|v| v.var.elem_count()).sum();
            let batch = job.data.batches().batch_size();
            let from = state.step;
            format!(
                "{}: steps {from} to {steps} of batch {batch}, {values} values",
                job.label
            )
        });
        let mut report = Report::new(&job.label, state.step, steps, job.verbosity);
        let batch = job.data.batches().batch_size();
        let mut since = (Instant::now(), state.step);
        let mut saved = Instant::now();
        let mut last_score = String::new();
        let run = &mut job.run;
        let observe = |p: &Progress, state: &State| -> Result<Flow> {
            let message = format!("loss {:.4}, {last_score}", p.loss);
            report.step(p.step, batch, &message);
            if !p.loss.is_finite() || !p.gradient_norm.is_finite() {
                report.line(&format!(
                    "step {}: loss {}, gradient norm {}; skipped, and the learning rate halved",
                    p.step, p.loss, p.gradient_norm
                ));
            }
            if let Some(run) = run.as_deref_mut()
                && (p.step.is_multiple_of(LOG_EVERY) || p.epoch_ends)
            {
                let seconds = since.0.elapsed().as_secs_f64().max(1e-9);
                let images = (p.step - since.1) as f64 * batch as f64;
                run.log(&run_dir::step_entry(p, images / seconds))?;
                since = (Instant::now(), p.step);
            }
            if p.epoch_ends && job.every_epoch && tests && p.step < steps {
                let now = values(state)?;
                let scores = score(&now)?;
                let better = best.as_ref().is_none_or(|b| scores.top1 > b.top1);
                if job.settings.keep_best && better {
                    let kept = Best::copy(&now, scores.top1)?;
                    if let Some(run) = run.as_deref_mut() {
                        run.keep_best(&kept)?;
                    }
                    best = Some(kept);
                }
                last_score = format!("top-1 {:.2} %, ", 100.0 * scores.top1);
                curve.push((p.epoch, scores.top1));
                report.line(&format!(
                    "epoch {:.2}: top-1 {:.2} %, test loss {:.4}",
                    p.epoch,
                    100.0 * scores.top1,
                    scores.loss
                ));
                if let Some(run) = run.as_deref_mut() {
                    run.log(&score_entry(p.step, p.epoch, &scores))?;
                }
            }
            let stop = ranks::interrupted();
            let Resolved {
                checkpoint_steps,
                checkpoint_every,
                ..
            } = *job.settings;
            let due =
                stop || p.epoch_ends || checkpoint_steps.is_some_and(|n| p.step.is_multiple_of(n));
            if run.is_some() && due {
                state.check(variables, ranks())?; // here all ranks come at the same step
            }
            let late = checkpoint_every.is_some_and(|time| saved.elapsed() >= time);
            if let Some(run) = run.as_deref_mut()
                && (due || late)
                && run.save(state, variables, stop)?
            {
                saved = Instant::now();
            }
            if stop {
                ranks().wait(); // the first one to end ends all, and has to save before
            }
            Ok(if stop { Flow::Stop } else { Flow::Continue })
        };
        let mut observe = observe;
        let batches = job.data.batches();
        let observe = |p: &Progress, s: &State| observe(p, s).map_err(|e| e.into_boxed_dyn_error());
        let hyperparameters = Hyperparameters {
            schedule,
            clip: Some(clip),
            ema_decay: ema,
            micro_batches: accumulate,
        };
        let done = wave_train::fit(
            batches,
            ranks(),
            hyperparameters,
            variables,
            &mut state,
            loss,
            observe,
        );
        match done {
            // While outputs of an ancestor were computed ahead, at the start of an epoch.
            Err(TrainError::Tensor(_)) if INTERRUPTED.load(Ordering::Relaxed) => {
                return Err(TrainError::Interrupted(state.step).into());
            }
            done => done?,
        }
        drop(saving);
        if ranks::interrupted() {
            return Err(TrainError::Interrupted(state.step).into()); // in the last step
        }
        detail(|| format!("{}: trained", job.label));
    }
    let mut values = values(&state)?;
    let mut scores = tests.then(|| score(&values)).transpose()?;
    if let Some(scores) = &scores {
        let epoch = steps as f64 / job.data.batches().steps_per_epoch() as f64;
        curve.push((epoch, scores.top1));
        if let Some(run) = &mut job.run {
            run.log(&score_entry(steps, epoch, scores))?;
        }
    }
    if let (Some(best), Some(last)) = (best, scores)
        && best.top1 > last.top1
    {
        values = place(&best.values)?;
        scores = Some(score(&values)?);
    }
    let values = values
        .into_iter()
        .map(|(name, t)| Ok((name, t.to_device(&Device::Cpu)?)))
        .collect::<Result<_>>()?;
    Ok(Outcome {
        values,
        scores,
        curve,
    })
}

fn score_entry(step: u64, epoch: f64, scores: &Scores) -> serde_json::Value {
    json!({
        "step": step,
        "epoch": epoch,
        "top1": scores.top1,
        "top5": scores.top5,
        "test_loss": scores.loss,
    })
}

/// The generator of the size that a step of an elastic training draws.
pub fn size_generator(seed: u64, step: u64) -> rand_chacha::ChaCha8Rng {
    step_generator(seed ^ 0xe1a5, step)
}

/// A generator for everything random in one step: the same when the step is repeated.
pub fn step_generator(seed: u64, step: u64) -> rand_chacha::ChaCha8Rng {
    use rand::SeedableRng;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(step.wrapping_add(1));
    rng
}
