//! Settings: a network, its differentiated training, and the tests.

use super::unrolled::Gradient;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use wave_run::settings::Images;

/// Families of distributions.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    #[default]
    Normal,
    Plif,
}

/// Networks whose initialisation is learned.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    #[default]
    Autoencoder,
    Fixup,
    Lstm,
}

/// Optimisers of the differentiated training.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum InnerOptimiser {
    Sgd,
    Nesterov,
    Adam,
    Lars,
}

/// The settings of learned distributions.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Settings {
    /// Distribution of each weight tensor: normal or plif (DIMAML, section 2) [default: normal]
    #[arg(long, value_name = "METHOD")]
    pub method: Option<Method>,
    /// Network whose start is learned: autoencoder, fixup (a residual network), or lstm (on a task). Without other
    /// settings it is learned as DIMAML does, section 3: 2000 steps at rate 1e-4, of lstm 3e-4 [default: autoencoder]
    #[arg(long, value_name = "A")]
    pub arch: Option<Arch>,
    /// Channels of an autoencoder's convolutions [default: 8,16]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub conv_widths: Option<Vec<usize>>,
    /// Numbers between encoder and decoder [default: 16]
    #[arg(long, value_name = "N")]
    pub latent: Option<usize>,
    /// Channels of fixup (16) or of lstm (32)
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Blocks of fixup (2), layers of lstm (2)
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Stages of fixup, each further one of half the resolution and twice the channels: 4 with 8 blocks are a
    /// ResNet-18 [default: 1]
    #[arg(long, value_name = "N")]
    pub stages: Option<usize>,
    /// Pieces of a plif quantile function [default: 100]
    #[arg(long, value_name = "K")]
    pub pieces: Option<usize>,
    /// Steps of the training that is differentiated [default: 600 of autoencoder, 200 of fixup and lstm]
    #[arg(long, value_name = "N")]
    pub inner_steps: Option<u64>,
    /// Its optimiser: sgd, nesterov, adam or lars [default: sgd of autoencoder, nesterov of
    /// fixup, adam of lstm]
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
    /// Keep every N-th state for the backward pass, and recompute the others [default: 5]
    #[arg(long, value_name = "N")]
    pub keep_every: Option<u64>,
    /// Gradient with respect to the start: full, through the whole training (DIMAML); first-order, of the
    /// validation losses alone (first-order MAML); or reptile, the way back from the training's end
    /// [default: full]
    #[arg(long, value_name = "WHICH")]
    pub gradient: Option<Gradient>,
    /// Task that the learned start is tested on, and others beside it. Its classes or tokens may be
    /// others; its images are prepared as --data's [default: --data]
    #[arg(long, value_name = "D")]
    pub test_data: Option<String>,
    /// Steps of a test [default: --inner-steps]
    #[arg(long, value_name = "N")]
    pub test_steps: Option<u64>,
    /// Seeds of the tests; none, no tests [default: 0,1,2]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub test_seeds: Option<Vec<u64>>,
    /// Starts that the learned one is tested against: usual, kaiming, metainit, delta-orthogonal, of lstm also
    /// orthogonal-hidden; usual@lars=TRUST, the usual start with layer-wise rates; usual@learned-rates, the usual
    /// start with gradients scaled to the update rates of the learned one [default: usual]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub against: Option<Vec<String>>,
    /// Trainings to learn from [default: 2000]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Examples of a step, and of a validation [default: 128]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Learning rate of the distributions [default: 1e-4; 3e-4 of lstm]
    #[arg(long, value_name = "X")]
    pub lr: Option<f64>,
    /// Gradient-norm clipping threshold [default: 10]
    #[arg(long, value_name = "X")]
    pub clip: Option<f64>,
    /// Random seed [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub images: Images,
}
