//! Keys of `wave speed`.

use super::{PrecisionChoice, SpeedMode};
use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of `wave speed`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Speed {
    /// Workload [default: train]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<SpeedMode>,
    /// Side of the image in pixels [default: 224]
    #[arg(long, value_name = "N")]
    pub image: Option<usize>,
    /// Colour channels [default: 3]
    #[arg(long, value_name = "N")]
    pub channels: Option<usize>,
    /// Side of a patch in pixels [default: 16]
    #[arg(long, value_name = "N")]
    pub patch: Option<usize>,
    /// Blocks [default: 12]
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
    /// Channels of a token [default: 192]
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Attention heads [default: width / 64]
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Hidden channels of the MLP over the width [default: 4]
    #[arg(long, value_name = "X")]
    pub mlp_ratio: Option<f64>,
    /// Classes [default: 1000]
    #[arg(long, value_name = "N")]
    pub classes: Option<usize>,
    /// Classify a class token instead of the mean token [default: true]
    #[arg(long, value_name = "BOOL")]
    pub class_token: Option<bool>,
    /// Images in a step [default: 16]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Steps to measure [default: 10]
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Also measure the processor's peak rate of multiply-adds, and the fraction that the workload reaches
    #[arg(long)]
    #[serde(default)]
    pub peak: bool,
    /// Precision of the blocks' matrix products [default: f32]
    #[arg(long, value_name = "P")]
    pub precision: Option<PrecisionChoice>,
    /// Activation checkpointing: compute a block's activations again in the backward pass
    /// [default: false]
    #[arg(long, value_name = "BOOL")]
    pub recompute: Option<bool>,
}
