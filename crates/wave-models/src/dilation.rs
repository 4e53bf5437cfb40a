//! Dilations of depthwise convolutions, layer by layer (thesis, section 3.1.4).

use crate::Checked;
use crate::check::{self, refuse_value};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The schedules of the thesis' table 3.2, by quarters of the depth: A has no dilation, B and C dilate all
/// layers alike, and from D on later layers have larger dilations.
const SCHEDULES: [(&str, [usize; 8]); 8] = [
    ("A", [1, 1, 1, 1, 1, 1, 1, 1]),
    ("B", [2, 2, 2, 2, 2, 2, 2, 2]),
    ("C", [3, 3, 3, 3, 3, 3, 3, 3]),
    ("D", [1, 1, 2, 2, 3, 3, 3, 3]),
    ("E", [1, 1, 1, 1, 2, 2, 3, 3]),
    ("F", [1, 1, 2, 2, 2, 2, 2, 2]),
    ("G", [1, 1, 1, 1, 2, 2, 2, 2]),
    ("H", [1, 1, 1, 1, 1, 1, 2, 2]),
];

/// A dilation for each layer; empty if all are 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dilations(Vec<usize>);

impl Dilations {
    /// The dilations of these layers. All-ones dilations are equal, whatever the number of layers.
    pub fn new(layers: Vec<usize>) -> Dilations {
        match layers.iter().all(|d| *d == 1) {
            true => Dilations::default(),
            false => Dilations(layers),
        }
    }

    /// Parses the dilations of `depth` layers: a digit for all of them, a digit for each, or a letter of the
    /// thesis' table 3.2, whose quarters stretch to any depth.
    pub fn parse(text: &str, depth: usize) -> Checked<Dilations> {
        if let Some((_, schedule)) = SCHEDULES.iter().find(|(name, _)| *name == text) {
            let quarters = (0..depth).map(|layer| schedule[layer * schedule.len() / depth]);
            return Ok(Dilations::new(quarters.collect()));
        }
        let expected = "one digit for all layers, one digit per layer (such as 11223333 for eight \
                        layers), or a schedule from A to H";
        let digits = text.chars().map(|c| c.to_digit(10).map(|d| d as usize));
        match digits.collect::<Option<Vec<usize>>>() {
            Some(one) if one.len() == 1 => Ok(Dilations::new(one.repeat(depth))),
            Some(each) if each.len() == depth => Ok(Dilations::new(each)),
            _ => refuse_value("dilation", format!("{text} for {depth} layers"), expected),
        }
    }

    /// The dilations of `depth` layers from a configuration: one number for all of them, or a list.
    pub fn from_json(value: &Value, depth: usize) -> Checked<Dilations> {
        let size = |v: &Value| v.as_u64().and_then(|v| usize::try_from(v).ok());
        let layers = match value {
            Value::Array(layers) => layers.iter().map(size).collect(),
            one => size(one).map(|d| vec![d; depth]),
        };
        let expected = "a number, or a list with one number per layer";
        match layers {
            Some(layers) => Ok(Dilations::new(layers)),
            None => refuse_value("dilation", value, expected),
        }
    }

    /// Dilation of a layer, counted from 0.
    pub fn at(&self, layer: usize) -> usize {
        self.0.get(layer).copied().unwrap_or(1)
    }

    /// For a configuration: the list of all layers' dilations, if any is not 1.
    pub fn to_json(&self) -> Option<Value> {
        (!self.0.is_empty()).then(|| self.0.clone().into())
    }

    /// Checks that there is one dilation per layer, or none at all, that each is between 1 and `at_most`,
    /// beyond which all taps but the centre fall outside the image, and that the kernel has a centre.
    pub(crate) fn validate(&self, depth: usize, kernel: usize, at_most: usize) -> Checked<()> {
        let name = "dilation";
        if self.0.is_empty() {
            return Ok(());
        }
        if self.0.len() != depth {
            let found = format!("a list of length {} for {depth} layers", self.0.len());
            return refuse_value(name, found, "one dilation per layer");
        }
        if kernel.is_multiple_of(2) {
            let found = format!("{kernel}, with dilation");
            return refuse_value("kernel", found, "an odd size, or dilation 1");
        }
        for &value in &self.0 {
            check::sizes(&[(name, value)])?;
            check::at_most(name, value, at_most)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "dilation_tests.rs"]
mod tests;
