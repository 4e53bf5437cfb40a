//! The delta directory: `delta.safetensors`, `config.json` and a card.
//!
//! Tensors of `delta.safetensors`; only the classifier is required:
//!
//! - `bank.{a}.{part}`: differences of scalers, at A anchors of relative depth 0..=1;
//! - `auxiliary.{name}`: differences of weights that are not composed, those of blocks at the same anchors;
//! - `auxiliary.head.weight`, `auxiliary.head.bias`: the classifier itself;
//! - `templates.{set}.left` (N, t, R) and `templates.{set}.right` (N, R, t): factors of differences of
//!   templates.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::is_hex;
use crate::directory::{CONFIG_FILE, DELTA_FILE, Kind};
use crate::templates::{Accuracy, ShapeAccuracy, check_results};
use crate::versioned::{Versioned, check_names, check_sizes, read, write};
use crate::{FloatType, HubError, Weights};

/// A delta directory's `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeltaConfig {
    /// [`FORMAT_VERSION`](crate::FORMAT_VERSION).
    pub format_version: u32,
    /// SHA-256 of the `templates.safetensors` that the delta changes, as 64 lower-case hexadecimal digits.
    pub templates_sha256: String,
    /// The tensors of the delta, block tensors without their anchor; empty in older files.
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
    read(dir)
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
    write(dir, config, weights, float, card, Vec::new())
}

impl Versioned for DeltaConfig {
    const KIND: Kind = Kind::Delta;
    const FILE: &'static str = DELTA_FILE;
    const NOUN: &'static str = "a delta";
    const VERB: &'static str = "adapt";

    fn version(&self) -> u32 {
        self.format_version
    }

    fn check(&self) -> Result<(), String> {
        let digest = &self.templates_sha256;
        if digest.len() != 64 || !is_hex(digest) {
            return Err(format!(
                "`templates_sha256` is `{digest}`, expected 64 lower-case hexadecimal digits"
            ));
        }
        check_sizes(&[("anchors", self.anchors), ("classes", self.classes)])?;
        check_results(
            &self.label_names,
            self.classes,
            &self.accuracies,
            &self.shapes,
        )
    }

    fn check_weights(&self, weights: &Weights) -> Result<(), String> {
        let classes = |name: &str| {
            let head = weights.get(&format!("auxiliary.{name}"));
            let found = head.and_then(|t| t.dims().first()).copied();
            match found {
                Some(found) if found == self.classes => Ok(()),
                Some(found) => Err(format!(
                    "tensor `auxiliary.{name}` has {found} classes, but {CONFIG_FILE} says {}",
                    self.classes
                )),
                None => Err(format!("tensor `auxiliary.{name}` is missing")),
            }
        };
        classes("head.weight")?;
        classes("head.bias")?;
        let kinds: BTreeSet<String> = match self.tensors.is_empty() {
            true => weights.keys().map(|name| kind(name)).collect(),
            false => self.tensors.iter().cloned().collect(),
        };
        let anchors = self.anchors.min(weights.len() + 1); // one too many is enough to be missed
        let expected = kinds.iter().flat_map(|kind| stored(kind, anchors));
        check_names(&expected.collect(), weights)
    }
}

/// The learngene tensor that a stored name belongs to.
fn kind(name: &str) -> String {
    match name.split('.').collect::<Vec<_>>()[..] {
        ["bank", _, part] => format!("bank.{part}"),
        ["auxiliary", "blocks", _, ref rest @ ..] => format!("blocks.{}", rest.join(".")),
        ["auxiliary", ref rest @ ..] => rest.join("."),
        _ => name.to_owned(),
    }
}

/// The stored names of a learngene tensor: one for each anchor, or a single one.
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
