//! Settings of trainings that draw the sizes of each step.

use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of every command whose steps draw from `--depths` and `--widths`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Sizes of a step")]
#[group(skip)]
pub struct Elastic {
    /// Share of the steps, 0 to 1, over which the largest depth and width grow from the smallest:
    /// small models first, since their steps cost less and teach larger models as much [default:
    /// 0.9; of finetune 0]
    #[arg(long, value_name = "X")]
    pub growth: Option<f64>,
    /// Exponent of that growth: 1 is linear, more stays small for longer [default: 3]
    #[arg(long, value_name = "P")]
    pub growth_power: Option<f64>,
}

/// Keys of `wave condense` and `adapt` on what else steps draw than depths and widths.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Shapes of a step")]
#[group(skip)]
pub struct Variants {
    /// Hidden channels of the MLP over the width, of which some models of a step draw one [default: the
    /// auxiliary's]
    #[arg(long, value_name = "X", value_delimiter = ',')]
    pub mlp_ratios: Option<Vec<f64>>,
    /// Channels of a head, of which some models of a step draw one that divides their width [default:
    /// the auxiliary's]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub head_widths: Option<Vec<usize>>,
    /// Sides of an image in pixels, of which some models of a step draw one: the images are resized
    /// [default: the auxiliary's]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub image_sizes: Option<Vec<usize>>,
    /// Sides of a patch in pixels, of which some models of a step draw one that divides their images
    /// [default: the auxiliary's]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub patches: Option<Vec<usize>>,
    /// Share of the models, 0 to 1, that draw from these lists; the others are like the auxiliary
    /// [default: 0.5]
    #[arg(long, value_name = "X")]
    pub variant_share: Option<f64>,
}
