//! The one training loop.
//!
//! [`fit()`] trains named variables on batches. What a stage trains, and towards what, is the
//! closure it passes: a batch goes in, a loss comes out. The loop knows neither networks nor
//! files: it hands its [`State`] to an observer, which logs, evaluates and saves. Several processes
//! train as one, each on its share of every batch: [`Ranks`].
//!
//! [`unrolled`] is no second loop to train models with, but a training small enough to be differentiated.

mod accumulate;
mod batches;
mod fit;
mod loss;
mod metrics;
mod ranks;
mod schedule;
mod second_order;
mod state;
pub mod unrolled;

pub use accumulate::MicroBatch;
pub use batches::{Batches, Examples};
pub use fit::{Flow, Hyperparameters, Progress, fit, step};
pub use loss::{batch_targets, smoothed_targets};
pub use metrics::{Scores, TokenScores, evaluate, evaluate_tokens};
pub use ranks::{Alone, Ranks, sum_over};
pub use schedule::Schedule;
pub use second_order::second_order;
pub use state::{Rate, State, Variable};

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
    /// The loss or the gradient was not a number for too many steps in a row.
    #[error(
        "the loss or its gradient was not finite for {count} steps in a row, last at step {step}; \
         lower the learning rate (now {learning_rate:e}), or lengthen the warm-up"
    )]
    NonFinite {
        /// Steps in a row.
        count: u32,
        /// The last of them.
        step: u64,
        /// Learning rate there.
        learning_rate: f64,
    },
    /// A saved state does not belong to these variables.
    #[error("the saved state does not fit: {0}; resume with the recipe that wrote it")]
    Mismatch(String),
    /// The ranks do not hold the same weights.
    #[error(
        "the ranks do not hold the same weights at step {step}; start all with the same program, \
         settings and files, on machines of one instruction set or with WAVE_SIMD set alike"
    )]
    Apart {
        /// Steps done.
        step: u64,
    },
    /// The observer asked to stop.
    #[error("interrupted at step {0}; continue with --resume")]
    Interrupted(u64),
}
