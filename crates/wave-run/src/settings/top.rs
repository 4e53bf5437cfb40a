//! The value of `cache_top`: a number of classes, or all.

use super::keys::from_text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;

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
            (_, Ok(k)) if k > 0 => Ok(Top::Most(k)),
            _ => Err(format!(
                "cache_top = {text}; expected a number of classes, at least 1, or all"
            )),
        }
    }
}

impl Serialize for Top {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Top::Most(k) => k.serialize(to),
            Top::All => "all".serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Top {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Top, D::Error> {
        from_text(from)
    }
}
