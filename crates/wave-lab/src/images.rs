//! Training of an image classifier, given as a function of its weights.

use crate::run::{Run, batch, variables};
use anyhow::Result;
use candle_core::{Device, Tensor};
use clap::Args;
use serde::{Deserialize, Serialize};
use wave_data::{Batch, DataError};
use wave_models::Weights;
use wave_run::data::{self, DEFAULT_SIDE, Data, DataPlan, Input};
use wave_run::settings::{BatchSize, Images, Optimisation, Training};
use wave_run::train::{
    self, Defaults, Outcome, Parameters, Resolved, TrainRun, Trainable, TrainingPlan,
};
use wave_train::{Examples as _, MicroBatch, Scores, Variable};

/// Batch size of test images.
const TEST_BATCH: usize = 250;

/// Batch size of test images per network, with several networks.
const TESTED: usize = 16;

/// Settings of data and training.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub(crate) struct OnImages {
    #[command(flatten)]
    #[serde(flatten)]
    images: Images,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) optimisation: Optimisation,
}

impl OnImages {
    pub(crate) fn seed(&self) -> u64 {
        self.optimisation.seed.unwrap_or(0)
    }

    /// The data, with its normalisation measured on all training images and `networks` times the batch size.
    pub(crate) fn open(&self, networks: usize, usual: usize, run: &Run) -> Result<Data> {
        let of_each = batch(&self.optimisation, usual)?;
        let dataset = data::open(self.images.data.as_deref(), &run.options.context)?;
        let whole = DataPlan {
            spec: self.images.data.clone(),
            ..DataPlan::of_images(&Images::default(), None)?
        };
        let input = Input::Size {
            image_size: data::image_side(&dataset).unwrap_or(DEFAULT_SIDE),
            channels: None,
        };
        let whole = Data::open(&whole, input, &run.options.context)?;
        let plan = DataPlan {
            batch: BatchSize::Images(of_each * networks),
            ..DataPlan::new(&Training {
                images: self.images.clone(),
                optimisation: self.optimisation.clone(),
                ..Training::default()
            })?
        };
        Data::open(&plan, Input::Like(whole.transform), &run.options.context)
    }
}

/// A network, or several side by side, with data to train on.
pub(crate) struct Classifier<'a> {
    pub(crate) data: Data,
    resolved: Resolved,
    weights: Weights,
    /// Number of networks, which take the images of a batch in turn.
    networks: usize,
    logits: &'a dyn Fn(&Weights, &Tensor) -> candle_core::Result<Tensor>,
}

impl<'a> Classifier<'a> {
    pub(crate) fn new(
        settings: &OnImages,
        defaults: Defaults,
        data: Data,
        weights: &Weights,
        networks: usize,
        logits: &'a dyn Fn(&Weights, &Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<Classifier<'a>> {
        let training = Training {
            optimisation: settings.optimisation.clone(),
            ..Training::default()
        };
        Ok(Classifier {
            resolved: TrainingPlan::new(&training, defaults)?.resolve(&data)?,
            data,
            weights: weights.clone(),
            networks,
            logits,
        })
    }

    pub(crate) fn train(&self, run: &Run) -> Result<Outcome> {
        let train_run = TrainRun {
            label: "training",
            data: &self.data,
            resolved: &self.resolved,
            every_epoch: self.networks == 1,
        };
        train::train(self, &train_run, None, &run.options)
    }
}

impl Trainable for Classifier<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        variables(&self.weights, &self.resolved, device)
    }

    /// The mean over all networks: each one's gradient is divided by their number, which Adam cancels.
    fn loss(
        &self,
        live: &Parameters,
        batch: &Batch,
        images: &Tensor,
        _: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let logits = (self.logits)(&live.weights, images)?;
        let smoothing = self.resolved.label_smoothing;
        let targets = wave_train::batch_targets(batch, logits.dim(1)?, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    }

    /// Mean scores of all networks on the same test images.
    fn score(&self, values: &Weights) -> Result<Scores> {
        let (n, tests) = (self.networks, &self.data.tests);
        let for_each = |batch: Result<Batch, DataError>| -> Vec<Result<Batch, DataError>> {
            match batch {
                Ok(batch) if n > 1 => (0..batch.size)
                    .step_by(TESTED)
                    .map(|from| {
                        let some = from..(from + TESTED).min(batch.size);
                        let rows: Vec<usize> = some.flat_map(|i| vec![i; n]).collect();
                        Ok(batch.select(&rows))
                    })
                    .collect(),
                batch => vec![batch],
            }
        };
        let batches = tests.batches(TEST_BATCH).flat_map(for_each);
        let logits = |images: &Tensor| (self.logits)(values, images);
        let mut scores = wave_train::evaluate(tests.context.ranks(), batches, logits)?;
        scores.images /= n;
        Ok(scores)
    }
}
