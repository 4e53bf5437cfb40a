//! Values of settings that are more than a number or a word.

use super::PrecisionChoice;
use crate::error::request;
use candle_core::Device;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use wave_models::refuse;
use wave_ops::{Mode, Precision};

/// Default batch size.
pub const DEFAULT_BATCH: usize = 128;

/// Number of classes in a cache of the ancestor's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// The most probable ones; at least 1.
    Most(usize),
    /// Every one.
    All,
}

impl FromStr for Top {
    type Err = String;

    fn from_str(text: &str) -> Result<Top, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(Top::All),
            (_, Ok(n @ 1..)) => Ok(Top::Most(n)),
            _ => Err(format!(
                "cache_top = {text}; expected a number of classes, at least 1, or all"
            )),
        }
    }
}

impl Serialize for Top {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Top::Most(n) => n.serialize(to),
            Top::All => "all".serialize(to),
        }
    }
}

/// The smallest and the largest model, as depth and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// Layers and channels of the smallest.
    pub least: (usize, usize),
    /// Layers and channels of the largest.
    pub most: (usize, usize),
}

impl Default for ModelSizes {
    fn default() -> ModelSizes {
        ModelSizes {
            least: (2, 64),
            most: (12, 192),
        }
    }
}

impl fmt::Display for ModelSizes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ModelSizes { least, most } = self;
        write!(f, "{}x{}..{}x{}", least.0, least.1, most.0, most.1)
    }
}

impl FromStr for ModelSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelSizes, String> {
        let size = |text: &str| -> Option<(usize, usize)> {
            let (depth, width) = text.trim().split_once('x')?;
            let size = (depth.trim().parse().ok()?, width.trim().parse().ok()?);
            (size.0 > 0 && size.1 > 0).then_some(size)
        };
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let (Some(least), Some(most)) = (size(least), size(most)) else {
            return Err(format!(
                "expected sizes such as 2x64..12x192, layers x width, not {text}"
            ));
        };
        if least.0 > most.0 || least.1 > most.1 {
            return Err(format!(
                "{text}: the second size is smaller than the first; swap them"
            ));
        }
        Ok(ModelSizes { least, most })
    }
}

impl Serialize for ModelSizes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Reads values, in a recipe or in JSON a number or text, that are written as on the command line.
macro_rules! read_as_text {
    ($($value:ident),+) => {$(
        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$value, D::Error> {
                let value = toml::Value::deserialize(from)?.to_string();
                let text = value.trim_matches(['"', '\'']);
                text.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

read_as_text!(Top, ModelSizes);

/// Duration of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Duration {
    /// Passes over the training images.
    Epochs(f64),
    /// Optimiser steps.
    Steps(u64),
}

impl Duration {
    /// The number of steps, given those of an epoch; at least one if there are epochs.
    pub fn steps(self, per_epoch: usize) -> u64 {
        match self {
            Duration::Epochs(epochs) => {
                let steps = (epochs * per_epoch as f64).round() as u64;
                steps.max(u64::from(epochs > 0.0))
            }
            Duration::Steps(steps) => steps,
        }
    }
}

/// Precision and recomputation of blocks, by settings: `auto` is the faster precision of the device.
pub fn mode(precision: PrecisionChoice, recompute: bool, device: &Device) -> anyhow::Result<Mode> {
    let simd = wave_ops::simd().map_err(|e| request(e.to_string()))?;
    let has_bf16 = simd.has_bf16() || !device.is_cpu();
    let precision = match precision {
        PrecisionChoice::Bf16 if !has_bf16 => refuse!(
            "precision = bf16: this processor has no bf16 instructions (AVX512-BF16); use f32 \
             or auto"
        ),
        PrecisionChoice::Bf16 | PrecisionChoice::Auto if has_bf16 => Precision::Bf16,
        _ => Precision::F32,
    };
    Ok(Mode {
        precision,
        recompute,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_layers_by_width() {
        let parse = |text: &str| text.parse::<ModelSizes>();
        let sizes = parse("2x64..12x192").unwrap();
        assert_eq!((sizes.least, sizes.most), ((2, 64), (12, 192)));
        assert_eq!(parse(&sizes.to_string()), Ok(sizes));
        assert_eq!(parse("6x576").unwrap().most, (6, 576));
        for wrong in ["", "2x64..", "2x64..12", "0x64..2x64", "2x64..x192", "a..b"] {
            assert!(
                parse(wrong).unwrap_err().contains("2x64..12x192"),
                "{wrong}"
            );
        }
        assert!(parse("12x192..2x64").unwrap_err().contains("swap"));
    }
}
