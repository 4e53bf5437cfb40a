//! The preprocessing of images, as model directories describe it.
//!
//! timm's `pretrained_cfg` and transformers' image processors describe the same steps in different
//! words: resize, crop, scale to 0..=1, subtract a mean, divide by a deviation. Each value carries its
//! [`Source`], since a file that leaves one out means the default of the class that reads it.

use std::fmt;
use std::path::Path;

use serde_json::Value;

use crate::directory::{CONFIG_FILE, PREPROCESSOR_FILE, PROCESSOR_FILE};
use crate::files::read_json;
use crate::numbers::HALF_TO_EVEN;
use crate::{HubError, ModelConfig, PretrainedCfg};

mod classes;
mod export;
mod processor;

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Given by a file, under these keys.
    File(String),
    /// Left out by the files, which means the default of this class.
    Class(String),
    /// Derived from the weights.
    Weights,
    /// Not given anywhere; the reason for this value.
    Assumed(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(keys) => f.write_str(keys),
            Source::Class(class) => write!(f, "class default of {class}"),
            Source::Weights => f.write_str("the weights"),
            Source::Assumed(why) => write!(f, "assumed: {why}"),
        }
    }
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Told<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub source: Source,
}

impl<T> Told<T> {
    /// A value from `source`.
    pub fn new(value: T, source: &Source) -> Self {
        let source = source.clone();
        Self { value, source }
    }
}

/// The steps from an image to a network's input.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessing {
    /// Channels of the input.
    pub channels: usize,
    /// Height and width of the input, in pixels.
    pub size: Told<[usize; 2]>,
    /// The filter that images are resized with, in timm's words: `bicubic`, `bilinear`, `nearest`, `lanczos`,
    /// `box`, `hamming`.
    pub interpolation: Told<String>,
    /// The side of the crop over the shorter side of the resized image; 1 when nothing is cut.
    pub crop_pct: Told<f64>,
    /// `center`: the shorter side is resized to size/`crop_pct` and the middle taken; `squash`: both sides are, and the
    /// middle taken; `border`: the longer side is. `none`: the shorter side is resized to size, and nothing is cut.
    pub crop_mode: Told<String>,
    /// The rounding of the crop's offset if the margin is odd: [`HALF_TO_EVEN`] or [`crate::FLOOR`].
    pub crop_offset: Told<String>,
    /// Subtracted from each channel, in units of 0..=1; one value each, or one that [`spread`](Self::spread) repeats.
    pub mean: Told<Vec<f64>>,
    /// Each channel is then divided by it; as many values as in the mean.
    pub std: Told<Vec<f64>>,
}

impl From<&PretrainedCfg> for Preprocessing {
    fn from(cfg: &PretrainedCfg) -> Self {
        let mut steps = Self::of_timm(cfg, |key| Source::File(format!("pretrained_cfg.{key}")));
        steps.spread(steps.channels);
        steps
    }
}

impl From<&ModelConfig> for Preprocessing {
    fn from(config: &ModelConfig) -> Self {
        Self::from(&config.pretrained_cfg).cropped_as(config)
    }
}

impl Preprocessing {
    /// timm's steps, with the source of each key.
    fn of_timm(cfg: &PretrainedCfg, source: impl Fn(&str) -> Source) -> Self {
        let [channels, height, width] = cfg.input_size;
        Self {
            channels,
            size: Told::new([height, width], &source("input_size")),
            interpolation: Told::new(cfg.interpolation.clone(), &source("interpolation")),
            crop_pct: Told::new(cfg.crop_pct, &source("crop_pct")),
            crop_mode: Told::new(cfg.crop_mode.clone(), &source("crop_mode")),
            crop_offset: Told::new(HALF_TO_EVEN.to_owned(), &Source::Class("timm".to_owned())),
            mean: Told::new(cfg.mean.clone(), &source("mean")),
            std: Told::new(cfg.std.clone(), &source("std")),
        }
    }

    /// The same steps with the rounding of crops that a configuration names, if any.
    fn cropped_as(mut self, config: &ModelConfig) -> Self {
        if let Some(offset) = &config.crop_offset {
            let source = Source::File(format!("{CONFIG_FILE}: crop_offset"));
            self.crop_offset = Told::new(offset.clone(), &source);
        }
        self
    }

    /// Repeats a mean and a deviation of one value, which timm applies to every channel, for so many channels.
    pub fn spread(&mut self, channels: usize) {
        for values in [&mut self.mean.value, &mut self.std.value] {
            if let [one] = values[..] {
                *values = vec![one; channels];
            }
        }
    }

    /// The preprocessing for weights without any description: timm's defaults.
    pub fn assumed() -> Self {
        let source = |_: &str| Source::Assumed("not specified, so timm's default".to_owned());
        Self::of_timm(&PretrainedCfg::default(), source)
    }

    /// The name, value and source of each step, for people.
    pub fn described(&self) -> Vec<(&'static str, String, &Source)> {
        type Step<'a> = (&'static str, String, &'a Source);
        fn one<'a>(name: &'static str, told: &'a Told<impl ToString>) -> Step<'a> {
            (name, told.value.to_string(), &told.source)
        }
        fn numbers<'a>(name: &'static str, told: &'a Told<Vec<f64>>) -> Step<'a> {
            let values: Vec<String> = told.value.iter().map(f64::to_string).collect();
            (name, values.join(", "), &told.source)
        }
        let [height, width] = self.size.value;
        vec![
            ("size", format!("{height} x {width}"), &self.size.source),
            one("interpolation", &self.interpolation),
            one("crop_mode", &self.crop_mode),
            one("crop_pct", &self.crop_pct),
            one("crop_offset", &self.crop_offset),
            numbers("mean", &self.mean),
            numbers("std", &self.std),
        ]
    }
}

/// Reads the preprocessing of the model in `dir`: timm's `pretrained_cfg` in the `config.json` of a directory in
/// timm's layout; in transformers', the `image_processor` of `processor_config.json`, else
/// `preprocessor_config.json`, with the defaults of their class. Without these files, the defaults of the
/// class that transformers has for the `model_type` are assumed. Refuses unknown classes, and steps that no plain
/// transform takes (no rescaling, padding).
pub fn read_preprocessing(dir: &Path) -> Result<Preprocessing, HubError> {
    let path = dir.join(CONFIG_FILE);
    let config: Value = read_json(&path)?;
    if config.get("architecture").is_some() {
        let model = crate::model::parse(&path, config.clone())?;
        return Ok(of_model(&model, &config));
    }
    let refuse = |path: &Path, found: String| HubError::malformed(path, found, "correct the file");
    for file in [PROCESSOR_FILE, PREPROCESSOR_FILE] {
        let path = dir.join(file);
        if !path.exists() {
            continue;
        }
        let mut steps: Value = read_json(&path)?;
        if file == PROCESSOR_FILE {
            let Some(inner) = steps.get_mut("image_processor") else {
                continue; // older ones are for text only
            };
            steps = inner.take();
        }
        let read = processor::read(&steps, &config, file);
        return read.map_err(|found| refuse(&path, found));
    }
    processor::assumed(&config).map_err(|found| refuse(&path, found))
}

/// The preprocessing of timm's configuration, which the file has as `said`.
fn of_model(config: &ModelConfig, said: &Value) -> Preprocessing {
    let (said, at) = match said.get("pretrained_cfg") {
        Some(said) => (said, "pretrained_cfg."),
        None => (said, ""), // as timm's older ones
    };
    let cfg = &config.pretrained_cfg;
    let mut steps = Preprocessing::of_timm(cfg, |key| match said[key].is_null() {
        false => Source::File(format!("{CONFIG_FILE}: {at}{key}")),
        true => Source::Class("timm's PretrainedCfg".to_owned()),
    });
    let default = |(.., source): &(_, _, &Source)| matches!(source, Source::Class(_));
    if steps.described().iter().all(default) {
        let why = format!("{CONFIG_FILE} does not describe preprocessing, so timm's default");
        steps = Preprocessing::of_timm(cfg, |_| Source::Assumed(why.clone()));
    }
    // A fixed size is the network's own, as timm reads it, and one that can change is not fixed.
    let args = &config.model_args;
    let free = config.is_dynamic() || args.get("strict_img_size") == Some(&Value::Bool(false));
    if cfg.fixed_input_size
        && !free
        && let Some(size) = args.get("img_size").and_then(sides)
    {
        let source = Source::File(format!("{CONFIG_FILE}: model_args.img_size"));
        steps.size = Told::new(size, &source);
    }
    steps.cropped_as(config)
}

/// A side of a square, or a pair of sides.
fn sides(value: &Value) -> Option<[usize; 2]> {
    let square = value.as_u64().map(|side| [side as usize; 2]);
    square.or_else(|| serde_json::from_value(value.clone()).ok())
}

#[cfg(test)]
mod tests;
