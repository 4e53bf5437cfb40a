//! The value of `batch`: a number of images, or auto.

use super::keys::from_text;
use serde::{Deserialize, Serialize};

/// Default batch size.
pub const DEFAULT_BATCH: usize = 128;

/// Images in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSize {
    /// A number of images.
    Images(usize),
    /// As many as fit in memory.
    Auto,
}

impl BatchSize {
    /// The number, if it is one.
    pub fn images(self) -> Option<usize> {
        match self {
            BatchSize::Images(n) => Some(n),
            BatchSize::Auto => None,
        }
    }
}

impl std::str::FromStr for BatchSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<BatchSize, String> {
        match text {
            "auto" => Ok(BatchSize::Auto),
            number => number
                .parse()
                .map(BatchSize::Images)
                .map_err(|_| format!("expected a number of images, or auto, not {text}")),
        }
    }
}

impl Serialize for BatchSize {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            BatchSize::Images(n) => n.serialize(to),
            BatchSize::Auto => "auto".serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: serde::Deserializer<'de>>(
        from: D,
    ) -> std::result::Result<BatchSize, D::Error> {
        from_text(from)
    }
}
