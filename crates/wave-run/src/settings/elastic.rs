//! Settings of elastic training, which samples the sizes of each step.

use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of every command whose steps sample from `--depths` and `--widths`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Sizes of a step")]
#[group(skip)]
pub struct Elastic {
    /// Fraction of training, 0 to 1, over which sampled sizes grow from the smallest (curriculum) [default: 0.9; of
    /// finetune 0]
    #[arg(long, value_name = "X")]
    pub growth: Option<f64>,
    /// Exponent of the growth curve: 1 is linear, more stays small for longer [default: 3]
    #[arg(long, value_name = "P")]
    pub growth_power: Option<f64>,
}

/// Keys of `wave condense` and `adapt` for shapes sampled beside depth and width.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Shapes of a step")]
#[group(skip)]
pub struct Variants {
    /// MLP ratios (hidden channels over width) that some models of a step sample from [default: the auxiliary's]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub mlp_ratios: Option<Vec<f64>>,
    /// Head widths that some models of a step sample from, of those that divide their width [default: the auxiliary's]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub head_widths: Option<Vec<usize>>,
    /// Image sides in pixels that some models of a step sample from; images are resized [default: the auxiliary's]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub image_sizes: Option<Vec<usize>>,
    /// Patch sides in pixels that some models of a step sample from, of those that divide their images [default: the
    /// auxiliary's]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub patches: Option<Vec<usize>>,
    /// Fraction of models, 0 to 1, that sample from these lists; the rest are like the auxiliary [default: 0.5]
    #[arg(long, value_name = "X")]
    pub variant_share: Option<f64>,
}
