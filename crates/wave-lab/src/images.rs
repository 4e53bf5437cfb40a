//! Training of an image classifier, given as a function of its weights.

use crate::run::{Network, Run, resolved};
use anyhow::Result;
use candle_core::Tensor;
use clap::Args;
use serde::{Deserialize, Serialize};
use wave_data::{Batch, DataError};
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::data::{self, DEFAULT_SIDE, Data, DataPlan, Input};
use wave_run::settings::{Images, Optimisation};
use wave_run::train::{Defaults, Outcome};
use wave_train::Examples as _;

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
        let of_each = self.optimisation.batch.unwrap_or(usual);
        let context = &run.options.context;
        let whole = Images {
            data: self.images.data.clone(),
            ..Images::default()
        };
        let whole = open(&DataPlan::of_images(&whole, None)?, context)?;
        let plan = DataPlan {
            batch: of_each * networks,
            ..DataPlan::of_images(&self.images, self.optimisation.seed)?
        };
        Data::open(&plan, Input::Like(whole.transform), context)
    }
}

/// Opens images at the size that they have, with their normalisation measured.
pub(crate) fn open(plan: &DataPlan, context: &Context) -> Result<Data> {
    let dataset = data::open(plan.spec.as_deref(), context)?;
    let input = Input::Size {
        image_size: data::image_side(&dataset).unwrap_or(DEFAULT_SIDE),
        channels: None,
    };
    Data::open(plan, input, context)
}

/// Trains a network with these logits, or several side by side, which take the images of a batch in turn.
pub(crate) fn train(
    settings: &OnImages,
    defaults: Defaults,
    data: &Data,
    start: &Weights,
    networks: usize,
    logits: impl Fn(&Weights, &Tensor) -> candle_core::Result<Tensor>,
    run: &Run,
) -> Result<Outcome> {
    let resolved = resolved(&settings.optimisation, defaults, data)?;
    let smoothing = resolved.label_smoothing;
    // The mean over all networks: each one's gradient is divided by their number, which Adam cancels.
    let loss = |weights: &Weights, batch: &Batch, images: &Tensor| {
        let logits = logits(weights, images)?;
        let targets = wave_train::batch_targets(batch, logits.dim(1)?, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    };
    // Mean scores of all networks on the same test images.
    let score = |weights: &Weights| {
        let for_each = |batch: Result<Batch, DataError>| match batch {
            Ok(batch) if networks > 1 => {
                let rows: Vec<usize> = (0..batch.size).flat_map(|i| vec![i; networks]).collect();
                let parts = rows.chunks(TESTED * networks);
                parts.map(|rows| Ok(batch.select(rows))).collect()
            }
            batch => vec![batch],
        };
        let batches = data.tests.batches(TEST_BATCH).flat_map(for_each);
        let ranks = data.tests.context.ranks();
        let mut scores =
            wave_train::evaluate(ranks, batches, |images: &Tensor| logits(weights, images))?;
        scores.images /= networks;
        Ok(scores)
    };
    let network = Network {
        start,
        resolved,
        loss: &loss,
        score: &score,
    };
    network.train(data, networks == 1, run)
}
