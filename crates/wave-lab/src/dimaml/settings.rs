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
}

/// The settings of learned distributions.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Settings {
    /// Distribution of each weight tensor: normal or plif (DIMAML, section 2) [default: normal]
    #[arg(long, value_name = "METHOD")]
    pub method: Option<Method>,
    /// Network whose initialisation is learned: autoencoder, fixup (a residual network), or lstm (on a
    /// task). The other defaults follow DIMAML, section 3: 2000 steps at learning rate 1e-4, for lstm
    /// 3e-4 [default: autoencoder]
    #[arg(long, value_name = "A")]
    pub arch: Option<Arch>,
    /// Channels of an autoencoder's convolutions [default: 8,16]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub conv_widths: Option<Vec<usize>>,
    /// Latent dimension, between encoder and decoder [default: 16]
    #[arg(long, value_name = "N")]
    pub latent: Option<usize>,
    /// Width: channels of fixup or lstm [default: 16 for fixup, 32 for lstm]
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Number of blocks of fixup, or of layers of lstm [default: 2]
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Number of stages of fixup; each later stage has half the resolution and twice the channels. 4
    /// stages with 8 blocks are a ResNet-18 [default: 1]
    #[arg(long, value_name = "N")]
    pub stages: Option<usize>,
    /// Number of inner training steps, which are differentiated [default: 600 for autoencoder, 200 for
    /// fixup and lstm]
    #[arg(long, value_name = "N")]
    pub inner_steps: Option<u64>,
    /// Inner optimiser: sgd, nesterov or adam [default: sgd for autoencoder, nesterov for fixup,
    /// adam for lstm]
    #[arg(long, value_name = "O")]
    pub optimiser: Option<InnerOptimiser>,
    /// Inner learning rate, constant over the steps [default: 0.01; 0.1 for fixup, 0.001 for lstm]
    #[arg(long, value_name = "X")]
    pub inner_lr: Option<f64>,
    /// Validate every N steps [default: 1]
    #[arg(long, value_name = "N")]
    pub validate_every: Option<u64>,
    /// Gradient with respect to the initial weights [default: full]
    #[arg(long, value_name = "WHICH")]
    pub gradient: Option<Gradient>,
    /// Task on which the learned initialisation and --against are tested. Its classes or tokens may
    /// differ; its images are preprocessed as for --data [default: --data]
    #[arg(long, value_name = "D")]
    pub test_data: Option<String>,
    /// Number of training steps of a test [default: --inner-steps]
    #[arg(long, value_name = "N")]
    pub test_steps: Option<u64>,
    /// Random seeds of the tests [default: 0,1,2]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub test_seeds: Option<Vec<u64>>,
    /// Initialisations to compare with the learned one: usual, kaiming, delta-orthogonal, metainit (not for lstm),
    /// orthogonal-hidden (for lstm); usual@lars=TRUST, usual with layer-wise learning rates;
    /// usual@learned-rates, usual with gradients scaled to the update rates of the learned one
    /// [default: usual]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub against: Option<Vec<String>>,
    /// Number of outer steps, each a whole inner training [default: 2000]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Batch size in training and validation [default: 128]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Learning rate of the distributions [default: 1e-4; 3e-4 for lstm]
    #[arg(long, value_name = "X")]
    pub lr: Option<f64>,
    /// Random seed [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub images: Images,
}
