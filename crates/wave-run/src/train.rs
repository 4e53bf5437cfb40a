//! The training loop of all stages, which logs, evaluates and saves, and its resolved settings.

use crate::checkpoint::Best;
use crate::data::Data;
use crate::device::{device, place};
use crate::error::request;
use crate::interrupt::{INTERRUPTED, Saving};
use crate::progress::Report;
use crate::ranks::{self, ranks};
use crate::run_dir::{self, Options, RunDir};
use crate::settings::{
    self, Checkpointing, Duration, Keep, OfTransformers, Optimisation, Training,
};
use crate::terminal::detail;
use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use serde_json::json;
use std::ops::Deref;
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

/// Values of a stage for settings that are not given.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Duration of training.
    pub duration: Duration,
    /// Peak learning rate.
    pub lr: f64,
    /// Weight decay of matrices.
    pub weight_decay: f64,
}

/// The data of a stage, as the loop sees it.
pub trait TrainingData {
    /// Source of its batches.
    type Batches: Batches;

    /// Training batches.
    fn batches(&self) -> &Self::Batches;

    /// Whether there is anything to test on.
    fn has_tests(&self) -> bool;

    /// Whether examples are mixed in pairs, which stay together when a step is divided into parts.
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

/// The settings of training, with every gap filled that the data does not fill.
#[derive(Clone, Debug)]
pub struct TrainingPlan {
    /// Duration of training.
    pub duration: Duration,
    /// Epochs of the rising learning rate; a twentieth of the training if `None`.
    pub warmup_epochs: Option<f64>,
    /// Peak learning rate.
    pub lr: f64,
    /// Last learning rate as a fraction of the peak.
    pub min_lr_ratio: f64,
    /// Weight decay of matrices.
    pub weight_decay: f32,
    /// Largest norm of the gradient.
    pub clip: f64,
    /// Decay of the moving average, if kept.
    pub ema: Option<f64>,
    /// Label smoothing.
    pub label_smoothing: f32,
    /// Drop-path rate of the last layer.
    pub drop_path: f64,
    /// Learning-rate factor from each layer to the one below.
    pub layer_decay: f64,
    /// Steps between two checkpoints within an epoch.
    pub checkpoint_steps: Option<u64>,
    /// Time between two checkpoints, if any.
    pub checkpoint_every: Option<std::time::Duration>,
    /// Whether the values that tested best are kept instead of the last.
    pub keep_best: bool,
    /// Epochs in a row without a better test after which training stops.
    pub patience: Option<usize>,
    /// Time after which training stops.
    pub time_limit: Option<std::time::Duration>,
    /// Parts that a step is computed in.
    pub accumulate: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Precision and recomputation of a transformer's blocks.
    pub mode: Mode,
}

impl TrainingPlan {
    /// The plan of these settings; `transformer` are those of a transformer.
    ///
    /// # Errors
    /// If a value is out of its range, or this machine cannot compute that way.
    pub fn new(
        optimisation: &Optimisation,
        transformer: &OfTransformers,
        saving: &Checkpointing,
        defaults: Defaults,
    ) -> Result<TrainingPlan> {
        settings::check(optimisation)?;
        settings::check(transformer)?;
        settings::check(saving)?;
        Ok(TrainingPlan {
            duration: optimisation.duration(defaults.duration)?,
            warmup_epochs: optimisation.warmup_epochs,
            lr: optimisation.lr.unwrap_or(defaults.lr),
            min_lr_ratio: optimisation.min_lr_ratio.unwrap_or(0.01),
            weight_decay: optimisation.weight_decay.unwrap_or(defaults.weight_decay) as f32,
            clip: optimisation.clip.unwrap_or(1.0),
            ema: optimisation.ema.filter(|decay| *decay > 0.0),
            label_smoothing: optimisation.label_smoothing.unwrap_or(0.0) as f32,
            drop_path: transformer.drop_path.unwrap_or(0.0),
            layer_decay: transformer.layer_decay.unwrap_or(1.0),
            checkpoint_steps: saving.checkpoint_steps.filter(|n| *n > 0),
            checkpoint_every: saving.every()?,
            keep_best: saving.keep == Some(Keep::Best),
            patience: optimisation.patience,
            time_limit: optimisation
                .time_limit
                .map(|minutes| std::time::Duration::from_secs_f64(60.0 * minutes)),
            accumulate: optimisation.accumulate.unwrap_or(1),
            seed: optimisation.seed.unwrap_or(0),
            mode: settings::mode(transformer.precision, transformer.recompute)?,
        })
    }

    /// The plan of a training on images.
    ///
    /// # Errors
    /// As [`TrainingPlan::new`].
    pub fn of_images(training: &Training, defaults: Defaults) -> Result<TrainingPlan> {
        let Training {
            optimisation,
            transformer,
            saving,
            ..
        } = training;
        TrainingPlan::new(optimisation, transformer, saving, defaults)
    }

    /// Steps and schedule on this data.
    ///
    /// # Errors
    /// If the warm-up is longer than the training, or a step cannot be divided into equal parts.
    pub fn resolve(&self, data: &impl TrainingData) -> Result<Resolved> {
        let per_epoch = data.batches().steps_per_epoch();
        let steps = self.duration.steps(per_epoch);
        let warmup = match self.warmup_epochs {
            Some(epochs) => (epochs * per_epoch as f64).round() as u64,
            None => (steps / 20).max(1),
        };
        if warmup > steps && steps > 0 {
            return Err(request(format!(
                "the warm-up of {warmup} steps is longer than the training of {steps}; lower \
                 warmup_epochs"
            )));
        }
        check_parts(self.accumulate, data)?;
        if let (Some(n), false) = (self.patience, data.has_tests()) {
            return Err(request(format!(
                "patience = {n}: there is nothing to test on; give --hold-out N, or leave it out"
            )));
        }
        Ok(Resolved {
            plan: self.clone(),
            steps,
            schedule: Schedule {
                peak: self.lr,
                steps,
                warmup,
                floor: self.min_lr_ratio,
            },
        })
    }
}

/// A [`TrainingPlan`] on its data.
#[derive(Clone, Debug)]
pub struct Resolved {
    plan: TrainingPlan,
    /// Total number of steps.
    pub steps: u64,
    /// Learning rate over the steps.
    pub schedule: Schedule,
}

impl Deref for Resolved {
    type Target = TrainingPlan;

    fn deref(&self) -> &TrainingPlan {
        &self.plan
    }
}

impl Resolved {
    /// Passes over the training images.
    pub fn epochs(&self, data: &impl TrainingData) -> f64 {
        self.steps as f64 / data.batches().steps_per_epoch() as f64
    }

    /// Duration, for a plan.
    pub fn describe(&self, data: &impl TrainingData) -> String {
        let of = match self.accumulate {
            1 => String::new(),
            parts => format!(" in {parts} parts each"),
        };
        format!(
            "{} steps with batch = {}{of} ({:.1} epochs)\n",
            self.steps,
            data.batches().batch_size(),
            self.epochs(data)
        )
    }
}

/// Checks that the examples of a step divide into equal parts on each rank.
fn check_parts(parts: usize, data: &impl TrainingData) -> Result<()> {
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
    Ok(())
}

/// A variable of a network on the chosen device, with the learning rate and weight decay of its name.
///
/// Weight decay applies to matrices and kernels, not to biases, norms, positions or tokens. `depth` is
/// that of a stacked weight whose rows are layers, for the layer-wise decay of the rate.
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

/// The variables as a weight map that tracks gradients, except of frozen ones.
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

/// A thing to train: its values, its objective and its measure.
pub trait Trainee {
    /// The batches that it is trained on.
    type Batch;

    /// The initial values, on the chosen device.
    ///
    /// # Errors
    /// If they do not fit on the device.
    fn variables(&self) -> Result<Vec<Variable>>;

    /// The objective on a part of a step's batch.
    ///
    /// # Errors
    /// Those of its operators.
    fn loss(
        &self,
        live: &Live,
        batch: &Self::Batch,
        input: &Tensor,
        part: &MicroBatch,
    ) -> candle_core::Result<Tensor>;

    /// Measures given values.
    ///
    /// # Errors
    /// If a test example cannot be read.
    fn score(&self, values: &Weights) -> Result<Scores>;
}

/// A training: on which data, for how long, and when it is tested.
pub struct Course<'a, D> {
    /// Shown beside the progress.
    pub label: &'a str,
    /// What it trains on.
    pub data: &'a D,
    /// How.
    pub resolved: &'a Resolved,
    /// Whether it is tested after every epoch, not only at the end.
    pub every_epoch: bool,
}

/// The values during training.
pub struct Live {
    /// The variables of the optimiser.
    pub variables: Vec<Variable>,
    /// The same as a weight map that tracks gradients, except of frozen ones.
    pub weights: Weights,
}

impl Live {
    fn new(variables: Vec<Variable>) -> Live {
        Live {
            weights: tracked(&variables),
            variables,
        }
    }
}

/// The result of training.
pub struct Outcome {
    /// The trained values: the moving averages if kept, else the variables.
    pub values: Weights,
    /// Final accuracy, if there was anything to test on.
    pub scores: Option<Scores>,
    /// Accuracy after each epoch.
    pub curve: Vec<(f64, f64)>,
    /// Steps taken: all, unless patience or time ran out.
    pub steps: u64,
    /// Passes over the training examples in them.
    pub epochs: f64,
    /// Why training stopped before its last step, if it did.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Says in a result why training stopped, if it did before its last step.
    pub fn tell_stop(&self, result: &mut serde_json::Value) {
        if let Some(why) = &self.stopped {
            result["stopped"] = json!(why);
        }
    }
}

/// Trains, and logs and saves in `run`, if there is one.
///
/// # Errors
/// If it is interrupted, having saved its state, or the work fails.
pub fn train<T, D>(
    trainee: &T,
    course: &Course<D>,
    run: Option<&mut RunDir>,
    options: Options,
) -> Result<Outcome>
where
    T: Trainee,
    D: TrainingData<Batches: Batches<Batch = T::Batch>>,
{
    let Course {
        label, resolved, ..
    } = *course;
    let batches = course.data.batches();
    let live = Live::new(trainee.variables()?);
    let mut observer = Observer::new(trainee, course, &live, run);
    let mut state = observer.begin(options.resume)?;
    observer.stop_early(state.step);
    if state.step < resolved.steps && observer.stopped.is_none() {
        let saving = observer.run.is_some().then(Saving::begin);
        detail(|| {
            let values: usize = live.variables.iter().map(|v| v.var.elem_count()).sum();
            format!(
                "{label}: steps {} to {} of batch {}, {values} values",
                state.step,
                resolved.steps,
                batches.batch_size()
            )
        });
        let mut report = Report::new(label, state.step, resolved.steps, options.verbosity);
        observer.since = (Instant::now(), state.step);
        let done = wave_train::fit(
            batches,
            ranks(),
            Hyperparameters {
                schedule: resolved.schedule,
                clip: Some(resolved.clip),
                ema_decay: resolved.ema,
                micro_batches: resolved.accumulate,
            },
            &live.variables,
            &mut state,
            |batch, input, part| trainee.loss(&live, batch, input, part),
            |progress, state| {
                let flow = observer.observe(progress, state, &mut report);
                flow.map_err(|e| e.into_boxed_dyn_error())
            },
        );
        match done {
            // Interrupted while outputs of an ancestor were computed at the start of an epoch.
            Err(TrainError::Tensor(_)) if INTERRUPTED.load(Ordering::Relaxed) => {
                return Err(TrainError::Interrupted(state.step).into());
            }
            done => done?,
        }
        drop(saving);
        if ranks::interrupted() {
            return Err(TrainError::Interrupted(state.step).into()); // in the last step
        }
        detail(|| format!("{label}: trained"));
    }
    observer.finish(&state)
}

/// What goes on beside a training: its log, tests and checkpoints.
struct Observer<'a, T, D> {
    trainee: &'a T,
    course: &'a Course<'a, D>,
    live: &'a Live,
    run: Option<&'a mut RunDir>,
    best: Option<Best>,
    curve: Vec<(f64, f64)>,
    last_score: String,
    /// The last test: its step and scores.
    tested: Option<(u64, Scores)>,
    began: Instant,
    /// Why training ends here, if it does.
    stopped: Option<String>,
    /// When the log last had a line, and the step there.
    since: (Instant, u64),
    /// Time of the last checkpoint.
    saved: Instant,
}

impl<'a, T: Trainee, D: TrainingData> Observer<'a, T, D> {
    fn new(
        trainee: &'a T,
        course: &'a Course<'a, D>,
        live: &'a Live,
        run: Option<&'a mut RunDir>,
    ) -> Observer<'a, T, D> {
        Observer {
            trainee,
            course,
            live,
            run,
            best: None,
            curve: Vec::new(),
            last_score: String::new(),
            tested: None,
            began: Instant::now(),
            stopped: None,
            since: (Instant::now(), 0),
            saved: Instant::now(),
        }
    }

    /// The initial state, or the saved one to resume from.
    fn begin(&mut self, resume: bool) -> Result<State> {
        let variables = &self.live.variables;
        let restored = match (&mut self.run, resume) {
            (Some(run), true) => run.restore(variables)?,
            _ => None,
        };
        let (state, best) = match restored {
            Some(restored) => restored,
            None => {
                let averaged = self.course.resolved.ema.is_some();
                (State::new(variables, averaged)?, None)
            }
        };
        if state.step > 0
            && let Some(run) = &self.run
        {
            self.curve = run.scores()?;
        }
        let state = state.of_first(variables, ranks())?;
        self.best = Best::of_first(best, variables)?;
        Ok(state)
    }

    fn observe(&mut self, progress: &Progress, state: &State, report: &mut Report) -> Result<Flow> {
        let p = progress;
        let batch = self.course.data.batches().batch_size();
        report.step(
            p.step,
            batch,
            &format!("loss {:.4}, {}", p.loss, self.last_score),
        );
        if !p.loss.is_finite() || !p.gradient_norm.is_finite() {
            report.line(&format!(
                "step {}: loss {}, gradient norm {}; skipped, and the learning rate halved",
                p.step, p.loss, p.gradient_norm
            ));
        }
        self.log(p, batch)?;
        let often = self.course.every_epoch || self.course.resolved.patience.is_some();
        let tests = often && self.course.data.has_tests();
        if tests && p.epoch_ends && p.step < self.course.resolved.steps {
            self.test(p, state, report)?;
        }
        let stop = ranks::interrupted();
        self.save(p, state, stop)?;
        if !stop && p.step < self.course.resolved.steps {
            self.stop_early(p.step);
        }
        if let Some(why) = &self.stopped {
            report.line(&format!("stopped: {why}"));
            return Ok(Flow::Finish);
        }
        if stop {
            ranks().wait(); // the first one to end ends all, and has to save before
        }
        Ok(if stop { Flow::Stop } else { Flow::Continue })
    }

    /// Says in [`Observer::stopped`] whether patience or time has run out; on all ranks alike.
    fn stop_early(&mut self, step: u64) {
        let TrainingPlan {
            patience,
            time_limit,
            ..
        } = **self.course.resolved;
        if patience.is_none() && time_limit.is_none() {
            return;
        }
        let best = self
            .curve
            .iter()
            .enumerate()
            .max_by(|(i, a), (j, b)| a.1.total_cmp(&b.1).then(j.cmp(i))); // the first of equals
        let idle = best.map_or(0, |(i, _)| self.curve.len() - 1 - i);
        let impatient = patience.is_some_and(|n| idle >= n);
        let late = time_limit.is_some_and(|limit| self.began.elapsed() >= limit);
        let steps = self.course.resolved.steps;
        if ranks().any(impatient) {
            self.stopped = Some(format!(
                "no better test in {} epochs, at step {step} of {steps}",
                patience.unwrap_or(0)
            ));
        } else if ranks().any(late) {
            self.stopped = Some(format!("time limit, at step {step} of {steps}"));
        }
    }

    fn log(&mut self, p: &Progress, batch: usize) -> Result<()> {
        let Some(run) = self.run.as_deref_mut() else {
            return Ok(());
        };
        if p.step.is_multiple_of(LOG_EVERY) || p.epoch_ends {
            let seconds = self.since.0.elapsed().as_secs_f64().max(1e-9);
            let images = (p.step - self.since.1) as f64 * batch as f64;
            run.log(&run_dir::step_entry(p, images / seconds))?;
            self.since = (Instant::now(), p.step);
        }
        Ok(())
    }

    /// Tests the current values, and keeps them if they are the best so far.
    fn test(&mut self, p: &Progress, state: &State, report: &Report) -> Result<()> {
        let now = self.values(state)?;
        let scores = self.trainee.score(&now)?;
        let better = self.best.as_ref().is_none_or(|b| scores.top1 > b.top1);
        if self.course.resolved.keep_best && better {
            let kept = Best::copy(&now, scores.top1)?;
            if let Some(run) = self.run.as_deref_mut() {
                run.keep_best(&kept)?;
            }
            self.best = Some(kept);
        }
        self.last_score = format!("top-1 {:.2} %, ", 100.0 * scores.top1);
        report.line(&format!(
            "epoch {:.2}: top-1 {:.2} %, test loss {:.4}",
            p.epoch,
            100.0 * scores.top1,
            scores.loss
        ));
        self.record(p.step, p.epoch, &scores)
    }

    fn record(&mut self, step: u64, epoch: f64, scores: &Scores) -> Result<()> {
        self.tested = Some((step, *scores));
        self.curve.push((epoch, scores.top1));
        match self.run.as_deref_mut() {
            Some(run) => run.log(&score_entry(step, epoch, scores)),
            None => Ok(()),
        }
    }

    /// Saves the state when it is due, and always where training is to `stop`.
    fn save(&mut self, p: &Progress, state: &State, stop: bool) -> Result<()> {
        let Some(run) = self.run.as_deref_mut() else {
            return Ok(());
        };
        let resolved = self.course.resolved;
        let every = |n: u64| p.step.is_multiple_of(n);
        let due = stop || p.epoch_ends || resolved.checkpoint_steps.is_some_and(every);
        if due {
            state.check(&self.live.variables, ranks())?; // here all ranks come at the same step
        }
        let passed = |time| self.saved.elapsed() >= time;
        let late = resolved.checkpoint_every.is_some_and(passed);
        if (due || late) && run.save(state, &self.live.variables, stop)? {
            self.saved = Instant::now();
        }
        Ok(())
    }

    /// The values, or their moving averages if kept.
    fn values(&self, state: &State) -> Result<Weights> {
        let variables = &self.live.variables;
        Ok(match state.averages(variables)? {
            Some(averages) => averages,
            None => variables
                .iter()
                .map(|v| (v.name.clone(), v.var.as_detached_tensor()))
                .collect(),
        })
    }

    /// Tests the last values, and returns the best instead if those were better.
    fn finish(mut self, state: &State) -> Result<Outcome> {
        let trainee = self.trainee;
        let mut values = self.values(state)?;
        let mut scores = None;
        let steps = state.step;
        let epochs = steps as f64 / self.course.data.batches().steps_per_epoch() as f64;
        if self.course.data.has_tests() {
            scores = match self.tested {
                Some((step, scores)) if step == steps => Some(scores),
                _ => {
                    let last = trainee.score(&values)?;
                    self.record(steps, epochs, &last)?;
                    Some(last)
                }
            };
        }
        if let (Some(best), Some(last)) = (&self.best, scores)
            && best.top1 > last.top1
        {
            values = place(&best.values)?;
            scores = Some(trainee.score(&values)?);
        }
        let values = values
            .into_iter()
            .map(|(name, t)| Ok((name, t.to_device(&Device::Cpu)?)))
            .collect::<Result<_>>()?;
        Ok(Outcome {
            values,
            scores,
            curve: self.curve,
            steps,
            epochs,
            stopped: self.stopped,
        })
    }
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

/// The random generator of the size that a step of an elastic training draws.
pub fn size_generator(seed: u64, step: u64) -> rand_chacha::ChaCha8Rng {
    step_generator(seed ^ 0xe1a5, step)
}

/// The random generator of one step, the same when the step is repeated.
pub fn step_generator(seed: u64, step: u64) -> rand_chacha::ChaCha8Rng {
    use rand::SeedableRng;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(step.wrapping_add(1));
    rng
}
