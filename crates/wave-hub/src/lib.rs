//! Artefacts on disk: safetensors, JSON, atomic writes, model cards.
//!
//! Stages exchange directories, and this crate reads and writes them:
//!
//! - a **model directory** in timm's layout ([`read_model`], [`write_model`]), with `model.onnx` if requested, or in
//!   transformers' ([`read_transformers`], [`write_transformers`]);
//! - a **template directory** ([`read_templates`], [`write_templates`]);
//! - a **delta directory** ([`read_delta`], [`write_delta`]).
//!
//! Each has its weights, `config.json` and a card. To write one, its files are staged under temporary names and synced,
//! the old `config.json` is removed, the files are renamed, and the new `config.json` comes last. So a file is complete
//! or absent, and a directory with a `config.json` is complete. The same content gives the same bytes, whatever the run
//! or the machine. On reading, `config.json` gives the kind; for any bytes, a reader returns a value or a [`HubError`],
//! and never panics.
//!
//! There are also tables with a checksum ([`write_table`]), TensorBoard's event files ([`EventWriter`]) and, with the
//! feature `hub`, downloads from a hub and publishing to it. The crate knows names, shapes and element types, but
//! nothing about networks.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use wave_hub::{FloatType, ModelConfig, Weights, read_model, write_model};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ModelConfig {
//!     architecture: "vit_tiny_patch16_224".into(),
//!     num_classes: 2,
//!     label_names: Some(vec!["cat".into(), "dog".into()]),
//!     ..ModelConfig::default()
//! };
//! let head = Tensor::new(&[[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::Cpu)?;
//! let weights = Weights::from([("head.weight".to_owned(), head)]);
//!
//! let dir = tempfile::tempdir()?;
//! write_model(dir.path(), &config, &weights, None, "# Cats and dogs\n", FloatType::F32, false)?;
//! let (read, weights) = read_model(dir.path())?;
//! assert_eq!(read, config);
//! assert_eq!(weights["head.weight"].dims(), [2, 3]);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;

mod atomic;
mod card;
mod delta;
mod digest;
mod directory;
mod element;
mod error;
mod events;
mod files;
mod float;
mod header;
#[cfg(feature = "hub")]
pub mod hub;
mod model;
mod numbers;
mod onnx;
mod pickle;
mod prefix;
mod preprocessing;
mod proto;
mod scalers;
mod table;
mod templates;
mod tensors;
#[cfg(test)]
mod testing;
mod transformers;
mod versioned;

pub use atomic::{
    is_stream, prepare_out, remove_own_temporaries, remove_temporaries, write_atomic, write_named,
};
pub use card::{
    CardFront, CardResult, PAPER, card_interface, card_timm, card_transformers, millions,
    model_card, stated_license, with_license,
};
pub use delta::{DeltaConfig, read_delta, write_delta};
pub use digest::{sha256_file, sha256_hex};
pub use directory::{
    ARTEFACT_FILES, Kind, PICTURE_FILE, TOKENIZER_FILE, UNREAD_FILES, check_digest, check_digests,
    directory_kind, model_directory,
};
pub use error::{Fault, HubError};
pub use events::{EVENTS_FILE, EventWriter};
pub use files::{read_bytes, read_json, read_text, write_json};
pub use float::FloatType;
pub use model::{ModelConfig, PretrainedCfg, read_model, write_model};
pub use numbers::{FLOOR, HALF_TO_EVEN};
pub use prefix::on_hub;
pub use preprocessing::{Preprocessing, Source, Told, read_preprocessing};
pub use scalers::read_scalers;
pub use table::{read_table, write_table};
pub use templates::{
    Accuracy, LevelConfig, ShapeAccuracy, TemplateConfig, read_templates, write_templates,
};
pub use tensors::{not_finite, read_tensors, read_weights, write_tensors};
pub use transformers::{read_transformers, write_transformers};
pub use versioned::FORMAT_VERSION;

/// Named tensors, in name order.
pub type Weights = BTreeMap<String, candle_core::Tensor>;

/// Free text in a file, by key.
pub type Metadata = BTreeMap<String, String>;
