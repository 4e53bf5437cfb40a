//! The stages, and the artefacts that they read and write.
//!
//! 1. [`condense`] distils an [`ancestor`] into weight templates; [`cache`] keeps the ancestor's outputs.
//! 2. [`templates`] reads and writes a template directory.
//! 3. [`expand`] makes a model of any size from one; [`budget`] chooses a size within limits.
//!    [`adapt`] fits templates to other data for all sizes at once; [`delta`] reads and writes the
//!    result.
//! 4. [`init`] makes a model in closed form instead.
//! 5. [`finetune`] trains a model, [`eval`] measures it, [`speed`] times it.
//! 6. [`model`] reads and writes a model directory, in a [`layout`], with its [`origin`] on the card.
//! 7. [`towers`] reads a CLIP or SigLIP, [`zero_shot`] makes a classifier from one and class names.
//!
//! Each stage first turns its settings into a plan; the code below never sees settings.
//!
//! ```
//! use std::path::Path;
//!
//! let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/fashion-mnist");
//! let templates = wave_stages::templates::read(Path::new(dir))?;
//! let shape = templates.learngene.shape(3, 96, None)?; // 3 layers, width 96
//! let weights = templates.learngene.weights(&shape)?; // under timm's names
//! assert_eq!(weights["blocks.2.attn.qkv.weight"].dims(), [288, 96]);
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod adapt;
pub mod ancestor;
pub mod budget;
pub mod cache;
pub mod classifier;
pub mod condense;
pub mod delta;
mod distill_targets;
mod elastic;
pub mod eval;
pub mod expand;
pub mod finetune;
pub mod init;
pub mod layout;
pub mod model;
pub mod origin;
pub mod preprocessing;
mod probe;
mod record;
pub mod score;
pub mod speed;
pub mod templates;
mod timing;
pub mod towers;
pub mod zero_shot;
