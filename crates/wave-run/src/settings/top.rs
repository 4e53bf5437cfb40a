//! The value of `cache_top`: a number of classes, or all.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Number of classes in a cache of the ancestor's outputs.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(try_from = "TopValue", into = "TopValue")]
pub enum Top {
    /// The most probable ones; at least 1.
    Most(usize),
    /// Every one.
    All,
}

/// A [`Top`] as a recipe writes it.
#[derive(Serialize, Deserialize, Clone)]
#[serde(untagged)]
enum TopValue {
    Number(usize),
    Text(String),
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

impl TryFrom<TopValue> for Top {
    type Error = String;

    fn try_from(value: TopValue) -> Result<Top, String> {
        match value {
            TopValue::Number(k) => k.to_string().parse(),
            TopValue::Text(text) => text.parse(),
        }
    }
}

impl From<Top> for TopValue {
    fn from(top: Top) -> TopValue {
        match top {
            Top::Most(k) => TopValue::Number(k),
            Top::All => TopValue::Text("all".into()),
        }
    }
}
