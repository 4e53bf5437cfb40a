//! The artefacts that stages read and write: models, templates and deltas.
//!
//! 1. [`templates`] reads and writes a template directory; [`delta`] a change of its templates.
//! 2. [`model`] reads and writes a model directory, in a [`layout`], with its [`origin`] on the card;
//!    [`preprocessing`] reads how its images are prepared, [`classifier`] applies it to single images.
//! 3. [`towers`] reads a CLIP or SigLIP, [`zero_shot`] makes a classifier from one and class names.
//!
//! ```
//! use std::path::Path;
//!
//! let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/fashion-mnist");
//! let templates = wave_artefacts::templates::read(Path::new(dir))?;
//! let shape = templates.learngene.shape(3, 96, None)?; // 3 layers, width 96
//! let weights = templates.learngene.weights(&shape)?; // under timm's names
//! assert_eq!(weights["blocks.2.attn.qkv.weight"].dims(), [288, 96]);
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod classifier;
pub mod delta;
pub mod layout;
pub mod model;
pub mod origin;
pub mod preprocessing;
pub mod templates;
pub mod towers;
pub mod zero_shot;
