//! Sequence networks from start to test: `wave init --arch mamba2`, and `finetune`, `eval` and `inspect`
//! of what it makes.
//!
//! They share the stages' commands, settings, training loop and run directories with networks of images;
//! what differs is what is read (tokens of a task instead of images) and how the model is kept: as
//! transformers' own Mamba and Mamba-2.

mod finetune;
mod init;
mod maps;
mod model;

pub use finetune::{describe as describe_finetune, eval, finetune};
pub use init::{architectures, describe, init, is_architecture};
pub use maps::inspect;
pub use model::SequenceModel;

use crate::recipe;
use anyhow::Result;
use serde::Serialize;

/// Refuses settings that mean nothing to a sequence network.
fn check_keys<T: Serialize>(settings: &T, known: &[&str]) -> Result<()> {
    recipe::check_keys(settings, known, "a sequence network")
}
