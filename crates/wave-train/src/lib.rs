//! The training loop.
//!
//! [`fit()`] does the following:
//!
//! 1. [`Batches`] provides the batch of a step.
//! 2. The caller's closure computes the loss of the batch, or of one [`MicroBatch`] after another. This
//!    is all that a stage adds: the loop knows neither networks nor files.
//! 3. The gradients are summed over micro-batches and over [`Ranks`], the processes that train one model
//!    together, and clipped.
//! 4. AdamW or Muon updates each [`Variable`] at the learning rate of the [`Schedule`]; then the EMA of the
//!    weights is updated.
//! 5. The caller's observer receives the [`Progress`] and the [`State`], to log, [`evaluate`] and save.
//!
//! A linear classifier, trained for a few steps:
//!
//! ```
//! use candle_core::{DType, Device, Tensor, Var};
//! use std::ops::ControlFlow;
//! use wave_data::{Augment, Batch, Loader, Transform};
//! use wave_train::{Alone, Curve, Hyperparameters, MicroBatch, Schedule, State, Variable};
//!
//! # fn main() -> Result<(), wave_train::TrainError> {
//! let data = wave_data::open("shapes")?;
//! let transform = Transform::new(8, vec![0.5], vec![0.25]);
//! let loader = Loader::train(data.train, (0..64).collect(), transform, Augment::NONE, 16, None, 0)?;
//!
//! let zeros = Tensor::zeros((64, 8), DType::F32, &Device::Cpu)?; // (pixels, classes)
//! let head = Var::from_tensor(&zeros)?;
//! let variables = [Variable {
//!     name: "head.weight".into(),
//!     var: head.clone(),
//!     rate: Some(1.0),
//!     weight_decay: 0.0,
//!     muon: None,
//! }];
//! let loss = |batch: &Batch, images: &Tensor, _: &MicroBatch| {
//!     let logits = images.flatten_from(1)?.matmul(head.as_tensor())?; // (b, classes)
//!     wave_ops::soft_cross_entropy(&logits, &wave_train::batch_targets(batch, 8, 0.0)?)
//! };
//! let hyperparameters = Hyperparameters {
//!     schedule: Schedule { peak: 0.01, steps: 20, curve: Curve::Cosine { warmup: 2, floor: 0.01 } },
//!     clip: Some(1.0),
//!     ema_decay: None,
//!     micro_batches: 2,
//! };
//! let mut state = State::new(&variables, false)?;
//! let mut losses = Vec::new();
//! wave_train::fit(&loader, &Alone, hyperparameters, &variables, &mut state, loss, |progress, _| {
//!     losses.push(progress.loss);
//!     Ok(ControlFlow::Continue(()))
//! })?;
//! assert!(losses[19] < losses[0]);
//! # Ok(())
//! # }
//! ```

mod accumulate;
mod batches;
mod fit;
mod loss;
mod metrics;
mod ranks;
mod schedule;
mod state;

pub use accumulate::MicroBatch;
pub use batches::{Batches, Examples};
pub use fit::{Hyperparameters, Progress, fit, step};
pub use loss::{batch_targets, smoothed_targets};
pub use metrics::{Scores, Tally, evaluate};
pub use ranks::{Alone, Ranks, sum_over};
pub use schedule::{Curve, Schedule};
pub use state::{State, Variable, fnv1a};

/// Why training stopped short.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
    /// A batch could not be made.
    #[error(transparent)]
    Data(#[from] wave_data::DataError),
    /// The observer failed, to log or to save.
    #[error(transparent)]
    Observer(Box<dyn std::error::Error + Send + Sync>),
    /// The loss or the gradient was not finite for too many steps in a row.
    #[error(
        "the loss or its gradient was not finite for {} steps in a row, last at step {step}; lower \
         the learning rate (now {learning_rate:e}), or lengthen the warm-up",
        fit::PATIENCE
    )]
    NonFinite {
        /// The last of them.
        step: u64,
        /// Learning rate at that step.
        learning_rate: f64,
    },
    /// A saved state does not belong to these variables.
    #[error("the saved state does not fit: {0}; resume with the recipe that wrote it")]
    Mismatch(String),
    /// The ranks do not hold the same weights.
    #[error(
        "the ranks hold different weights at step {step}; start all with the same program, \
         settings and files, on machines with the same instruction set or with the same WAVE_SIMD"
    )]
    Apart {
        /// Steps done.
        step: u64,
    },
    /// Training was interrupted after this many steps, which are saved.
    #[error("interrupted at step {0}; continue with --resume")]
    Interrupted(u64),
}
