//! The model directory: `model.safetensors`, `config.json` and a card, as timm reads them.
//!
//! timm builds the network from `architecture` and `model_args`, fills it from
//! `model.safetensors`, and prepares images by `pretrained_cfg`. It ignores keys it does not
//! know, and so does this reader.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::directory::{
    CONFIG_FILE, Kind, MODEL_FILE, ONNX_FILE, SCALERS_FILE, promised_file, read_config,
    write_artefact,
};
use crate::float::cast;
use crate::numbers::{FLOOR, HALF_TO_EVEN, check_label_names, check_numbers, check_word};
use crate::onnx::{self, VitSizes};
use crate::tensors::read_weights;
use crate::{FloatType, HubError, Metadata, Weights};

/// Maximum number of classes that are named by their numbers.
const MOST_NAMED: u64 = 1 << 20;
/// Maximum number of channels of an input.
pub(crate) const MOST_CHANNELS: usize = 4096;
/// Maximum height and width of an input, in pixels.
const LARGEST_SIDE: usize = 1 << 20;
/// Names of networks that timm registers with `dynamic_img_size`, and parts of the names of such families.
const DYNAMIC: [&str; 3] = ["vit_intern300m_patch14_448", "test_vit", "test_vit2"];
const DYNAMIC_FAMILIES: [&str; 2] = ["_dinov3", "_lingbot"];

/// A model's `config.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The name of the network in timm's registry.
    pub architecture: String,
    /// Classes of the head; 0 for a network without a head.
    pub num_classes: usize,
    /// The length of the vector before the head. 0 when the file does not say.
    #[serde(default)]
    pub num_features: usize,
    /// The pooling of tokens into that vector. Empty when the file does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub global_pool: String,
    /// Differences from the registry's defaults.
    #[serde(default)]
    pub model_args: Map<String, Value>,
    /// The preprocessing of images, and the names of the first and the last layer.
    #[serde(default)]
    pub pretrained_cfg: PretrainedCfg,
    /// One name per class, in the order of the logits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_names: Option<Vec<String>>,
    /// The rounding of a crop's offset, if it is not timm's ([`crate::FLOOR`]). timm ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop_offset: Option<String>,
    /// Added to variances in layer norms, if it is not what timm's network adds. timm ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_norm_eps: Option<f64>,
    /// Provenance: recipe, ancestor, data, seed. timm ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<Value>,
}

impl ModelConfig {
    /// True if the network takes images of any size: `dynamic_img_size`, whose default depends on the network.
    pub fn is_dynamic(&self) -> bool {
        let name = self.architecture.split('.').next().unwrap_or_default();
        let said = self.model_args.get("dynamic_img_size");
        said.and_then(Value::as_bool).unwrap_or_else(|| {
            DYNAMIC.contains(&name) || DYNAMIC_FAMILIES.iter().any(|part| name.contains(part))
        })
    }
}

/// timm's `pretrained_cfg`. A key that the file leaves out has timm's default, which [`Default`] gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PretrainedCfg {
    /// The name of this set of weights. Empty when the file does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// True, or a loader's name, if the weights need a loader of their own.
    pub custom_load: Value,
    /// Channels, height and width.
    pub input_size: [usize; 3],
    /// True if no other height and width will do.
    pub fixed_input_size: bool,
    /// The filter that images are resized with: `bicubic`, `bilinear`.
    pub interpolation: String,
    /// The side of the crop over the side of the resized image, in 0..=1.
    pub crop_pct: f64,
    /// The place of the crop: `center`.
    pub crop_mode: String,
    /// Subtracted from each channel, in units of 0..=1.
    pub mean: Vec<f64>,
    /// Each channel is then divided by it.
    pub std: Vec<f64>,
    /// As in [`ModelConfig`].
    pub num_classes: usize,
    /// The height and width of the last feature map, if there is one.
    pub pool_size: Option<[usize; 2]>,
    /// The name of the module that sees the image's channels, or a list of several.
    pub first_conv: Option<Value>,
    /// The name of the module that makes the logits, or a list of several.
    pub classifier: Option<Value>,
}

impl Default for PretrainedCfg {
    fn default() -> Self {
        Self {
            tag: String::new(),
            custom_load: false.into(),
            input_size: [3, 224, 224],
            fixed_input_size: false,
            interpolation: "bicubic".to_owned(),
            crop_pct: 0.875,
            crop_mode: "center".to_owned(),
            mean: vec![0.485, 0.456, 0.406],
            std: vec![0.229, 0.224, 0.225],
            num_classes: 1000,
            pool_size: None,
            first_conv: None,
            classifier: None,
        }
    }
}

/// Reads a model directory: its `config.json` and `model.safetensors`.
pub fn read_model(dir: &Path) -> Result<(ModelConfig, Weights), HubError> {
    let (kind, config) = read_config(dir)?;
    let remedy = match kind {
        Kind::Model => "",
        Kind::Templates => "expand a model from it first, with `wave expand`",
        Kind::Delta => "expand a model with it first, with `wave expand TEMPLATES --delta`",
        Kind::Transformers => "write it with `--format timm`",
    };
    if kind != Kind::Model {
        let found = format!("is {kind}, expected a model directory in timm's layout");
        return Err(HubError::malformed(dir, found, remedy));
    }
    let config = parse(&dir.join(CONFIG_FILE), config)?;
    let remedy = "copy it there; save weights in another format (.bin, .pth) with \
                  `safetensors.torch.save_file`";
    Ok((config, read_model_weights(dir, remedy)?))
}

/// The weights of a model directory, at least one; `remedy` is for when they are missing.
pub(crate) fn read_model_weights(dir: &Path, remedy: &str) -> Result<Weights, HubError> {
    let path = promised_file(dir, MODEL_FILE, remedy)?;
    let weights = read_weights(&path)?;
    if weights.is_empty() {
        let remedy = "write or copy the model again";
        return Err(HubError::malformed(&path, "holds no tensor", remedy));
    }
    Ok(weights)
}

/// Writes a model directory: the weights stored as `float`, the scalers of an expanded model, the card `README.md`,
/// the graph `model.onnx` if `onnx`, and `config.json`.
///
/// Files that an earlier model left next to its weights (scalers, an ONNX graph, transformers' preprocessing) are
/// removed, unless they are written again; other files in `dir` are left alone.
pub fn write_model(
    dir: &Path,
    config: &ModelConfig,
    weights: &Weights,
    scalers: Option<&Weights>,
    card: &str,
    float: FloatType,
    onnx: bool,
) -> Result<(), HubError> {
    check(config)
        .map_err(|found| HubError::unwritable(&dir.join(CONFIG_FILE), found, "correct it"))?;
    let weights = cast(&dir.join(MODEL_FILE), weights, float)?;
    let mut more = Vec::new();
    if onnx {
        let path = dir.join(ONNX_FILE);
        let sizes = graph_sizes(config).ok_or_else(|| {
            let found = "only vision transformers have a graph";
            HubError::unwritable(&path, found, "write another layout")
        })?;
        let metadata = graph_metadata(config);
        more.push(onnx::stage(&path, &sizes, &weights, &metadata, float)?);
    }
    let files = [(MODEL_FILE, Some(&weights)), (SCALERS_FILE, scalers)];
    write_artefact(dir, &files, card, more, config)
}

fn graph_sizes(config: &ModelConfig) -> Option<VitSizes> {
    let args = &config.model_args;
    let size = |key: &str| Some(args.get(key)?.as_u64()? as usize);
    Some(VitSizes {
        image_size: size("img_size")?,
        channels: size("in_chans")?,
        patch: size("patch_size")?,
        depth: size("depth")?,
        width: size("embed_dim")?,
        heads: size("num_heads")?,
        classes: config.num_classes,
        class_token: args.get("class_token")?.as_bool()?,
        norm_eps: config.layer_norm_eps.unwrap_or(1e-6) as f32,
    })
}

/// Metadata of a graph for its users: preprocessing, and names of the classes.
fn graph_metadata(config: &ModelConfig) -> Metadata {
    let said = json!(config);
    let steps = ["mean", "std", "crop_pct", "interpolation", "crop_mode"];
    let steps = steps.map(|key| (key, &said["pretrained_cfg"][key]));
    let own = ["crop_offset", "label_names"].map(|key| (key, &said[key]));
    let all = steps.into_iter().chain(own);
    all.filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.to_owned(), value.to_string()))
        .collect()
}

/// A model's configuration, from the content of the file `path`.
pub(crate) fn parse(path: &Path, mut config: Value) -> Result<ModelConfig, HubError> {
    let refuse = |found| HubError::malformed(path, found, "correct the file");
    // timm takes a null for a key that is not there, but refuses one for the whole preprocessing.
    if let Some(map) = config.as_object_mut() {
        map.retain(|key, value| !value.is_null() || key == "pretrained_cfg");
    }
    nest(&mut config).map_err(refuse)?;
    names_in_order(&mut config).map_err(refuse)?;
    let mut config: ModelConfig = serde_json::from_value(config).map_err(|cause| {
        let found = format!("is not a model's configuration: {cause}");
        HubError::malformed(path, found, "correct the file or write the model again")
    })?;
    check(&config).map_err(refuse)?;
    config.label_names = config.label_names.filter(|names| !names.is_empty());
    Ok(config)
}

/// Brings timm's older configurations, whose keys of preprocessing are at the top, to the newer form, and class names
/// that are with the preprocessing to the top.
fn nest(config: &mut Value) -> Result<(), String> {
    let Value::Object(config) = config else {
        return Ok(());
    };
    let prepared = match config.get("pretrained_cfg") {
        Some(prepared) => sayings(prepared)?,
        None => {
            if let Some(labels) = config.remove("labels") {
                config.entry("label_names").or_insert(labels);
            }
            config.clone()
        }
    };
    // timm writes the names of a model that it has read there alone, and keeps them where it replaces the classifier.
    let classes = config.get("num_classes").and_then(Value::as_u64);
    let classes = classes.unwrap_or(0);
    let fits = |names: &&Value| match names {
        Value::Array(names) => names.len() as u64 == classes,
        Value::Object(names) => {
            let mut numbers = names.keys().map(|number| number.parse::<u64>());
            numbers.all(|number| number.is_ok_and(|number| number < classes))
        }
        _ => false,
    };
    if let Some(names) = prepared.get("label_names").filter(fits) {
        config.entry("label_names").or_insert(names.clone());
    }
    config.insert("pretrained_cfg".to_owned(), prepared.into());
    Ok(())
}

/// The entries of a `pretrained_cfg`: timm reads null as absent.
pub(crate) fn sayings(prepared: &Value) -> Result<Map<String, Value>, String> {
    // A list would fill the fields in their order.
    let Value::Object(prepared) = prepared else {
        return Err(format!(
            "`pretrained_cfg` is {prepared}, expected an object with keys such as `mean`"
        ));
    };
    let mut said = prepared.clone();
    said.retain(|_, value| !value.is_null());
    Ok(said)
}

/// Turns names by class number, which timm writes if numbers have gaps, into a list. Unnamed classes get their number.
fn names_in_order(config: &mut Value) -> Result<(), String> {
    let classes = config["num_classes"].as_u64().unwrap_or(0);
    let Some(named) = config["label_names"].as_object() else {
        return Ok(());
    };
    if classes > MOST_NAMED {
        return Err(format!(
            "`num_classes` is {classes}, expected at most {MOST_NAMED}"
        ));
    }
    let mut names: Vec<Value> = (0..classes).map(|i| i.to_string().into()).collect();
    for (number, name) in named {
        let place = number.parse().ok().and_then(|i: usize| names.get_mut(i));
        let last = classes.max(1) - 1;
        let wrong = || format!("`label_names` names a class {number:?}, expected 0 to {last}");
        *place.ok_or_else(wrong)? = name.clone();
    }
    config["label_names"] = names.into();
    Ok(())
}

/// Refuses configurations that no model can have.
fn check(config: &ModelConfig) -> Result<(), String> {
    if let Some(names) = &config.label_names {
        check_label_names(names, config.num_classes)?;
    }
    if let Some(eps) = config.layer_norm_eps
        && !(eps > 0.0 && eps < 1.0)
    {
        return Err(format!(
            "`layer_norm_eps` is {eps}, expected a number between 0 and 1"
        ));
    }
    let roundings = [HALF_TO_EVEN, FLOOR];
    check_word("crop_offset", config.crop_offset.as_deref(), roundings)?;
    check_prepared(&config.pretrained_cfg)
}

/// Refuses preprocessing that no image can undergo.
pub(crate) fn check_prepared(prepared: &PretrainedCfg) -> Result<(), String> {
    check_numbers(&prepared.mean, &prepared.std, prepared.crop_pct)?;
    let [channels, height, width] = prepared.input_size;
    let sides = [height, width];
    if !(1..=MOST_CHANNELS).contains(&channels)
        || !sides.iter().all(|side| (1..=LARGEST_SIDE).contains(side))
    {
        return Err(format!(
            "`input_size` is {:?}, expected 1 to {MOST_CHANNELS} channels, and a height and a width \
             of 1 to {LARGEST_SIDE} pixels",
            prepared.input_size
        ));
    }
    let n = prepared.mean.len();
    // One value may stand for every channel.
    if n != channels && n != 1 {
        return Err(format!(
            "`mean` has {n} values for the {channels} channels of `input_size`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
