//! The layout that transformers reads natively: `model.safetensors`, `config.json` with a
//! `model_type`, `preprocessor_config.json`, and a card. The content of the files is the caller's.

use std::path::Path;

use serde_json::Value;

use crate::atomic::Staged;
use crate::directory::{
    CONFIG_FILE, Kind, MODEL_FILE, PREPROCESSOR_FILE, SCALERS_FILE, kind_of, read_config,
    write_artefact,
};
use crate::files::json_bytes;
use crate::float::cast;
use crate::model::read_model_weights;
use crate::{FloatType, HubError, Weights};

/// The index of weights that are split over several files.
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";

/// Reads a model in transformers' native layout: `config.json` as it is, and the weights under the names they have
/// there. For the preparation of images, see [`crate::read_preprocessing`].
pub fn read_transformers(dir: &Path) -> Result<(Value, Weights), HubError> {
    let (kind, config) = read_config(dir)?;
    if kind != Kind::Transformers {
        let found = format!("is {kind}, expected {}", Kind::Transformers);
        let remedy = "name a directory that transformers' `save_pretrained` wrote";
        return Err(HubError::malformed(dir, found, remedy));
    }
    let remedy = match dir.join(INDEX_FILE).exists() {
        true => "its weights are sharded: save it with a larger `max_shard_size`",
        false => "copy it there; save other formats again with `safe_serialization`",
    };
    Ok((config, read_model_weights(dir, remedy)?))
}

/// Writes a model in transformers' layout, as [`crate::write_model`] does: weights as `float` under their names there,
/// scalers, `preprocessor_config.json` if given, the card, and `config.json` last.
pub fn write_transformers(
    dir: &Path,
    config: &Value,
    preprocessor: Option<&Value>,
    weights: &Weights,
    scalers: Option<&Weights>,
    card: &str,
    float: FloatType,
) -> Result<(), HubError> {
    if kind_of(config) != Some(Kind::Transformers) {
        let found = "is not in transformers' layout, with a `model_type`";
        let path = dir.join(CONFIG_FILE);
        return Err(HubError::unwritable(&path, found, "correct it"));
    }
    let weights = cast(&dir.join(MODEL_FILE), weights, float)?;
    let (mut config, mut more) = (config.clone(), Vec::new());
    if let Some(steps) = preprocessor {
        let path = dir.join(PREPROCESSOR_FILE);
        more.push(Staged::from_bytes(&path, &json_bytes(&path, steps)?)?);
        if steps.get("pretrained_cfg").is_some() {
            // The class that lets timm prepare the images looks for its steps here.
            for key in ["image_processor_type", "pretrained_cfg"] {
                config[key] = steps[key].clone();
            }
        }
    }
    let files = [(MODEL_FILE, Some(&weights)), (SCALERS_FILE, scalers)];
    write_artefact(dir, &files, card, more, &config)
}

#[cfg(test)]
#[path = "transformers_tests.rs"]
mod tests;
