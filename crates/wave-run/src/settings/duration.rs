//! The duration of training: `epochs` or `steps`.

/// Duration of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Duration {
    /// Passes over the training images.
    Epochs(f64),
    /// Optimiser steps.
    Steps(u64),
}

impl Duration {
    /// The number of steps, given those of an epoch.
    pub fn steps(self, per_epoch: usize) -> u64 {
        match self {
            Duration::Epochs(epochs) => (epochs * per_epoch as f64).round() as u64,
            Duration::Steps(steps) => steps,
        }
    }
}
