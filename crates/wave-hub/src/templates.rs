//! The template directory: `templates.safetensors`, `config.json` and a card.
//!
//! Tensors of `templates.safetensors`, with N templates in a set and template size t:
//!
//! - `templates.{set}` of shape (N, t, t): the templates that the layers share;
//! - `bank.{k}.{part}` of shape (N, rows/t, cols/t): the scalers of anchor k, for every part;
//! - `auxiliary.{name}`: the weights of the auxiliary that are not composed.
//!
//! Where there are levels of size these are the last level's; the same names after `levels.{i}.` are those of level i.
//!
//! A part (`qkv`, `proj`, `fc1`, `fc2`) takes its templates from one set; parts may share one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::atomic::Staged;
use crate::digests::commit_artefact;
use crate::directory::{CARD_FILE, CONFIG_FILE, Kind, TEMPLATES_FILE, promised_file, read_config};
use crate::float::cast;
use crate::numbers::{HALF_TO_EVEN, check_numbers, check_offset};
use crate::preprocessing::{Preprocessing, Source, Told};
use crate::tensors::{read_weights, stage_tensors};
use crate::{FloatType, HubError, Provenance, Weights};

/// The version of the template format that is read and written here.
pub const FORMAT_VERSION: u32 = 1;

/// The weight components that are composed from templates.
pub(crate) const PARTS: [&str; 4] = ["qkv", "proj", "fc1", "fc2"];

/// A template directory's `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TemplateConfig {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The product of a scaler and a template: `tile` for S (x) T, `interleave` for T (x) S.
    pub kronecker: String,
    /// The side t of every template.
    pub template_size: usize,
    /// Templates in each set.
    pub counts: BTreeMap<String, usize>,
    /// Which set each part takes its templates from.
    pub sets: BTreeMap<String, String>,
    /// Levels of size, the smallest first, where models of some sizes have values of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelConfig>,
    /// Anchors of the scaler bank, at relative depths 0..=1.
    pub anchors: usize,
    /// The relative depth of layer l of L: `l/(L-1)`, which is meant where nothing is said, or `l/L`.
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
    /// The way to a square image, in timm's words; `center` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop_mode: Option<String>,
    /// The rounding of a crop's offset, [`crate::FLOOR`]; [`crate::HALF_TO_EVEN`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop_offset: Option<String>,
    /// Provenance: recipe, ancestor, data, seed, version, epochs.
    pub provenance: Provenance,
    /// Accuracies measured at the sizes tried.
    pub accuracies: Vec<Accuracy>,
    /// Accuracies of models that differ from the auxiliary in more than depth and width.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeAccuracy>,
}

impl TemplateConfig {
    /// The preprocessing of images.
    pub fn preprocessing(&self) -> Preprocessing {
        let told = |key: &str| Source::File(format!("{CONFIG_FILE}: {key}"));
        let named = |name: &Option<String>, usual: &str, key: &str| {
            let source = match name {
                Some(_) => told(key),
                None => Source::Class("templates".to_owned()),
            };
            Told::new(name.clone().unwrap_or_else(|| usual.to_owned()), &source)
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

/// Models up to a size, those of smaller levels apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelConfig {
    /// The most layers.
    pub depth: usize,
    /// The most channels of a token.
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
    /// The share of images whose most probable class is right, in 0..=1.
    pub top1: f64,
}

/// The accuracy of one model expanded from the templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Layers.
    pub depth: usize,
    /// Width of the tokens.
    pub width: usize,
    /// The share of images whose most probable class is right, in 0..=1.
    pub top1: f64,
    /// Under which circumstances, in words.
    pub condition: String,
}

/// Reads a template directory and checks that its file holds what its configuration says.
///
/// # Errors
/// [`HubError::Missing`] when the directory or one of the files is not there,
/// [`HubError::Malformed`] when it is a model directory, is of another format version, or a file
/// is broken or contradicts the other, [`HubError::Io`] when something cannot be read.
pub fn read_templates(dir: &Path) -> Result<(TemplateConfig, Weights), HubError> {
    let (kind, config) = read_config(dir)?;
    if kind != Kind::Templates {
        return Err(HubError::malformed(
            dir,
            format!("is {kind}, expected {}", Kind::Templates),
            "name the directory that `wave condense` wrote",
        ));
    }
    let config_path = dir.join(CONFIG_FILE);
    check_version(&config_path, config.get("format_version"))?;
    let config: TemplateConfig = serde_json::from_value(config).map_err(|cause| {
        HubError::malformed(
            &config_path,
            format!("is not the configuration of templates: {cause}"),
            "correct the file or condense again",
        )
    })?;
    check_config(&config)
        .map_err(|found| HubError::malformed(&config_path, found, "correct the file"))?;
    let remedy = "copy it there, or condense again";
    let path = promised_file(dir, TEMPLATES_FILE, remedy)?;
    let weights = read_weights(&path)?;
    check_weights(&config, &weights).map_err(|found| {
        let remedy = format!("it does not belong to the {CONFIG_FILE} beside it: copy both again");
        HubError::malformed(&path, found, remedy)
    })?;
    let templates = weights
        .iter()
        .filter(|(name, _)| name.contains("templates."));
    for (name, t) in templates {
        if is_zero(t).map_err(HubError::tensor(&path, name))? {
            let found = format!("tensor `{name}` is 0 everywhere, expected templates");
            return Err(HubError::malformed(&path, found, "condense again"));
        }
    }
    Ok((config, weights))
}

/// Writes a template directory: the weights as `float`, the card `README.md`, and `config.json` last, all
/// of them on disk under temporary names before the first gets its own.
///
/// # Errors
/// [`HubError::Unwritable`] when [`read_templates`] would refuse the content, [`HubError::Io`]
/// and [`HubError::Tensor`] when the work fails. No temporary file stays behind; unless the
/// failure falls between two renames, neither has anything else changed.
pub fn write_templates(
    dir: &Path,
    config: &TemplateConfig,
    weights: &Weights,
    float: FloatType,
    card: &str,
) -> Result<(), HubError> {
    let config_path = dir.join(CONFIG_FILE);
    let path = dir.join(TEMPLATES_FILE);
    let refuse = |path: &Path, found: String| HubError::unwritable(path, found, "correct it");
    if config.format_version != FORMAT_VERSION {
        let found = format!("`format_version` is {}", config.format_version);
        let remedy = format!("write version {FORMAT_VERSION}");
        return Err(HubError::unwritable(&config_path, found, remedy));
    }
    check_config(config).map_err(|found| refuse(&config_path, found))?;
    check_weights(config, weights).map_err(|found| refuse(&path, found))?;
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let files = vec![
        stage_tensors(&path, &cast(&path, weights, float)?, &metadata)?,
        Staged::from_bytes(&dir.join(CARD_FILE), card.as_bytes())?,
    ];
    commit_artefact(dir, files, config)
}

/// Asked before anything else of the file is believed: other versions may look otherwise.
pub(crate) fn check_version(path: &Path, version: Option<&Value>) -> Result<(), HubError> {
    let found = match version {
        Some(version) if version.as_u64() == Some(u64::from(FORMAT_VERSION)) => return Ok(()),
        Some(version) => format!("`format_version` is {version}, expected {FORMAT_VERSION}"),
        None => format!("`format_version` is missing, expected {FORMAT_VERSION}"),
    };
    let newer = version.and_then(Value::as_u64) > Some(u64::from(FORMAT_VERSION));
    let remedy = if newer {
        "use the version of wave that wrote it, or a newer one"
    } else {
        "make it again"
    };
    Err(HubError::malformed(path, found, remedy))
}

/// Refuses what no set of templates can be.
fn check_config(config: &TemplateConfig) -> Result<(), String> {
    if !["tile", "interleave"].contains(&config.kronecker.as_str()) {
        let found = &config.kronecker;
        return Err(format!(
            "`kronecker` is `{found}`, expected `tile` or `interleave`"
        ));
    }
    if let Some(found) = &config.depth_rule
        && !["l/(L-1)", "l/L"].contains(&found.as_str())
    {
        return Err(format!(
            "`depth_rule` is `{found}`, expected `l/(L-1)` or `l/L`"
        ));
    }
    for (name, value) in [
        ("template_size", config.template_size),
        ("anchors", config.anchors),
        ("head_width", config.head_width),
        ("patch", config.patch),
        ("image_size", config.image_size),
        ("channels", config.channels),
    ] {
        if value == 0 {
            return Err(format!("`{name}` is 0, expected at least 1"));
        }
    }
    let parts: BTreeSet<&str> = config.sets.keys().map(String::as_str).collect();
    if parts != BTreeSet::from(PARTS) {
        return Err(format!(
            "`sets` names the parts {parts:?}, expected {PARTS:?}"
        ));
    }
    let used: BTreeSet<&String> = config.sets.values().collect();
    let counted: BTreeSet<&String> = config.counts.keys().collect();
    if used != counted {
        return Err(format!(
            "`sets` uses {used:?}, but `counts` counts {counted:?}"
        ));
    }
    if let Some((set, _)) = config.counts.iter().find(|(_, count)| **count == 0) {
        return Err(format!("`counts` gives the set `{set}` no template"));
    }
    if let Some(level) = config
        .levels
        .iter()
        .find(|level| level.counts.len() != config.counts.len())
    {
        return Err(format!(
            "`levels` counts the sets {:?}, expected {counted:?}",
            level.counts.keys().collect::<Vec<_>>()
        ));
    }
    let (names, classes) = (config.label_names.len(), config.classes);
    if names != 0 && names != classes {
        return Err(format!(
            "`label_names` has {names} names for {classes} classes"
        ));
    }
    check_numbers(&config.mean, &config.std, config.crop_pct)?;
    check_offset(config.crop_offset.as_deref())?;
    let (values, channels) = (config.mean.len(), config.channels);
    if values != channels {
        return Err(format!(
            "`mean` has {values} values for {channels} channels"
        ));
    }
    let shapes = config.shapes.iter().map(|shape| shape.top1);
    check_accuracies(shapes.chain(config.accuracies.iter().map(|accuracy| accuracy.top1)))
}

pub(crate) fn check_accuracies(mut top1: impl Iterator<Item = f64>) -> Result<(), String> {
    match top1.find(|top1| !(0.0..=1.0).contains(top1)) {
        Some(wrong) => Err(format!("an accuracy is {wrong}, expected 0 to 1")),
        None => Ok(()),
    }
}

/// Refuses tensors that contradict the configuration, and any that it does not speak of.
fn check_weights(config: &TemplateConfig, weights: &Weights) -> Result<(), String> {
    let mut expected = BTreeSet::new();
    check_level(config, "", &config.counts, weights, &mut expected)?;
    let smaller = config.levels.len().saturating_sub(1);
    let smaller = config.levels[..smaller].iter().enumerate();
    let smaller: Vec<_> = smaller
        .map(|(at, level)| (format!("levels.{at}."), level))
        .collect();
    for (prefix, level) in &smaller {
        check_level(config, prefix, &level.counts, weights, &mut expected)?;
    }
    let of_auxiliary = |name: &str| {
        let mut rest = smaller
            .iter()
            .filter_map(|(p, _)| name.strip_prefix(p.as_str()));
        rest.any(|rest| rest.starts_with("auxiliary."))
    };
    let stranger = weights.keys().find(|name| {
        !name.starts_with("auxiliary.") && !expected.contains(*name) && !of_auxiliary(name)
    });
    match stranger {
        Some(name) => Err(format!(
            "holds tensor `{name}`, of which {CONFIG_FILE} says nothing"
        )),
        None => Ok(()),
    }
}

/// Refuses tensors of a level, whose names begin with `prefix`, that contradict the configuration; adds the names of its
/// templates and scalers to `expected`.
fn check_level(
    config: &TemplateConfig,
    prefix: &str,
    counts: &BTreeMap<String, usize>,
    weights: &Weights,
    expected: &mut BTreeSet<String>,
) -> Result<(), String> {
    let t = config.template_size;
    for (set, &n) in counts {
        let name = format!("{prefix}templates.{set}");
        let shape = shape_of(weights, &name)?;
        if shape != [n, t, t] {
            return Err(format!(
                "tensor `{name}` has shape {shape:?}, but {CONFIG_FILE} says {:?}",
                [n, t, t]
            ));
        }
        expected.insert(name);
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
            expected.insert(name);
        }
    }
    Ok(())
}

fn is_zero(tensor: &Tensor) -> candle_core::Result<bool> {
    let largest = tensor.abs()?.max_all()?.to_scalar::<f32>()?;
    Ok(largest == 0.0)
}

fn shape_of<'a>(weights: &'a Weights, name: &str) -> Result<&'a [usize], String> {
    match weights.get(name) {
        Some(tensor) => Ok(tensor.dims()),
        None => Err(format!(
            "tensor `{name}` is missing, but {CONFIG_FILE} speaks of it"
        )),
    }
}

#[cfg(test)]
mod tests;
