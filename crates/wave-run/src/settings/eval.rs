//! Keys of `wave eval`.

use super::{Images, ZeroShot};
use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of `wave eval`: test examples and metrics.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Eval {
    /// Attention heads of a transformer whose config.json lacks them
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Images, or a task of a sequence network, as for `wave finetune` [default for sequence networks and populations:
    /// their training data]
    #[arg(long, value_name = "D")]
    pub data: Option<String>,
    /// Test on the first N images of a seeded shuffle [default: all]
    #[arg(long, value_name = "N")]
    pub test_limit: Option<usize>,
    /// Test on the N training images that `wave finetune --hold-out N` keeps apart
    #[arg(long, value_name = "N")]
    pub hold_out: Option<usize>,
    /// Evaluate features instead of class scores: accuracy of the N nearest training images (20 is usual), and of
    /// a linear probe. Needs no classifier
    #[arg(long, value_name = "N")]
    pub knn: Option<usize>,
    /// With --knn: at most N training images [default: all]
    #[arg(long, value_name = "N")]
    pub train_limit: Option<usize>,
    /// Seed of the shuffle [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub zero_shot: ZeroShot,
}

impl Eval {
    /// The test images.
    pub fn images(&self) -> Images {
        Images {
            data: self.data.clone(),
            train_limit: self.train_limit,
            test_limit: self.test_limit,
            hold_out: self.hold_out,
            ..Images::default()
        }
    }
}
