//! The layout that transformers reads natively: `model.safetensors`, `config.json` with a
//! `model_type`, `preprocessor_config.json`, and a card. The content of the files is the caller's.

use std::path::Path;

use serde_json::Value;

use crate::atomic::Staged;
use crate::directory::{
    CONFIG_FILE, DIGESTS, MODEL_FILE, PREPROCESSOR_FILE, SCALERS_FILE, write_artefact,
};
use crate::files::{json_bytes, read_json};
use crate::float::cast;
use crate::model::read_model_weights;
use crate::{FloatType, HubError, Weights};

/// The index of weights that are split over several files.
const INDEX_FILE: &str = "model.safetensors.index.json";

/// Reads a model in transformers' native layout: `config.json` as it is, and the weights under the names they have
/// there. For the preparation of images, see [`crate::read_preprocessing`].
///
/// # Errors
/// Also if `config.json` is not of this layout.
pub fn read_transformers(dir: &Path) -> Result<(Value, Weights), HubError> {
    let path = dir.join(CONFIG_FILE);
    let config: Value = read_json(&path)?;
    check(&config).map_err(|found| {
        let remedy = "name a directory that transformers' `save_pretrained` wrote";
        HubError::malformed(&path, found, remedy)
    })?;
    let remedy = match dir.join(INDEX_FILE).exists() {
        true => "its weights are sharded: save it with a larger `max_shard_size`",
        false => "copy it there; save other formats again with `safe_serialization`",
    };
    Ok((config, read_model_weights(dir, remedy)?))
}

/// Writes a model in transformers' native layout: weights under the names they have there, as
/// `float`; the scalers of an expanded model; `preprocessor_config.json` if given; the
/// card; and `config.json` last. Other files are treated as by [`crate::write_model`].
///
/// # Errors
/// Also if `config` has no `model_type`, or the weights do not fit `float`.
pub fn write_transformers(
    dir: &Path,
    config: &Value,
    preprocessor: Option<&Value>,
    weights: &Weights,
    scalers: Option<&Weights>,
    card: &str,
    float: FloatType,
) -> Result<(), HubError> {
    check(config)
        .map_err(|found| HubError::unwritable(&dir.join(CONFIG_FILE), found, "correct it"))?;
    let weights = cast(&dir.join(MODEL_FILE), weights, float)?;
    let mut more = Vec::new();
    if let Some(steps) = preprocessor {
        let path = dir.join(PREPROCESSOR_FILE);
        more.push(Staged::from_bytes(&path, &json_bytes(&path, steps)?)?);
    }
    let mut config = config.clone();
    if let Some(config) = config.as_object_mut() {
        config.remove(DIGESTS); // of what it was read with
    }
    let files = [(MODEL_FILE, Some(&weights)), (SCALERS_FILE, scalers)];
    write_artefact(dir, &files, card, more, &config)
}

fn check(config: &Value) -> Result<(), String> {
    if config.get("architecture").is_some() {
        return Err("has an `architecture`, so it is in timm's layout".to_owned());
    }
    match config.get("model_type") {
        Some(Value::String(_)) => Ok(()),
        Some(other) => Err(format!("`model_type` is {other}, expected a name")),
        None => Err("has no `model_type`".to_owned()),
    }
}

#[cfg(test)]
#[path = "transformers_tests.rs"]
mod tests;
