//! The settings of sequence networks.

use clap::Args;
use serde::{Deserialize, Serialize};
use wave_run::settings::{Checkpointing, Optimisation, Output};

/// Flags of `wave init` for sequence networks alone: sizes and choices.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Sequence networks")]
#[group(skip)]
pub struct Flags {
    /// What makes tokens of --data text:FILE: a tokenizer.json, which is copied into the model [default: a
    /// token is a character]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<String>,
    /// Size of the state of each channel [default: 128 for mamba2, 16 for mamba], and of the queries
    /// and keys of linear attention
    #[arg(long, value_name = "N")]
    pub state: Option<usize>,
    /// Layers, counted from 0, that are softmax attention instead: a hybrid
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub attention_layers: Option<Vec<usize>>,
    /// Layers, counted from 0, that are linear attention instead
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub linear_attention_layers: Option<Vec<usize>>,
    /// Parts of a mimetic start: state, step, correlation, convolution [default: all for mamba2, the
    /// first three for mamba]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub parts: Option<Vec<String>>,
    /// Factor c of part state, A = -exp(-c A_log); the thesis takes 2, 4 or 8 [default: 8]
    #[arg(long, value_name = "X")]
    pub state_power: Option<f64>,
    /// Layers, counted from 0, with a mimetic start [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub mimetic_layers: Option<Vec<usize>>,
    /// Layer of --from, counted from 0, that every layer of pretrained-layer is a copy of
    #[arg(long, value_name = "N")]
    pub donor_layer: Option<usize>,
}

/// The settings of `wave init` for a sequence network.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct Init {
    pub(super) arch: Option<String>,
    pub(super) depth: Option<usize>,
    pub(super) width: Option<usize>,
    pub(super) heads: Option<usize>,
    pub(super) kernel: Option<usize>,
    pub(super) mlp_ratio: Option<f64>,
    pub(super) qk: Option<Vec<f64>>,
    pub(super) vp: Option<Vec<f64>>,
    pub(super) from: Option<String>,
    pub(super) data: Option<String>,
    pub(super) seed: Option<u64>,
    #[serde(flatten)]
    pub(super) own: Flags,
    #[serde(flatten)]
    pub(super) output: Output,
}

/// The settings of `wave finetune` for a sequence network.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct Finetune {
    pub(super) data: Option<String>,
    pub(super) test_limit: Option<usize>,
    pub(super) freeze: Option<Vec<String>>,
    #[serde(flatten)]
    pub(super) optimisation: Optimisation,
    #[serde(flatten)]
    pub(super) saving: Checkpointing,
    #[serde(flatten)]
    pub(super) output: Output,
}
