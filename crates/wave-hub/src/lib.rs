//! Artefacts at rest: safetensors, JSON, atomic writes, model cards.
//!
//! Three kinds of directory pass between the stages, and this crate reads and writes them:
//!
//! - a **model directory** ([`read_model`], [`write_model`]): `model.safetensors`, `config.json`
//!   and `README.md` in the layout timm's `local-dir:` and `hf-hub:` loaders read, with
//!   `model.onnx` beside them if asked for ([`write_model_as`]);
//! - the same in transformers' native layout ([`read_transformers`], [`write_transformers`]);
//! - a **template directory** ([`read_templates`], [`write_templates`]): `templates.safetensors`,
//!   `config.json` and `README.md`.
//!
//! Three promises hold for everything written here. A file is complete or absent: it is written
//! under a temporary name, synced and renamed. A directory that has a `config.json` is complete:
//! that file is removed before the first of its neighbours changes and renamed into place last.
//! The same content gives the same bytes, whatever the run or the machine.
//!
//! Nothing that is read is trusted: every reader answers any bytes at all with a value or a
//! [`HubError`], never a panic. The crate knows names, shapes and element types; the network only
//! with its feature `hub`, and only when asked for a name on a hub.

use std::collections::BTreeMap;

mod atomic;
mod card;
mod differences;
mod digest;
mod directory;
mod error;
mod events;
mod files;
mod float;
mod header;
#[cfg(feature = "hub")]
pub mod hub;
mod model;
pub mod onnx;
mod preprocessing;
mod proto;
mod table;
mod templates;
mod tensors;
#[cfg(test)]
mod testing;
mod transformers;

pub use atomic::{prepare_out, remove_own_temporaries, remove_temporaries, write_atomic};
pub use card::{CardFront, card_license, model_card, with_license};
pub use digest::{sha256_file, sha256_hex};
pub use directory::{ARTEFACT_FILES, CARD_FILE, Kind, SCALERS_FILE, directory_kind};
pub use error::HubError;
pub use events::{EVENTS_FILE, EventWriter};
pub use files::{read_bytes, read_json, read_text, write_json};
pub use float::FloatType;
pub use model::{ModelConfig, ModuleNames, PretrainedCfg, read_model, write_model, write_model_as};
pub use preprocessing::{Preprocessing, read_preprocessing};
pub use table::{read_table, write_table};
pub use templates::{Accuracy, FORMAT_VERSION, TemplateConfig, read_templates, write_templates};
pub use tensors::{read_tensors, read_weights, write_tensors};
pub use transformers::{read_transformers, write_transformers};

/// Named tensors, in name order.
pub type Weights = BTreeMap<String, candle_core::Tensor>;
