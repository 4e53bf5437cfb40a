//! The preprocessing of images, as model directories describe it.
//!
//! timm's `pretrained_cfg` and transformers' `preprocessor_config.json` describe the same steps
//! in different words: resize, crop, scale to 0..=1, subtract a mean, divide by a deviation.

use std::path::Path;

use serde_json::{Value, json};

use crate::directory::{CONFIG_FILE, PREPROCESSOR_FILE};
use crate::files::read_json;
use crate::model::check_normalisation;
use crate::{HubError, ModelConfig, PretrainedCfg};

/// The steps from an image to a network's input.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessing {
    /// Channels of the input.
    pub channels: usize,
    /// Height and width of the input, in pixels.
    pub size: [usize; 2],
    /// The filter that images are resized with, in timm's words: `bicubic`, `bilinear`, `nearest`, `lanczos`,
    /// `box`, `hamming`.
    pub interpolation: String,
    /// The side of the crop over the shorter side of the resized image; 1 when nothing is cut.
    pub crop_pct: f64,
    /// `center`: the shorter side is resized to size/`crop_pct` and the middle taken; `squash`:
    /// the image is resized to the size whatever its proportions.
    pub crop_mode: String,
    /// Subtracted from each channel, in units of 0..=1; one value a channel.
    pub mean: Vec<f64>,
    /// Each channel is then divided by it; one value a channel.
    pub std: Vec<f64>,
}

impl From<&PretrainedCfg> for Preprocessing {
    fn from(cfg: &PretrainedCfg) -> Self {
        let [channels, height, width] = cfg.input_size;
        // One value may stand for every channel.
        let each = |values: &[f64]| match values {
            [one] => vec![*one; channels],
            values => values.to_vec(),
        };
        Self {
            channels,
            size: [height, width],
            interpolation: cfg.interpolation.clone(),
            crop_pct: cfg.crop_pct,
            crop_mode: cfg.crop_mode.clone(),
            mean: each(&cfg.mean),
            std: each(&cfg.std),
        }
    }
}

impl Preprocessing {
    /// The content of a `preprocessor_config.json` by which transformers takes the same steps, as
    /// [`read_preprocessing`] reads it back. The processor is the one of transformers that resizes
    /// the shorter side and crops the middle. `None` for steps it does not take: `crop_mode` other
    /// than `center`, or an interpolation that Pillow has no number for.
    pub fn processor(&self) -> Option<Value> {
        let resample = RESAMPLE
            .iter()
            .position(|name| *name == self.interpolation)?;
        if self.crop_mode != "center" {
            return None;
        }
        let [height, width] = self.size;
        // The decimal that was meant: 0.9 has been an f32.
        let crop_pct = (self.crop_pct * 1e6).round() / 1e6;
        let resized = (height as f64 / crop_pct).floor() as u64;
        Some(json!({
            "image_processor_type": "BitImageProcessor",
            "do_resize": true,
            "size": {"shortest_edge": resized},
            "resample": resample,
            "do_center_crop": true,
            "crop_size": {"height": height, "width": width},
            "do_rescale": true,
            "rescale_factor": 1.0 / 255.0,
            "do_normalize": true,
            "image_mean": self.mean,
            "image_std": self.std,
            "do_convert_rgb": self.channels == 3,
        }))
    }
}

/// Interpolations by Pillow's number.
const RESAMPLE: [&str; 6] = [
    "nearest", "lanczos", "bilinear", "bicubic", "box", "hamming",
];

/// Reads how the model in `dir` wants its images: timm's `pretrained_cfg` in `config.json` if it
/// has one, else transformers' `preprocessor_config.json`. `None` when it has neither.
///
/// # Errors
/// [`HubError::Missing`] without a `config.json`; [`HubError::Malformed`] when a file is broken
/// or asks for steps that no plain transform takes (no rescaling, padding); [`HubError::Io`]
/// when it cannot be read.
pub fn read_preprocessing(dir: &Path) -> Result<Option<Preprocessing>, HubError> {
    let path = dir.join(CONFIG_FILE);
    let config: Value = read_json(&path)?;
    if config.get("pretrained_cfg").is_some() {
        let config: ModelConfig = crate::model::parse(&path, config)?;
        return Ok(Some(Preprocessing::from(&config.pretrained_cfg)));
    }
    let path = dir.join(PREPROCESSOR_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let channels = config.get("num_channels").and_then(Value::as_u64);
    let channels = channels.map(|n| n as usize);
    let steps: Value = read_json(&path)?;
    from_processor(&steps, channels)
        .map(Some)
        .map_err(|found| HubError::malformed(&path, found, "correct the file"))
}

/// transformers' words: `size`, `crop_pct` or `crop_size`, `resample`, `image_mean`, `image_std`.
fn from_processor(steps: &Value, channels: Option<usize>) -> Result<Preprocessing, String> {
    let on = |key: &str, default: bool| match steps.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(on)) => Ok(*on),
        Some(other) => Err(format!("`{key}` is {other}, expected true or false")),
    };
    let factor = steps.get("rescale_factor").and_then(Value::as_f64);
    let plain = factor.is_none_or(|factor| (factor * 255.0 - 1.0).abs() < 1e-3);
    if !on("do_rescale", true)? || !plain {
        return Err("pixels are not scaled to 0..=1 (`do_rescale`, `rescale_factor`)".to_owned());
    }
    if !on("do_resize", true)? {
        return Err("images are not resized (`do_resize` is false), expected a resize".to_owned());
    }
    if on("do_pad", false)? {
        return Err("images are padded (`do_pad`), expected a resize and a crop".to_owned());
    }
    let (mean, std) = match on("do_normalize", true)? {
        true => (
            numbers(steps, "image_mean")?.unwrap_or_else(|| vec![0.5; 3]),
            numbers(steps, "image_std")?.unwrap_or_else(|| vec![0.5; 3]),
        ),
        false => (
            vec![0.0; channels.unwrap_or(3)],
            vec![1.0; channels.unwrap_or(3)],
        ),
    };
    let (size, crop_pct, crop_mode) = geometry(steps, on("do_center_crop", false)?)?;
    check_normalisation(&mean, &std, crop_pct).map_err(|found| {
        found
            .replace("`mean`", "`image_mean`")
            .replace("`std`", "`image_std`")
    })?;
    if channels.is_some_and(|n| n != mean.len()) || mean.is_empty() {
        let (n, channels) = (mean.len(), channels.unwrap_or(3));
        return Err(format!(
            "`image_mean` has {n} values for the {channels} channels of the model"
        ));
    }
    Ok(Preprocessing {
        channels: mean.len(),
        size,
        interpolation: interpolation(steps.get("resample"))?.to_owned(),
        crop_pct,
        crop_mode: crop_mode.to_owned(),
        mean,
        std,
    })
}

/// Input size, `crop_pct` and `crop_mode`.
fn geometry(steps: &Value, crops: bool) -> Result<([usize; 2], f64, &'static str), String> {
    let resized = steps
        .get("size")
        .filter(|size| !size.is_null())
        .ok_or("`size` is missing")?;
    let pct = match steps.get("crop_pct") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let expected = || format!("`crop_pct` is {value}, expected a number in 0..=1");
            Some(
                value
                    .as_f64()
                    .filter(|p| *p > 0.0 && *p <= 1.0)
                    .ok_or_else(expected)?,
            )
        }
    };
    match (extent("size", resized)?, pct) {
        // Cut by a share of the resized side, up to the size from which images are squashed.
        (Extent::Shorter(side), Some(pct)) if side < 384 => Ok(([side; 2], pct, "center")),
        (Extent::Shorter(side), Some(_)) => Ok(([side; 2], 1.0, "squash")),
        (Extent::Shorter(side), None) if crops => {
            let crop = steps.get("crop_size").ok_or("`crop_size` is missing")?;
            match extent("crop_size", crop)? {
                Extent::Shorter(n) | Extent::Both([n, _]) if n > side => {
                    Err(format!("`crop_size` {n} exceeds `size` {side}"))
                }
                Extent::Shorter(n) => Ok(([n; 2], share(n, side), "center")),
                Extent::Both(size) => Ok((size, share(size[0], side), "center")),
            }
        }
        (Extent::Shorter(side), None) => Ok(([side; 2], 1.0, "center")),
        (Extent::Both(size), _) => Ok((size, 1.0, "squash")),
    }
}

/// The shortest decimal `p` with `floor(crop / p) == side`: 0.9 for 224 of 248.
fn share(crop: usize, side: usize) -> f64 {
    let (n, exact) = (crop as f64, crop as f64 / side as f64);
    (0..=6)
        .map(|digits| {
            let unit = 10_f64.powi(digits);
            (exact * unit).floor() / unit
        })
        .find(|p| *p > 0.0 && (n / p).floor() == side as f64)
        .unwrap_or(exact)
}

enum Extent {
    /// The shorter side.
    Shorter(usize),
    /// Height and width.
    Both([usize; 2]),
}

/// `224`, `{"shortest_edge": 224}` or `{"height": 224, "width": 224}`.
fn extent(key: &str, value: &Value) -> Result<Extent, String> {
    let side = |value: Option<&Value>| match value.and_then(Value::as_u64) {
        Some(n @ 1..=65_536) => Ok(n as usize),
        _ => Err(format!(
            "`{key}` is {}, expected `shortest_edge`, or `height` and `width`, in pixels",
            steps_text(value)
        )),
    };
    match value {
        Value::Object(sides) if sides.contains_key("shortest_edge") => {
            side(sides.get("shortest_edge")).map(Extent::Shorter)
        }
        Value::Object(sides) => Ok(Extent::Both([
            side(sides.get("height"))?,
            side(sides.get("width"))?,
        ])),
        // A bare number means both sides, as the library reads old files.
        number => side(Some(number)).map(|n| Extent::Both([n; 2])),
    }
}

fn steps_text(value: Option<&Value>) -> String {
    value.map_or_else(|| "incomplete".to_owned(), Value::to_string)
}

fn numbers(steps: &Value, key: &str) -> Result<Option<Vec<f64>>, String> {
    match steps.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|_| format!("`{key}` is {value}, expected a list of numbers")),
    }
}

/// Pillow's numbers; transformers' own default is 2.
fn interpolation(resample: Option<&Value>) -> Result<&'static str, String> {
    match resample.and_then(Value::as_u64) {
        Some(n @ 0..=5) => Ok(RESAMPLE[n as usize]),
        None if resample.is_none_or(Value::is_null) => Ok("bilinear"),
        _ => Err(format!(
            "`resample` is {}, expected 0 to 5",
            steps_text(resample)
        )),
    }
}

#[cfg(test)]
#[path = "preprocessing_tests.rs"]
mod tests;
