//! Keys of `wave meta` with method ghn3: a graph hypernetwork and the transformers that it learns to make.

use clap::Args;
use serde::{Deserialize, Serialize};

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
