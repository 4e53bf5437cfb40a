//! Keys of every stage that trains, in groups, so that a family of networks takes only those that
//! apply.

use super::{BatchSize, Duration, Keep, PrecisionChoice};
use crate::error::request;
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of every stage that trains on images.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Training {
    #[command(flatten)]
    #[serde(flatten)]
    pub images: Images,
    #[command(flatten)]
    #[serde(flatten)]
    pub optimisation: Optimisation,
    #[command(flatten)]
    #[serde(flatten)]
    pub transformer: OfTransformers,
    #[command(flatten)]
    #[serde(flatten)]
    pub augmentation: Augmentation,
    #[command(flatten)]
    #[serde(flatten)]
    pub saving: Checkpointing,
}

/// Which images are trained and tested on.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Images")]
#[group(skip)]
pub struct Images {
    /// Images: fashion-mnist, shapes, a directory (ImageFolder, tar shards, IDX or CIFAR),
    /// a/{00000..00099}.tar, or hf:OWNER/NAME, a data set on a hub; for a sequence network, a task:
    /// copy, stack, recall or sort, with sizes: copy:length=16,symbols=16
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
    /// Train on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub train_limit: Option<usize>,
    /// Test on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub test_limit: Option<usize>,
    /// Keep N training images apart and test on them instead of the test images
    #[arg(long, value_name = "N")]
    pub hold_out: Option<usize>,
    /// Mean of each channel, 0 to 1 [default: measured]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub mean: Option<Vec<f64>>,
    /// Standard deviation of each channel, 0 to 1 [default: measured]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub std: Option<Vec<f64>>,
}

/// How long and how weights are trained.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Training")]
#[group(skip)]
pub struct Optimisation {
    /// Passes over the training images (or give --steps)
    #[arg(long, value_name = "N")]
    pub epochs: Option<f64>,
    /// Optimiser steps (or give --epochs)
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Images in a step, of all ranks together: a number, or auto, the largest power of two, up to
    /// 1024, that fits in memory. The learning rate goes with it [default: 128; of token sequences
    /// 32]
    #[arg(long, value_name = "N")]
    pub batch: Option<BatchSize>,
    /// Compute a step in N equal parts and add up their gradients: the same step in less memory. N
    /// divides the batch, or a rank's share of it. A ConvMixer's norms then see a part at a time,
    /// so its steps differ [default: 1]
    #[arg(long, value_name = "N")]
    pub accumulate: Option<usize>,
    /// Peak learning rate of AdamW [default: 0.0005; of expand 0.01, of token sequences 0.005]
    #[arg(long, value_name = "X")]
    pub lr: Option<f64>,
    /// Last learning rate as a fraction of the peak (cosine) [default: 0.01]
    #[arg(long, value_name = "X")]
    pub min_lr_ratio: Option<f64>,
    /// Weight decay of matrices (never of biases, norms and positions) [default: 0.05; of expand 0,
    /// of token sequences 0.1]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// Epochs over which the learning rate rises [default: a twentieth of the training]
    #[arg(long, value_name = "X")]
    pub warmup_epochs: Option<f64>,
    /// Share of each target spread over all classes, 0 to 1 [default: 0]
    #[arg(long, value_name = "X")]
    pub label_smoothing: Option<f64>,
    /// Decay of a moving average of the weights, which is then what is written [default: none]
    #[arg(long, value_name = "X")]
    pub ema: Option<f64>,
    /// Largest norm of the gradient [default: 1]
    #[arg(long, value_name = "X")]
    pub clip: Option<f64>,
    /// Test after every N epochs, and at the end; 0 at the end alone [default: 1]
    #[arg(long, value_name = "N")]
    pub test_epochs: Option<u64>,
    /// Stop after N tests in a row, one after each epoch unless --test-epochs says otherwise, no better than
    /// an earlier one; best with --keep best and --hold-out [default: never]
    #[arg(long, value_name = "N")]
    pub patience: Option<usize>,
    /// Stop after so many minutes, and write what is there [default: never]
    #[arg(long, value_name = "MINUTES")]
    pub time_limit: Option<f64>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Of the training of transformers alone.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Training")]
#[group(skip)]
pub struct OfTransformers {
    /// Probability of dropping the last layer's branches, rising linearly from 0 at the first
    /// [default: 0]
    #[arg(long, value_name = "X")]
    pub drop_path: Option<f64>,
    /// Factor on the learning rate from each layer to the one below it [default: 1]
    #[arg(long, value_name = "X")]
    pub layer_decay: Option<f64>,
    /// Matrix products of a transformer's blocks while it trains; auto is bf16 where the processor
    /// multiplies it faster [default: f32]
    #[arg(long, value_name = "P")]
    pub precision: Option<PrecisionChoice>,
    /// Keep nothing from inside a transformer's blocks for the backward pass, and compute it again
    /// there: the same values, in less memory and a third more time [default: false]
    #[arg(long, value_name = "BOOL")]
    pub recompute: Option<bool>,
}

/// How training images are varied.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Augmentation")]
#[group(skip)]
pub struct Augmentation {
    /// Pixels of padding for random crops [default: 0]
    #[arg(long, value_name = "N")]
    pub crop_padding: Option<usize>,
    /// Mirror images at random [default: false]
    #[arg(long, value_name = "BOOL")]
    pub flip: Option<bool>,
    /// Random crops of at least this part of the image's area, resized; 0 to 1 (0.08 is usual)
    /// [default: none]
    #[arg(long, value_name = "X")]
    pub resized_crop: Option<f64>,
    /// RandAugment in timm's notation, such as rand-m9-mstd0.5-inc1 [default: none]
    #[arg(long, value_name = "POLICY")]
    pub rand_augment: Option<String>,
    /// One of grey, solarised and blurred (DeiT III) [default: false]
    #[arg(long, value_name = "BOOL")]
    pub three_augment: Option<bool>,
    /// Random brightness, contrast and saturation by up to this part [default: 0]
    #[arg(long, value_name = "X")]
    pub colour_jitter: Option<f32>,
    /// Probability of covering a random rectangle with noise [default: 0]
    #[arg(long, value_name = "X")]
    pub erasing: Option<f64>,
    /// Mixup: parameter of the Beta distribution of its weight (0.8 is usual) [default: 0]
    #[arg(long, value_name = "X")]
    pub mixup: Option<f64>,
    /// CutMix: parameter of the Beta distribution of its weight (1 is usual) [default: 0]
    #[arg(long, value_name = "X")]
    pub cutmix: Option<f64>,
    /// Show each image of an epoch so many times in a row, differently varied [default: 1]
    #[arg(long, value_name = "N")]
    pub repeats: Option<usize>,
    /// Number of augmented versions of each image, taken in turn [default: a new one each epoch]
    #[arg(long, value_name = "N")]
    pub views: Option<u32>,
    /// Seed of the versions that --views repeat and --cache keeps, which other seeds share
    /// [default: 0]
    #[arg(long, value_name = "N")]
    pub view_seed: Option<u64>,
}

/// What is kept of a training.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Checkpoints")]
#[group(skip)]
pub struct Checkpointing {
    /// Save the state every N steps as well as after every epoch
    #[arg(long, value_name = "N")]
    pub checkpoint_steps: Option<u64>,
    /// Save the state every so many minutes as well; 0 never [default: 10]
    #[arg(long, value_name = "X")]
    pub checkpoint_minutes: Option<f64>,
    /// What is written at the end: the last values, or the best, those of the epoch that tested best
    /// (on --hold-out, if the test is to stay one) [default: last]
    #[arg(long, value_name = "WHICH")]
    pub keep: Option<Keep>,
}

impl Optimisation {
    /// Duration of training; `default` if neither epochs nor steps are given.
    ///
    /// # Errors
    /// If both are.
    pub fn duration(&self, default: Duration) -> Result<Duration> {
        match (self.epochs, self.steps) {
            (Some(epochs), Some(steps)) => Err(request(format!(
                "both epochs = {epochs} and steps = {steps} are given; keep one"
            ))),
            (Some(epochs), None) => Ok(Duration::Epochs(epochs)),
            (None, Some(steps)) => Ok(Duration::Steps(steps)),
            (None, None) => Ok(default),
        }
    }
}

impl Checkpointing {
    /// Time between two checkpoints, if any; 10 minutes by default.
    ///
    /// # Errors
    /// If it is not a valid time.
    pub fn every(&self) -> Result<Option<std::time::Duration>> {
        let minutes = self.checkpoint_minutes.unwrap_or(10.0);
        let every = std::time::Duration::try_from_secs_f64(60.0 * minutes).map_err(|_| {
            request(format!(
                "checkpoint_minutes = {minutes}; expected a number from 0 on"
            ))
        })?;
        Ok((!every.is_zero()).then_some(every))
    }
}
