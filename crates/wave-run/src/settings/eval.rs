//! Keys of `wave eval`.

use super::{Images, ZeroShot};

keys! {
    /// Keys of `wave eval`: test examples and metrics.
    Eval => EvalValues {
        /// Attention heads of a transformer whose config.json lacks them
        #[arg(long, value_name = "N")]
        heads: usize;
        /// Images, or a task of a sequence network, as for `wave finetune` [default for sequence networks and
        /// populations: their training data]
        #[arg(long, value_name = "D")]
        data: String;
        /// Test on the first N images of a seeded shuffle [default: all]
        #[arg(long, value_name = "N")]
        test_limit: usize;
        /// Test on the N training images that `wave finetune --hold-out N` keeps apart
        #[arg(long, value_name = "N")]
        hold_out: usize;
        /// Evaluate features instead of class scores: accuracy of the N nearest training images (20 is usual), and of
        /// a linear probe. Needs no classifier
        #[arg(long, value_name = "N")]
        knn: usize;
        /// With --knn: at most N training images [default: all]
        #[arg(long, value_name = "N")]
        train_limit: usize;
        /// Seed of the shuffle [default: 0]
        #[arg(long, value_name = "N")]
        seed: u64 = 0;
    } with {
        zero_shot: ZeroShot => ZeroShot,
    }
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
