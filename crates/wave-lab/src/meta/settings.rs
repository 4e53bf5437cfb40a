//! Keys of `wave meta`.
#![allow(
    missing_docs,
    reason = "clap would print it as the description of a command"
)]

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::locate;
use wave_run::settings::{Augmentation, Checkpointing, Images, Optimisation, Output, Training};

/// What is learned.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum MetaMethod {
    #[default]
    Normal,
    Plif,
    Ghn3,
}

/// Networks whose starts are learned.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum MetaArch {
    #[default]
    Autoencoder,
    Fixup,
    Lstm,
    Scalers,
}

/// Optimisers of trainings that are differentiated.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum InnerOptimiser {
    Sgd,
    Nesterov,
    Adam,
    Lars,
}

/// What is taken for the gradient with respect to the start.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum OuterGradient {
    #[default]
    Full,
    FirstOrder,
    Reptile,
}

/// Keys of `wave meta`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Meta {
    /// What is learned: normal or plif, a distribution for each weight tensor (DIMAML, section 2); or
    /// ghn3, a graph hypernetwork [default: normal]
    #[arg(long, value_name = "METHOD")]
    pub method: Option<MetaMethod>,
    #[command(flatten)]
    #[serde(flatten)]
    pub distribution: Distribution,
    #[command(flatten)]
    #[serde(flatten)]
    pub hypernetwork: Hypernetwork,
    #[command(flatten)]
    #[serde(flatten)]
    pub training: Training,
}

/// Keys of learned distributions: the network, and the training that is differentiated.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Learned distributions")]
#[group(skip)]
pub struct Distribution {
    /// Network whose start is learned: autoencoder, fixup (a residual network), lstm (on a task), or scalers (of a
    /// transformer from templates). Without other settings it is learned as DIMAML does, section 3: 2000 steps at rate
    /// 1e-4, of lstm 3e-4; of scalers, which are not in the paper, 100 steps at 1e-3 [default: autoencoder]
    #[arg(long, value_name = "A")]
    pub arch: Option<MetaArch>,
    /// Channels of an autoencoder's convolutions [default: 8,16]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub conv_widths: Option<Vec<usize>>,
    /// Numbers between encoder and decoder [default: 16]
    #[arg(long, value_name = "N")]
    pub latent: Option<usize>,
    /// Channels of fixup (16), of lstm (32), or of a transformer
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Blocks of fixup (2), layers of lstm (2), or blocks of a transformer
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Stages of fixup, each further one of half the resolution and twice the channels: 4 with 8 blocks are a
    /// ResNet-18 [default: 1]
    #[arg(long, value_name = "N")]
    pub stages: Option<usize>,
    /// Template directory, of scalers
    #[arg(long, value_name = "DIR")]
    pub templates: Option<String>,
    /// Pieces of a plif quantile function [default: 100]
    #[arg(long, value_name = "K")]
    pub pieces: Option<usize>,
    /// Steps of the training that is differentiated [default: 600 of autoencoder, 200 of fixup and lstm, 40 of
    /// scalers]
    #[arg(long, value_name = "N")]
    pub inner_steps: Option<u64>,
    /// Its optimiser: sgd, nesterov, adam or lars [default: sgd of autoencoder, nesterov of
    /// fixup, adam of lstm and scalers]
    #[arg(long, value_name = "O")]
    pub optimiser: Option<InnerOptimiser>,
    /// Its learning rate, the same in every step [default: 0.01; 0.1 of fixup, 0.001 of lstm]
    #[arg(long, value_name = "X")]
    pub inner_lr: Option<f64>,
    /// Momentum of sgd, nesterov and lars [default: 0.9]
    #[arg(long, value_name = "X")]
    pub momentum: Option<f64>,
    /// Weight decay of sgd, nesterov and lars, of all weights [default: 0; 5e-4 of
    /// fixup]
    #[arg(long, value_name = "X")]
    pub inner_weight_decay: Option<f64>,
    /// Trust coefficient of lars [default: 0.001]
    #[arg(long, value_name = "X")]
    pub trust: Option<f64>,
    /// Steps between two validations [default: 1, all steps]
    #[arg(long, value_name = "N")]
    pub validate_every: Option<u64>,
    /// Keep every N-th state for the way back, and compute those between again [default: 5]
    #[arg(long, value_name = "N")]
    pub keep_every: Option<u64>,
    /// What is taken for the gradient: full, through the whole training (DIMAML); first-order, of the
    /// validation losses alone (first-order MAML); or reptile, the way back from the training's end
    /// [default: full]
    #[arg(long, value_name = "WHICH")]
    pub gradient: Option<OuterGradient>,
    /// The task that the learned start is tested on, and others beside it. Its classes or tokens may be
    /// others; its images are prepared as those of --data [default: --data]
    #[arg(long, value_name = "D")]
    pub test_data: Option<String>,
    /// Steps of a test [default: --inner-steps]
    #[arg(long, value_name = "N")]
    pub test_steps: Option<u64>,
    /// Seeds of the tests; none, no tests [default: 0,1,2]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub test_seeds: Option<Vec<u64>>,
    /// What the learned start is tested against: usual, kaiming, metainit, delta-orthogonal, of lstm also
    /// orthogonal-hidden; usual@lars=TRUST, the usual start with layer-wise rates; usual@learned-rates, the usual
    /// start with gradients scaled to the update rates of the learned one; of scalers, bank and random [default:
    /// usual, of scalers bank and random]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub against: Option<Vec<String>>,
}

/// Sizes of a hypernetwork, and of what it is trained to predict.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Graph hypernetworks")]
#[group(skip)]
pub struct Hypernetwork {
    /// Channels of a node [default: 64]
    #[arg(long, value_name = "N")]
    pub hidden: Option<usize>,
    /// Graphormer layers [default: 3]
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Attention heads of each [default: 8]
    #[arg(long, value_name = "N")]
    pub graph_heads: Option<usize>,
    /// Input and output channels of the largest weight that is decoded; larger ones are tiled
    /// [default: 64]
    #[arg(long, value_name = "N")]
    pub decoded: Option<usize>,
    /// Least and most blocks of the transformers that are drawn in training [default: 2,6]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub depths: Option<Vec<usize>>,
    /// Their widths [default: 32,48,64]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub widths: Option<Vec<usize>>,
    /// Channels of a head of theirs [default: 16]
    #[arg(long, value_name = "N")]
    pub head_width: Option<usize>,
    /// Side of their patches in pixels [default: 7]
    #[arg(long, value_name = "N")]
    pub patch: Option<usize>,
    /// Transformers in a step, which see the same images [default: 2]
    #[arg(long, value_name = "N")]
    pub architectures: Option<usize>,
    /// Weight of the sum of the norms of all predicted tensors in the loss [default: 3e-5]
    #[arg(long, value_name = "X")]
    pub penalty: Option<f64>,
}

/// The settings of training that apply to learned distributions.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct OuterTraining {
    #[serde(flatten)]
    pub(super) images: Images,
    pub(super) steps: Option<u64>,
    pub(super) batch: Option<usize>,
    pub(super) lr: Option<f64>,
    pub(super) clip: Option<f64>,
    pub(super) seed: Option<u64>,
    pub(super) checkpoint_steps: Option<u64>,
    pub(super) checkpoint_minutes: Option<f64>,
}

/// The settings of training that apply to a hypernetwork.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct HypernetworkTraining {
    #[serde(flatten)]
    pub(super) images: Images,
    #[serde(flatten)]
    pub(super) optimisation: Optimisation,
    #[serde(flatten)]
    pub(super) saving: Checkpointing,
    pub(super) crop_padding: Option<usize>,
    pub(super) flip: Option<bool>,
    pub(super) mixup: Option<f64>,
    pub(super) cutmix: Option<f64>,
}

impl From<HypernetworkTraining> for Training {
    fn from(own: HypernetworkTraining) -> Training {
        Training {
            images: own.images,
            optimisation: own.optimisation,
            augmentation: Augmentation {
                crop_padding: own.crop_padding,
                flip: own.flip,
                mixup: own.mixup,
                cutmix: own.cutmix,
                ..Augmentation::default()
            },
            saving: own.saving,
            ..Training::default()
        }
    }
}

/// The settings of `wave init learned`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct Draw {
    pub(super) from: Option<String>,
    pub(super) seed: Option<u64>,
    #[serde(flatten)]
    pub(super) output: Output,
}

impl Draw {
    /// The directory of the initialiser.
    pub(super) fn dir(&self, context: &Context) -> Result<PathBuf> {
        match &self.from {
            Some(from) => locate::locate(Path::new(from), context),
            None => Err(request(
                "method learned draws from what `wave meta` learned; give --from DIR with its directory",
            )),
        }
    }
}
