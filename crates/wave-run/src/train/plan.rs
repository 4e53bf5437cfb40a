//! Training settings: as given, with defaults filled in, and resolved for their data.

use crate::context::Context;
use crate::data::Data;
use crate::recipe::means_nothing;
use crate::settings::{
    self, CheckpointingValues, Duration, Keep, LrSchedule, OfTransformersValues,
    OptimisationValues, Training,
};
use anyhow::Result;
use std::ops::Deref;
use wave_models::refuse;
use wave_ops::Mode;
use wave_train::{Batches, Curve, Schedule};

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
        self.plan.augment.mixing.is_some()
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
    /// Peak learning rate.
    pub lr: f64,
    /// Weight decay of matrices.
    pub weight_decay: f32,
    /// Decay of the EMA of the weights, if kept.
    pub ema: Option<f64>,
    /// Label smoothing.
    pub label_smoothing: f32,
    /// Random seed.
    pub seed: u64,
    /// True if Muon updates matrices.
    pub muon: bool,
    /// Duration and optimiser, as given.
    pub optimisation: OptimisationValues,
    /// Training of transformers, as given.
    pub transformer: OfTransformersValues,
    /// Checkpoints, as given.
    pub saving: CheckpointingValues,
}

impl TrainingPlan {
    /// The plan of these settings.
    pub fn new(training: &Training, defaults: Defaults) -> Result<TrainingPlan> {
        settings::check(training)?;
        let given = &training.optimisation;
        let own = OptimisationValues::from(given.clone());
        let transformer = OfTransformersValues::from(training.transformer.clone());
        if own.lr_schedule == LrSchedule::Triangular {
            let warmup = given.warmup_epochs.map(|_| "warmup_epochs");
            if let Some(key) = warmup.or(given.min_lr_ratio.map(|_| "min_lr_ratio")) {
                return Err(means_nothing(key, "lr_schedule triangular"));
            }
        }
        if own.test_epochs == 0 && own.patience.is_some() {
            refuse!(
                "patience counts tests, of which test_epochs = 0 leaves the last; raise test_epochs, or remove patience"
            );
        }
        if own.test_epochs == 0 && training.saving.keep == Some(Keep::Best) {
            refuse!(
                "keep = best chooses among tests, of which test_epochs = 0 leaves the last; raise \
                 test_epochs, or remove keep"
            );
        }
        let duration = match (own.epochs, own.steps) {
            (Some(epochs), Some(steps)) => {
                refuse!("both epochs = {epochs} and steps = {steps} are given; keep one")
            }
            (Some(epochs), None) => Duration::Epochs(epochs),
            (None, Some(steps)) => Duration::Steps(steps),
            (None, None) => defaults.duration,
        };
        Ok(TrainingPlan {
            duration,
            lr: own.lr.unwrap_or(defaults.lr),
            weight_decay: own.weight_decay.unwrap_or(defaults.weight_decay) as f32,
            ema: own.ema.filter(|decay| *decay > 0.0),
            label_smoothing: own.label_smoothing as f32,
            seed: own.seed,
            muon: transformer.muon.unwrap_or(false),
            optimisation: own,
            transformer,
            saving: training.saving.clone().into(),
        })
    }

    /// Precision and recomputation of a transformer's blocks on the device.
    pub fn mode(&self, context: &Context) -> Result<Mode> {
        let own = &self.transformer;
        settings::mode(own.precision, own.recompute, context.device())
    }

    /// Steps and schedule on this data.
    ///
    /// # Errors
    /// If the warm-up is longer than the training, a step cannot be divided into equal parts, or the
    /// device cannot compute that way.
    pub fn resolve(&self, data: &impl TrainingData) -> Result<Resolved> {
        let per_epoch = data.batches().steps_per_epoch();
        let steps = self.duration.steps(per_epoch);
        let own = &self.optimisation;
        let warmup = match own.warmup_epochs {
            Some(epochs) => (epochs * per_epoch as f64).round() as u64,
            None => (steps / 20).max(1),
        };
        if warmup > steps && steps > 0 {
            refuse!(
                "the warm-up of {warmup} steps is longer than the training of {steps}; lower \
                 warmup_epochs"
            );
        }
        check_parts(own.accumulate, data)?;
        let needs_tests = match own.patience {
            Some(n) => Some(format!("patience = {n}")),
            None => (self.saving.keep == Keep::Best).then(|| "keep = best".to_owned()),
        };
        if let Some(setting) = needs_tests.filter(|_| !data.has_tests()) {
            refuse!("{setting}: there are no test images; give --hold-out N, or remove it");
        }
        Ok(Resolved {
            plan: self.clone(),
            mode: self.mode(data.context())?,
            steps,
            schedule: Schedule {
                peak: self.lr,
                steps,
                curve: match own.lr_schedule {
                    LrSchedule::Cosine => Curve::Cosine {
                        warmup,
                        floor: own.min_lr_ratio,
                    },
                    LrSchedule::Triangular => Curve::Triangular,
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
        let of = match self.optimisation.accumulate {
            1 => String::new(),
            parts => format!(" in {parts} micro-batches each"),
        };
        let (steps, batch, epochs) = (self.steps, data.batches().batch_size(), self.epochs(data));
        format!("{steps} steps with batch = {batch}{of} ({epochs:.1} epochs)\n")
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
        refuse!("accumulate = {parts} does not divide the {of} into equal micro-batches");
    }
    if parts > 1 && data.in_pairs() && (examples / parts) % 2 == 1 {
        refuse!(
            "accumulate = {parts} gives micro-batches of {} images; mixup and cutmix mix pairs and \
             need an even number",
            examples / parts
        );
    }
    Ok(())
}
