//! Keys of every stage that trains, in groups.

use super::{BatchSize, Duration, Keep, LrSchedule, PrecisionChoice};
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

/// Training and test images.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Images")]
#[group(skip)]
pub struct Images {
    /// Images: fashion-mnist, shapes, a directory (ImageFolder, tar shards, IDX or CIFAR),
    /// a/{00000..00099}.tar, or hf:OWNER/NAME, a data set on a hub
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
    /// Train on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub train_limit: Option<usize>,
    /// Test on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub test_limit: Option<usize>,
    /// Hold out N training images and test on them instead of the test set
    #[arg(long, value_name = "N")]
    pub hold_out: Option<usize>,
    /// Mean of each channel, 0 to 1 [default: measured]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub mean: Option<Vec<f64>>,
    /// Standard deviation of each channel, 0 to 1 [default: measured]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub std: Option<Vec<f64>>,
}

/// Duration and optimiser.
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
    /// Global batch: a number, or auto, the largest power of two up to 1024 that fits in memory. Choose the
    /// learning rate to match [default: 128]
    #[arg(long, value_name = "N")]
    pub batch: Option<BatchSize>,
    /// Gradient accumulation over N micro-batches, for less memory. N divides the batch, or a rank's share of it. Batch
    /// norms of a ConvMixer see one micro-batch at a time [default: 1]
    #[arg(long, value_name = "N")]
    pub accumulate: Option<usize>,
    /// Peak learning rate of AdamW and Muon [default: 0.0005; of expand 0.01]
    #[arg(long, value_name = "X")]
    pub lr: Option<f64>,
    /// Learning-rate schedule: cosine with warm-up; or triangular, linear from 0 to the peak at 2/5, a twentieth of
    /// it at 4/5, and 0 [default: cosine]
    #[arg(long, value_name = "SHAPE")]
    pub lr_schedule: Option<LrSchedule>,
    /// Final learning rate of the cosine schedule, as a fraction of the peak [default: 0.01]
    #[arg(long, value_name = "X")]
    pub min_lr_ratio: Option<f64>,
    /// Weight decay of matrices (never of biases, norms and positions) [default: 0.05; of expand 0]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// Warm-up epochs of the learning rate [default: a twentieth of the training]
    #[arg(long, value_name = "X")]
    pub warmup_epochs: Option<f64>,
    /// Label smoothing, 0 to 1 [default: 0]
    #[arg(long, value_name = "X")]
    pub label_smoothing: Option<f64>,
    /// Decay of an EMA of the weights; the average is written [default: none]
    #[arg(long, value_name = "X")]
    pub ema: Option<f64>,
    /// Gradient-norm clipping threshold [default: 1]
    #[arg(long, value_name = "X")]
    pub clip: Option<f64>,
    /// Test after every N epochs, and at the end; 0 at the end alone [default: 1]
    #[arg(long, value_name = "N")]
    pub test_epochs: Option<u64>,
    /// Early stopping: patience in tests (see --test-epochs); best with --keep best and --hold-out [default: never]
    #[arg(long, value_name = "N")]
    pub patience: Option<usize>,
    /// Time limit in minutes; the model so far is written [default: never]
    #[arg(long, value_name = "MINUTES")]
    pub time_limit: Option<f64>,
    /// Random seed [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Training of image networks, most of it of transformers alone.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Training")]
#[group(skip)]
pub struct OfTransformers {
    /// Drop path (stochastic depth): rate at the last layer, rising linearly from 0 at the first
    /// [default: 0]
    #[arg(long, value_name = "X")]
    pub drop_path: Option<f64>,
    /// Layer-wise learning-rate decay: the factor from each layer to the one below it [default: 1]
    #[arg(long, value_name = "X")]
    pub layer_decay: Option<f64>,
    /// Muon for the matrices of blocks, templates and scalers: orthogonalises their momentum before each step. AdamW
    /// trains the rest. Several times fewer epochs if much is left to learn [default: false]
    #[arg(long, value_name = "BOOL")]
    pub muon: Option<bool>,
    /// Precision of a transformer's matrix products in training; auto is bf16 where the processor
    /// multiplies bf16 faster [default: f32]
    #[arg(long, value_name = "P")]
    pub precision: Option<PrecisionChoice>,
    /// Activation checkpointing: recompute a block's activations in the backward pass. Same values, less memory, a third
    /// more time [default: false]
    #[arg(long, value_name = "BOOL")]
    pub recompute: Option<bool>,
}

/// Augmentation of training images.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Augmentation")]
#[group(skip)]
pub struct Augmentation {
    /// Padding in pixels before random crops [default: 0]
    #[arg(long, value_name = "N")]
    pub crop_padding: Option<usize>,
    /// Random horizontal flips [default: false]
    #[arg(long, value_name = "BOOL")]
    pub flip: Option<bool>,
    /// RandomResizedCrop: least fraction of the image's area, 0 to 1 (0.08 is usual) [default: none]
    #[arg(long, value_name = "X")]
    pub resized_crop: Option<f64>,
    /// RandAugment in timm's notation, such as rand-m9-mstd0.5-inc1 [default: none]
    #[arg(long, value_name = "POLICY")]
    pub rand_augment: Option<String>,
    /// 3-Augment of DeiT III: greyscale, solarisation or Gaussian blur [default: false]
    #[arg(long, value_name = "BOOL")]
    pub three_augment: Option<bool>,
    /// Colour jitter: largest relative change of brightness, contrast and saturation [default: 0]
    #[arg(long, value_name = "X")]
    pub colour_jitter: Option<f32>,
    /// Random erasing: probability of replacing a rectangle with noise [default: 0]
    #[arg(long, value_name = "X")]
    pub erasing: Option<f64>,
    /// Mixup alpha (0.8 is usual) [default: 0]
    #[arg(long, value_name = "X")]
    pub mixup: Option<f64>,
    /// CutMix alpha (1 is usual) [default: 0]
    #[arg(long, value_name = "X")]
    pub cutmix: Option<f64>,
    /// Repeated augmentation: augmented copies of each image in a row [default: 1]
    #[arg(long, value_name = "N")]
    pub repeats: Option<usize>,
    /// Number of augmented versions of each image, taken in turn [default: a new one each epoch]
    #[arg(long, value_name = "N")]
    pub views: Option<u32>,
    /// Seed of the augmented versions of --views and --cache; independent of --seed, so that runs
    /// share a cache [default: 0]
    #[arg(long, value_name = "N")]
    pub view_seed: Option<u64>,
}

/// Checkpoints, and the weights written at the end.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Checkpoints")]
#[group(skip)]
pub struct Checkpointing {
    /// Also checkpoint every N steps, beside after every epoch
    #[arg(long, value_name = "N")]
    pub checkpoint_steps: Option<u64>,
    /// Also checkpoint every X minutes; 0 never [default: 10]
    #[arg(long, value_name = "X")]
    pub checkpoint_minutes: Option<f64>,
    /// Weights written: last, or best by test accuracy (with --hold-out, to keep the test images unseen) [default: last]
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
