//! The value of `sizes`: the smallest and the largest model of a condensation.

use super::keys::from_text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The smallest and the largest model, as layers and channels of a token.
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

impl std::str::FromStr for ModelSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelSizes, String> {
        let wrong = || format!("expected sizes such as 2x64..12x192, layers x width, not {text}");
        let size = |text: &str| -> Option<(usize, usize)> {
            let (depth, width) = text.trim().split_once('x')?;
            let size = (depth.trim().parse().ok()?, width.trim().parse().ok()?);
            (size.0 > 0 && size.1 > 0).then_some(size)
        };
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let (least, most) = (
            size(least).ok_or_else(wrong)?,
            size(most).ok_or_else(wrong)?,
        );
        if least.0 > most.0 || least.1 > most.1 {
            return Err(format!(
                "{text}: the second size is smaller than the first; swap them"
            ));
        }
        Ok(ModelSizes { least, most })
    }
}

impl Serialize for ModelSizes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelSizes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<ModelSizes, D::Error> {
        from_text(from)
    }
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
