//! The delta directory: `delta.safetensors`, `config.json` and a card.
//!
//! Tensors of `delta.safetensors`, of which only the classifier has to be there:
//!
//! - `bank.{a}.{part}`: differences of scalers, at A anchors of relative depth 0..=1;
//! - `auxiliary.{name}`: differences of weights that are not composed, those of blocks at the same anchors;
//! - `auxiliary.head.weight`, `auxiliary.head.bias`: the classifier itself;
//! - `templates.{set}.left` (N, t, R) and `templates.{set}.right` (N, R, t): factors of differences of
//!   templates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::atomic::Staged;
use crate::digests::commit_artefact;
use crate::directory::{CARD_FILE, CONFIG_FILE, DELTA_FILE, Kind, promised_file, read_config};
use crate::float::cast;
use crate::scalers::check_names;
use crate::templates::{Accuracy, ShapeAccuracy, check_accuracies, check_version};
use crate::tensors::{read_weights, stage_tensors};
use crate::{FORMAT_VERSION, FloatType, HubError, Weights};

/// A delta directory's `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeltaConfig {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// SHA-256 of the `templates.safetensors` that the delta changes, as 64 lower-case hexadecimal digits.
    pub templates_sha256: String,
    /// The tensors that it has, those of blocks without their anchor; empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<String>,
    /// Anchors of the delta.
    pub anchors: usize,
    /// Classes of the classifier.
    pub classes: usize,
    /// One name per class, in the order of the logits; empty when they have none.
    pub label_names: Vec<String>,
    /// Provenance: templates, data, seed, version, epochs.
    pub provenance: Value,
    /// Accuracies measured at the sizes tried.
    pub accuracies: Vec<Accuracy>,
    /// Accuracies measured at other shapes; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeAccuracy>,
}

/// Reads a delta directory and checks that its file holds what its configuration says.
///
/// # Errors
/// [`HubError::Missing`] when the directory or one of the files is not there, [`HubError::Malformed`]
/// when it is an artefact of another kind or another format version, or a file is broken or
/// contradicts the other, [`HubError::Io`] when something cannot be read.
pub fn read_delta(dir: &Path) -> Result<(DeltaConfig, Weights), HubError> {
    let (kind, config) = read_config(dir)?;
    if kind != Kind::Delta {
        return Err(HubError::malformed(
            dir,
            format!("is {kind}, expected {}", Kind::Delta),
            "name the directory that `wave adapt` wrote",
        ));
    }
    let path = dir.join(CONFIG_FILE);
    check_version(&path, config.get("format_version"))?;
    let config: DeltaConfig = serde_json::from_value(config).map_err(|cause| {
        HubError::malformed(
            &path,
            format!("is not the configuration of a delta: {cause}"),
            "correct the file or adapt again",
        )
    })?;
    check_config(&config).map_err(|found| HubError::malformed(&path, found, "correct the file"))?;
    let path = promised_file(dir, DELTA_FILE, "copy it there, or adapt again")?;
    let weights = read_weights(&path)?;
    check_weights(&config, &weights).map_err(|found| {
        let remedy = format!("it does not belong to the {CONFIG_FILE} beside it: copy both again");
        HubError::malformed(&path, found, remedy)
    })?;
    Ok((config, weights))
}

/// Writes a delta directory: the weights as `float`, the card, and `config.json` last, as
/// [`write_templates`](crate::write_templates) does.
///
/// # Errors
/// [`HubError::Unwritable`] when [`read_delta`] would refuse the content, [`HubError::Io`] and
/// [`HubError::Tensor`] when the work fails.
pub fn write_delta(
    dir: &Path,
    config: &DeltaConfig,
    weights: &Weights,
    float: FloatType,
    card: &str,
) -> Result<(), HubError> {
    let config_path = dir.join(CONFIG_FILE);
    let path = dir.join(DELTA_FILE);
    let refuse = |path: &Path, found: String| HubError::unwritable(path, found, "correct it");
    check_config(config).map_err(|found| refuse(&config_path, found))?;
    check_weights(config, weights).map_err(|found| refuse(&path, found))?;
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let files = vec![
        stage_tensors(&path, &cast(&path, weights, float)?, &metadata)?,
        Staged::from_bytes(&dir.join(CARD_FILE), card.as_bytes())?,
    ];
    commit_artefact(dir, files, config)
}

fn check_config(config: &DeltaConfig) -> Result<(), String> {
    if config.format_version != FORMAT_VERSION {
        let found = config.format_version;
        return Err(format!(
            "`format_version` is {found}, expected {FORMAT_VERSION}"
        ));
    }
    let digest = &config.templates_sha256;
    let hexadecimal = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if digest.len() != 64 || !digest.chars().all(hexadecimal) {
        return Err(format!(
            "`templates_sha256` is `{digest}`, expected 64 lower-case hexadecimal digits"
        ));
    }
    for (name, value) in [("anchors", config.anchors), ("classes", config.classes)] {
        if value == 0 {
            return Err(format!("`{name}` is 0, expected at least 1"));
        }
    }
    let (names, classes) = (config.label_names.len(), config.classes);
    if names != 0 && names != classes {
        return Err(format!(
            "`label_names` has {names} names for {classes} classes"
        ));
    }
    let shapes = config.shapes.iter().map(|shape| shape.top1);
    check_accuracies(shapes.chain(config.accuracies.iter().map(|accuracy| accuracy.top1)))
}

/// Refuses tensors that contradict the configuration, and any that no delta holds.
fn check_weights(config: &DeltaConfig, weights: &Weights) -> Result<(), String> {
    let classes = |name: &str| {
        let head = weights.get(&format!("auxiliary.{name}"));
        let found = head.and_then(|t| t.dims().first()).copied();
        match found {
            Some(found) if found == config.classes => Ok(()),
            Some(found) => Err(format!(
                "tensor `auxiliary.{name}` has {found} classes, but {CONFIG_FILE} says {}",
                config.classes
            )),
            None => Err(format!("tensor `auxiliary.{name}` is missing")),
        }
    };
    classes("head.weight")?;
    classes("head.bias")?;
    let kinds: BTreeSet<String> = match config.tensors.is_empty() {
        true => weights.keys().map(|name| kind(name)).collect(),
        false => config.tensors.iter().cloned().collect(),
    };
    let anchors = config.anchors.min(weights.len() + 1); // one too many is enough to be missed
    let expected = kinds.iter().flat_map(|kind| stored(kind, anchors));
    check_names(&expected.collect(), weights)
}

/// The tensor of a learngene that a stored name is of.
fn kind(name: &str) -> String {
    match name.split('.').collect::<Vec<_>>()[..] {
        ["bank", _, part] => format!("bank.{part}"),
        ["auxiliary", "blocks", _, ref rest @ ..] => format!("blocks.{}", rest.join(".")),
        ["auxiliary", ref rest @ ..] => rest.join("."),
        _ => name.to_owned(),
    }
}

/// The stored names of a tensor of a learngene: one for each anchor, or one.
fn stored(kind: &str, anchors: usize) -> Vec<String> {
    let each = |prefix: &str, rest: &str| -> Vec<String> {
        (0..anchors)
            .map(|a| format!("{prefix}.{a}.{rest}"))
            .collect()
    };
    match kind.split_once('.') {
        Some(("bank", part)) => each("bank", part),
        Some(("blocks", rest)) => each("auxiliary.blocks", rest),
        Some(("templates", rest)) if rest.ends_with(".left") || rest.ends_with(".right") => {
            vec![kind.to_owned()]
        }
        _ => vec![format!("auxiliary.{kind}")],
    }
}

#[cfg(test)]
mod tests;
