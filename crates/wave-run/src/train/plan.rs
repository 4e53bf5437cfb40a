//! Training settings: as given, with defaults filled in, and resolved for their data.

use crate::context::Context;
use crate::data::Data;
use crate::error::request;
use crate::recipe::means_nothing;
use crate::settings::{
    self, CheckpointingValues, Duration, Keep, LrSchedule, OfTransformersValues,
    OptimisationValues, PrecisionChoice, Training,
};
use anyhow::Result;
use std::ops::Deref;
use wave_ops::Mode;
use wave_train::{Batches, Schedule};

/// Defaults of a stage for settings that are not given.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Duration of training.
    pub duration: Duration,
    /// Peak learning rate.
    pub lr: f64,
    /// Weight decay of matrices.
    pub weight_decay: f64,
}

/// The data of a stage, as the training loop sees it.
pub trait TrainingData {
    /// Source of its batches.
    type Batches: Batches;

    /// Training batches.
    fn batches(&self) -> &Self::Batches;

    /// True if there is anything to test on.
    fn has_tests(&self) -> bool;

    /// True if examples are mixed in pairs, which must stay together when a step is divided into parts.
    fn in_pairs(&self) -> bool;

    /// The context; its ranks divide the batches among them.
    fn context(&self) -> &Context;
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

    fn context(&self) -> &Context {
        &self.tests.context
    }
}

/// The training settings with defaults filled in, except for values that depend on the data.
#[derive(Clone, Debug)]
pub struct TrainingPlan {
    /// Duration of training.
    pub duration: Duration,
    /// Warm-up epochs of the learning rate; a twentieth of the training if `None`.
    pub warmup_epochs: Option<f64>,
    /// Peak learning rate.
    pub lr: f64,
    /// Learning-rate schedule; `warmup_epochs` and `min_lr_ratio` are described for a cosine.
    pub lr_schedule: LrSchedule,
    /// Final learning rate as a fraction of the peak.
    pub min_lr_ratio: f64,
    /// Weight decay of matrices.
    pub weight_decay: f32,
    /// Gradient-norm clipping threshold.
    pub clip: f64,
    /// Decay of the EMA of the weights, if kept.
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
    /// True if the values with the best test accuracy are kept instead of the last.
    pub keep_best: bool,
    /// Epochs between two tests; 0 tests only at the end.
    pub test_epochs: u64,
    /// Training stops after this many consecutive tests without a better result.
    pub patience: Option<usize>,
    /// Time after which training stops.
    pub time_limit: Option<std::time::Duration>,
    /// Micro-batches of a step (gradient accumulation).
    pub accumulate: usize,
    /// Random seed.
    pub seed: u64,
    /// True if Muon updates matrices.
    pub muon: bool,
    /// Precision of a transformer's blocks.
    pub precision: PrecisionChoice,
    /// True if a transformer's activations are recomputed in the backward pass.
    pub recompute: bool,
}

impl TrainingPlan {
    /// The plan of these settings.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub fn new(training: &Training, defaults: Defaults) -> Result<TrainingPlan> {
        let Training {
            optimisation,
            transformer,
            saving,
            ..
        } = training.clone();
        settings::check(&optimisation)?;
        settings::check(&transformer)?;
        settings::check(&saving)?;
        let of_cosine = [
            ("warmup_epochs", optimisation.warmup_epochs),
            ("min_lr_ratio", optimisation.min_lr_ratio),
        ];
        let own = OptimisationValues::from(optimisation);
        let transformer = OfTransformersValues::from(transformer);
        let saving = CheckpointingValues::from(saving);
        let foreign = of_cosine.iter().find(|(_, value)| value.is_some());
        if let (LrSchedule::Triangular, Some((key, _))) = (own.lr_schedule, foreign) {
            return Err(means_nothing(key, "lr_schedule triangular"));
        }
        let duration = match (own.epochs, own.steps) {
            (Some(epochs), Some(steps)) => {
                return Err(request(format!(
                    "both epochs = {epochs} and steps = {steps} are given; keep one"
                )));
            }
            (Some(epochs), None) => Duration::Epochs(epochs),
            (None, Some(steps)) => Duration::Steps(steps),
            (None, None) => defaults.duration,
        };
        let minutes = |n: f64| std::time::Duration::from_secs_f64(60.0 * n);
        Ok(TrainingPlan {
            duration,
            warmup_epochs: own.warmup_epochs,
            lr: own.lr.unwrap_or(defaults.lr),
            lr_schedule: own.lr_schedule,
            min_lr_ratio: own.min_lr_ratio,
            weight_decay: own.weight_decay.unwrap_or(defaults.weight_decay) as f32,
            clip: own.clip,
            ema: own.ema.filter(|decay| *decay > 0.0),
            label_smoothing: own.label_smoothing as f32,
            drop_path: transformer.drop_path,
            layer_decay: transformer.layer_decay,
            checkpoint_steps: saving.checkpoint_steps.filter(|n| *n > 0),
            checkpoint_every: Some(minutes(saving.checkpoint_minutes)).filter(|t| !t.is_zero()),
            keep_best: saving.keep == Keep::Best,
            test_epochs: own.test_epochs,
            patience: own.patience,
            time_limit: own.time_limit.map(minutes),
            accumulate: own.accumulate,
            seed: own.seed,
            muon: transformer.muon.unwrap_or(false),
            precision: transformer.precision,
            recompute: transformer.recompute,
        })
    }

    /// Precision and recomputation of a transformer's blocks on the device.
    ///
    /// # Errors
    /// If the device cannot compute that way.
    pub fn mode(&self, context: &Context) -> Result<Mode> {
        settings::mode(self.precision, self.recompute, context.device())
    }

    /// Steps and schedule on this data.
    ///
    /// # Errors
    /// If the warm-up is longer than the training, a step cannot be divided into equal parts, or the
    /// device cannot compute that way.
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
                "patience = {n}: there are no test images; give --hold-out N, or remove patience"
            )));
        }
        Ok(Resolved {
            plan: self.clone(),
            mode: self.mode(data.context())?,
            steps,
            schedule: match self.lr_schedule {
                LrSchedule::Cosine => Schedule::Cosine {
                    peak: self.lr,
                    steps,
                    warmup,
                    floor: self.min_lr_ratio,
                },
                LrSchedule::Triangular => Schedule::Triangular {
                    peak: self.lr,
                    steps,
                },
            },
        })
    }
}

/// A [`TrainingPlan`] on its data.
#[derive(Clone, Debug)]
pub struct Resolved {
    plan: TrainingPlan,
    /// Precision and recomputation of a transformer's blocks.
    pub mode: Mode,
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
            parts => format!(" in {parts} micro-batches each"),
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
    let ranks = data.context().ranks();
    let share = data.batches().share(ranks.rank(), ranks.size())?;
    let examples = share.rows().len();
    if !examples.is_multiple_of(parts) {
        let of = match ranks.size() {
            1 => format!("batch of {examples}"),
            n => format!("{examples} images of each of {n} ranks"),
        };
        return Err(request(format!(
            "accumulate = {parts} does not divide the {of} into equal micro-batches"
        )));
    }
    if parts > 1 && data.in_pairs() && (examples / parts) % 2 == 1 {
        return Err(request(format!(
            "accumulate = {parts} gives micro-batches of {} images; mixup and cutmix mix pairs and \
             need an even number",
            examples / parts
        )));
    }
    Ok(())
}
