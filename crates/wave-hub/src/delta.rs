//! The delta directory: `delta.safetensors`, `config.json` and a card. Its tensors (`crates/FORMATS.md`) are differences,
//! and the classifier, which alone is required.

use std::collections::BTreeSet;
use std::path::Path;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::is_hex;
use crate::directory::{CONFIG_FILE, DELTA_FILE, Kind};
use crate::numbers::check_label_names;
use crate::templates::{Accuracy, ShapeAccuracy, check_top1};
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
pub fn read_delta(dir: &Path) -> Result<(DeltaConfig, Weights), HubError> {
    read(dir)
}

/// Writes a delta directory: the weights as `float`, the card, and `config.json` last.
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
    const VERB: &'static str = "adapt";

    fn check(&self) -> Result<(), String> {
        let digest = &self.templates_sha256;
        if digest.len() != 64 || !is_hex(digest) {
            return Err(format!(
                "`templates_sha256` is `{digest}`, expected 64 lower-case hexadecimal digits"
            ));
        }
        check_sizes(&[("anchors", self.anchors), ("classes", self.classes)])?;
        check_label_names(&self.label_names, self.classes)?;
        check_top1(&self.accuracies, &self.shapes)
    }

    fn check_weights(&self, weights: &Weights) -> Result<(), String> {
        let classes = self.classes;
        for name in ["auxiliary.head.weight", "auxiliary.head.bias"] {
            let found = weights.get(name).and_then(|head| head.dims().first());
            let found = *found.ok_or_else(|| format!("tensor `{name}` is missing"))?;
            if found != classes {
                return Err(format!(
                    "tensor `{name}` has {found} classes, but {CONFIG_FILE} says {classes}"
                ));
            }
        }
        let kinds: BTreeSet<String> = match self.tensors.is_empty() {
            true => weights.keys().map(|name| kind(name)).collect(),
            false => self.tensors.iter().cloned().collect(),
        };
        let anchors = self.anchors.min(weights.len() + 1); // one too many is enough to be missed
        let expected = kinds.iter().flat_map(|kind| stored(kind, anchors));
        check_names(&expected.collect(), weights)?;
        let mut kinds = kinds.iter();
        kinds.try_for_each(|kind| check_anchors(&stored(kind, anchors), weights))
    }
}

/// Refuses anchors whose shapes differ from that of the first.
fn check_anchors(names: &[String], weights: &Weights) -> Result<(), String> {
    let shape = |name: &String| weights.get(name).map_or(&[][..], Tensor::dims);
    let mut pairs = names.iter().zip(names.iter().skip(1));
    match pairs.find(|(one, next)| shape(one) != shape(next)) {
        Some((one, next)) => Err(format!(
            "tensor `{next}` has shape {:?}, unlike `{one}` with {:?}: anchors cannot be \
             interpolated",
            shape(next),
            shape(one)
        )),
        None => Ok(()),
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
    let (prefix, rest) = match kind.split_once('.') {
        Some(("bank", part)) => ("bank", part),
        Some(("blocks", rest)) => ("auxiliary.blocks", rest),
        Some(("templates", rest)) if rest.ends_with(".left") || rest.ends_with(".right") => {
            return vec![kind.to_owned()];
        }
        _ => return vec![format!("auxiliary.{kind}")],
    };
    let names = (0..anchors).map(|a| format!("{prefix}.{a}.{rest}"));
    names.collect()
}

#[cfg(test)]
mod tests;
