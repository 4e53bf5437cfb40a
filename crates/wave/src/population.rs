//! Populations from start to statistics: `wave init --arch population`, and `finetune`, `eval` and
//! `inspect` of what it makes.
//!
//! They share the stages' commands, settings, data, training loop and run directories with single
//! networks; what differs is that every network has images of its own in a step, and that what is looked
//! at is what the networks' weights have in common.

mod finetune;
mod init;
mod inspect;
mod model;

pub use finetune::{describe as describe_finetune, eval, finetune};
pub use init::{describe, init, is_architecture};
pub use inspect::inspect;
pub use model::{PopulationModel, is_model};

/// The name of the architecture.
pub const ARCHITECTURE: &str = "population";

/// What messages call it.
const WHAT: &str = "a population";
