//! Keys of `wave meta`.

use super::{Hypernetwork, Training};
use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of `wave meta`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Meta {
    /// What is learned: normal or plif, a distribution for each weight tensor (DIMAML, section 2); or
    /// ghn3, a graph hypernetwork [default: normal]
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub distribution: Distribution,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub hypernetwork: Hypernetwork,
    #[command(flatten)]
    #[serde(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would print it as the command's description"
    )]
    pub training: Training,
}

/// Keys of learned distributions: the network, and the training that is differentiated.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Learned distributions")]
#[group(skip)]
pub struct Distribution {
    /// Network whose start is learned: autoencoder, fixup (a residual network), lstm (on a task), or
    /// scalers (of a transformer from templates) [default: autoencoder]
    #[arg(long, value_name = "A")]
    pub arch: Option<String>,
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
    /// Template directory, of scalers
    #[arg(long, value_name = "DIR")]
    pub templates: Option<String>,
    /// Pieces of a plif quantile function [default: 100]
    #[arg(long, value_name = "K")]
    pub pieces: Option<usize>,
    /// Steps of the training that is differentiated [default: 40]
    #[arg(long, value_name = "N")]
    pub inner_steps: Option<u64>,
    /// Its optimiser: sgd, nesterov, adam or lars [default: sgd; adam for lstm and scalers]
    #[arg(long, value_name = "O")]
    pub optimiser: Option<String>,
    /// Its learning rate, the same in every step [default: 0.01; 0.1 for fixup, 0.001 for lstm]
    #[arg(long, value_name = "X")]
    pub inner_lr: Option<f64>,
    /// Momentum of sgd, nesterov and lars [default: 0.9]
    #[arg(long, value_name = "X")]
    pub momentum: Option<f64>,
    /// Weight decay of sgd, nesterov and lars, of all weights [default: 0]
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
    /// The task that the learned start is tested on, and others beside it [default: --data]
    #[arg(long, value_name = "D")]
    pub test_data: Option<String>,
    /// Steps of a test [default: --inner-steps]
    #[arg(long, value_name = "N")]
    pub test_steps: Option<u64>,
    /// Seeds of the tests; none, no tests [default: 0,1,2]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub test_seeds: Option<Vec<u64>>,
    /// What the learned start is tested against: usual, kaiming, metainit, delta-orthogonal, and
    /// usual@lars=TRUST, the usual start with layer-wise rates; of scalers, bank and random
    /// [default: usual, of scalers bank and random]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub against: Option<Vec<String>>,
}
