//! The template directory: `templates.safetensors`, `config.json`, a card, and a program that expands models from
//! them with only numpy. Its tensors (`crates/FORMATS.md`): `templates.{set}` of shape (N, t, t), `bank.{k}.{part}` of
//! shape (N, rows/t, cols/t), and the weights of the auxiliary that are not composed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::atomic::Staged;
use crate::directory::{CONFIG_FILE, EXPAND_FILE, Kind, TEMPLATES_FILE};
use crate::float::largest;
use crate::numbers::{FLOOR, HALF_TO_EVEN, check_label_names, check_numbers, check_word};
use crate::preprocessing::{Preprocessing, Source, Told};
use crate::versioned::{Versioned, check_names, check_sizes, read, write};
use crate::{FloatType, HubError, Weights};

/// The program [`EXPAND_FILE`], the same in every directory.
pub(crate) const EXPAND: &[u8] = include_bytes!("templates/expand.py");

/// The weight components that are composed from templates.
pub(crate) const PARTS: [&str; 4] = ["qkv", "proj", "fc1", "fc2"];

/// A template directory's `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TemplateConfig {
    /// [`FORMAT_VERSION`](crate::FORMAT_VERSION).
    pub format_version: u32,
    /// The Kronecker product of a scaler and a template: `tile` for S (x) T, `interleave` for T (x) S.
    pub kronecker: String,
    /// The side t of every template.
    pub template_size: usize,
    /// Templates in each set.
    pub counts: BTreeMap<String, usize>,
    /// The set that each part takes its templates from.
    pub sets: BTreeMap<String, String>,
    /// Levels of size, the smallest first, if models of some sizes have their own values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelConfig>,
    /// Anchors of the scaler bank, at relative depths 0..=1.
    pub anchors: usize,
    /// The relative depth of layer l of L: `l/(L-1)`, the default, or `l/L`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_rule: Option<String>,
    /// The shape of the auxiliary: depth, width, heads and the like.
    pub auxiliary: Map<String, Value>,
    /// The width of one attention head.
    pub head_width: usize,
    /// The side of a patch, in pixels.
    pub patch: usize,
    /// The side of an image, in pixels.
    pub image_size: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Classes of the auxiliary.
    pub classes: usize,
    /// One name per class, in the order of the logits; empty when they have none.
    pub label_names: Vec<String>,
    /// Subtracted from each channel, in units of 0..=1.
    pub mean: Vec<f64>,
    /// Each channel is then divided by it.
    pub std: Vec<f64>,
    /// The side of the crop over the side of the resized image.
    pub crop_pct: f64,
    /// The filter that images are resized with, in timm's words; `bicubic` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpolation: Option<String>,
    /// Crop mode, in timm's words; `center` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop_mode: Option<String>,
    /// The rounding of a crop's offset, [`crate::FLOOR`]; [`crate::HALF_TO_EVEN`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop_offset: Option<String>,
    /// Provenance: recipe, ancestor, data, seed, version, epochs.
    pub provenance: Value,
    /// Accuracies measured at the sizes tried.
    pub accuracies: Vec<Accuracy>,
    /// Accuracies of models that differ from the auxiliary in more than depth and width.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeAccuracy>,
}

impl TemplateConfig {
    /// Numbers of the provenance by `key`, such as `widths`: condensed sizes, or values sampled beside the auxiliary's.
    pub fn sampled(&self, key: &str) -> Vec<f64> {
        let all = self.provenance[key].as_array().into_iter().flatten();
        all.filter_map(Value::as_f64).collect()
    }

    /// Epochs of the condensations that the templates grew from, if any, and then of their own.
    pub fn all_epochs(&self) -> Vec<f64> {
        let mut epochs = Vec::new();
        let mut record = Some(&self.provenance);
        while let Some(own) = record {
            epochs.insert(0, own["epochs"].as_f64().unwrap_or(0.0));
            record = own.get("grown").filter(|grown| !grown.is_null());
        }
        epochs
    }

    /// The preprocessing of images.
    pub fn preprocessing(&self) -> Preprocessing {
        let told = |key: &str| Source::File(format!("{CONFIG_FILE}: {key}"));
        let named = |name: &Option<String>, usual: &str, key: &str| match name {
            Some(name) => Told::new(name.clone(), &told(key)),
            None => Told::new(usual.to_owned(), &Source::Class("templates".to_owned())),
        };
        Preprocessing {
            channels: self.channels,
            size: Told::new([self.image_size; 2], &told("image_size")),
            interpolation: named(&self.interpolation, "bicubic", "interpolation"),
            crop_pct: Told::new(self.crop_pct, &told("crop_pct")),
            crop_mode: named(&self.crop_mode, "center", "crop_mode"),
            crop_offset: named(&self.crop_offset, HALF_TO_EVEN, "crop_offset"),
            mean: Told::new(self.mean.clone(), &told("mean")),
            std: Told::new(self.std.clone(), &told("std")),
        }
    }
}

/// Models up to a size, except those of smaller levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelConfig {
    /// Maximum number of layers.
    pub depth: usize,
    /// Maximum width of the tokens.
    pub width: usize,
    /// Templates of each set.
    pub counts: BTreeMap<String, usize>,
}

/// The accuracy of one model of another shape, expanded from the templates without data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeAccuracy {
    /// Layers.
    pub depth: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Hidden channels of the MLP over the width.
    pub mlp_ratio: f64,
    /// The side of an image, in pixels.
    pub image_size: usize,
    /// The side of a patch, in pixels.
    pub patch: usize,
    /// Top-1 accuracy, in 0..=1.
    pub top1: f64,
}

/// The accuracy of one model expanded from the templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Layers.
    pub depth: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Top-1 accuracy, in 0..=1.
    pub top1: f64,
    /// The conditions of the measurement, in words.
    pub condition: String,
}

/// Reads a template directory and checks that its file holds what its configuration says, and no templates of zeros.
pub fn read_templates(dir: &Path) -> Result<(TemplateConfig, Weights), HubError> {
    let (config, weights) = read::<TemplateConfig>(dir)?;
    let path = dir.join(TEMPLATES_FILE);
    let all = weights.iter();
    for (name, t) in all.filter(|(name, _)| name.contains("templates.")) {
        if largest(t).map_err(HubError::tensor(&path, name))? == 0.0 {
            let found = format!("tensor `{name}` is 0 everywhere, expected templates");
            return Err(HubError::malformed(&path, found, "condense again"));
        }
    }
    Ok((config, weights))
}

/// Writes a template directory: the weights as `float`, the card `README.md`, `expand.py`, and `config.json` last.
pub fn write_templates(
    dir: &Path,
    config: &TemplateConfig,
    weights: &Weights,
    float: FloatType,
    card: &str,
) -> Result<(), HubError> {
    let program = Staged::from_bytes(&dir.join(EXPAND_FILE), EXPAND)?;
    write(dir, config, weights, float, card, vec![program])
}

impl Versioned for TemplateConfig {
    const KIND: Kind = Kind::Templates;
    const FILE: &'static str = TEMPLATES_FILE;
    const VERB: &'static str = "condense";

    fn check(&self) -> Result<(), String> {
        let roundings = [HALF_TO_EVEN, FLOOR];
        check_word("kronecker", Some(&self.kronecker), ["tile", "interleave"])?;
        check_word("depth_rule", self.depth_rule.as_deref(), ["l/(L-1)", "l/L"])?;
        check_word("crop_offset", self.crop_offset.as_deref(), roundings)?;
        check_sizes(&[
            ("template_size", self.template_size),
            ("anchors", self.anchors),
            ("head_width", self.head_width),
            ("patch", self.patch),
            ("image_size", self.image_size),
            ("channels", self.channels),
        ])?;
        let parts: BTreeSet<&str> = self.sets.keys().map(String::as_str).collect();
        if parts != BTreeSet::from(PARTS) {
            return Err(format!(
                "`sets` names the parts {parts:?}, expected {PARTS:?}"
            ));
        }
        let used: BTreeSet<&String> = self.sets.values().collect();
        let counted: BTreeSet<&String> = self.counts.keys().collect();
        if used != counted {
            return Err(format!(
                "`sets` uses {used:?}, but `counts` counts {counted:?}"
            ));
        }
        if let Some((set, _)) = self.counts.iter().find(|(_, count)| **count == 0) {
            return Err(format!("`counts` gives the set `{set}` no template"));
        }
        for level in &self.levels {
            if level.counts.len() != counted.len() {
                let sets: Vec<_> = level.counts.keys().collect();
                return Err(format!(
                    "`levels` counts the sets {sets:?}, expected {counted:?}"
                ));
            }
        }
        check_numbers(&self.mean, &self.std, self.crop_pct)?;
        let (n, channels) = (self.mean.len(), self.channels);
        if n != channels {
            return Err(format!("`mean` has {n} values for {channels} channels"));
        }
        check_label_names(&self.label_names, self.classes)?;
        check_top1(&self.accuracies, &self.shapes)
    }

    fn check_weights(&self, weights: &Weights) -> Result<(), String> {
        let mut expected = check_level(self, "", &self.counts, weights)?;
        let smaller = self.levels.len().saturating_sub(1);
        for (at, level) in self.levels[..smaller].iter().enumerate().rev() {
            let prefix = format!("levels.{at}.");
            expected.extend(check_level(self, &prefix, &level.counts, weights)?);
        }
        check_names(&expected, weights)
    }
}

/// Refuses accuracies outside 0..=1.
pub(crate) fn check_top1(accuracies: &[Accuracy], shapes: &[ShapeAccuracy]) -> Result<(), String> {
    let shapes = shapes.iter().map(|shape| shape.top1);
    let mut top1 = shapes.chain(accuracies.iter().map(|accuracy| accuracy.top1));
    match top1.find(|top1| !(0.0..=1.0).contains(top1)) {
        Some(wrong) => Err(format!("an accuracy is {wrong}, expected 0 to 1")),
        None => Ok(()),
    }
}

/// Refuses tensors of a level, with names after `prefix`, that contradict the configuration. Returns the names of its
/// templates, scalers and inherited weights.
fn check_level(
    config: &TemplateConfig,
    prefix: &str,
    counts: &BTreeMap<String, usize>,
    weights: &Weights,
) -> Result<BTreeSet<String>, String> {
    let t = config.template_size;
    let inherited = format!("{prefix}auxiliary.");
    let inherited = weights.keys().filter(|name| name.starts_with(&inherited));
    let mut names: BTreeSet<String> = inherited.cloned().collect();
    for (set, &n) in counts {
        let name = format!("{prefix}templates.{set}");
        let (shape, expected) = (shape_of(weights, &name)?, [n, t, t]);
        if shape != expected {
            return Err(format!(
                "tensor `{name}` has shape {shape:?}, but {CONFIG_FILE} says {expected:?}"
            ));
        }
        names.insert(name);
    }
    for (part, set) in &config.sets {
        let n = counts.get(set).copied().unwrap_or_default();
        let mut first: Option<&[usize]> = None;
        for k in 0..config.anchors {
            let name = format!("{prefix}bank.{k}.{part}");
            let shape = shape_of(weights, &name)?;
            if shape.len() != 3 || shape[0] != n || shape.contains(&0) {
                return Err(format!(
                    "tensor `{name}` has shape {shape:?}, but {CONFIG_FILE} says \
                     ({n}, rows/{t}, cols/{t})"
                ));
            }
            if *first.get_or_insert(shape) != shape {
                return Err(format!(
                    "tensor `{name}` has shape {shape:?}, unlike `{prefix}bank.0.{part}`: anchors \
                     cannot be interpolated"
                ));
            }
            names.insert(name);
        }
    }
    Ok(names)
}

/// The shape of a tensor that has to be there.
fn shape_of<'a>(weights: &'a Weights, name: &str) -> Result<&'a [usize], String> {
    let tensor = weights.get(name);
    let missing = || format!("tensor `{name}` is missing, but {CONFIG_FILE} requires it");
    tensor.map(Tensor::dims).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
