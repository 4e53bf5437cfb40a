//! Keys of `wave speed`.

use super::{PrecisionChoice, SpeedMode};

keys! {
    /// Keys of `wave speed`.
    Speed => SpeedValues {
        /// Workload [default: train]
        #[arg(long, value_name = "MODE")]
        mode: SpeedMode = SpeedMode::Train;
        /// Side of the image in pixels [default: 224]
        #[arg(long, value_name = "N")]
        image: usize = 224;
        /// Colour channels [default: 3]
        #[arg(long, value_name = "N")]
        channels: usize = 3;
        /// Side of a patch in pixels [default: 16]
        #[arg(long, value_name = "N")]
        patch: usize = 16;
        /// Blocks [default: 12]
        #[arg(long, value_name = "N")]
        depth: usize = 12;
        /// Channels of a token [default: 192]
        #[arg(long, value_name = "N")]
        width: usize = 192;
        /// Attention heads [default: width / 64]
        #[arg(long, value_name = "N")]
        heads: usize;
        /// Hidden channels of the MLP over the width [default: 4]
        #[arg(long, value_name = "X")]
        mlp_ratio: f64 = 4.0;
        /// Classes [default: 1000]
        #[arg(long, value_name = "N")]
        classes: usize = 1000;
        /// Classify a class token instead of the mean token [default: true]
        #[arg(long, value_name = "BOOL")]
        class_token: bool = true;
        /// Images in a step [default: 16]
        #[arg(long, value_name = "N")]
        batch: usize = 16;
        /// Steps to measure [default: 10]
        #[arg(long, value_name = "N")]
        steps: usize = 10;
        /// Also measure the processor's peak rate of multiply-adds, and the fraction that the workload reaches [default: false]
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        peak: bool = false;
        /// Precision of the blocks' matrix products [default: f32]
        #[arg(long, value_name = "P")]
        precision: PrecisionChoice = PrecisionChoice::F32;
        /// Activation checkpointing: compute a block's activations again in the backward pass
        /// [default: false]
        #[arg(long, value_name = "BOOL")]
        recompute: bool = false;
    }
}
