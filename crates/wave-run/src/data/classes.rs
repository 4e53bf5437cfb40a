//! Checks that the classes of a model match those of the data, in number and in name.

use super::TestImages;
use crate::progress;
use anyhow::Result;
use wave_models::refuse;

impl TestImages {
    /// Checks that a model has one output for each class.
    pub fn check_classes(&self, classes: usize, remedy: &str) -> Result<()> {
        let (spec, own) = (&self.spec, self.class_names.len());
        match own == classes {
            true => Ok(()),
            false => refuse!("the data {spec} has {own} classes, the model {classes}; {remedy}"),
        }
    }

    /// Refuses a model whose class names differ from those of the data, if both are known: its outputs would keep
    /// the wrong names.
    pub fn check_names(&self, names: &[String], remedy: &str) -> Result<()> {
        match difference(&self.spec, &self.class_names, names) {
            None => Ok(()),
            Some(found) => refuse!("{found}; {remedy}"),
        }
    }

    /// Warns on stderr if the class names of a model differ from those of the data.
    pub fn tell_classes(&self, names: &[String]) {
        if let Some(found) = difference(&self.spec, &self.class_names, names) {
            progress::note(&format!(
                "warning: {found}; check that these are the model's classes"
            ));
        }
    }
}

/// The first difference between two lists of class names of equal length, if both are known.
fn difference(spec: &str, own: &[String], names: &[String]) -> Option<String> {
    if own.len() != names.len() || are_numbers(own) || are_numbers(names) {
        return None;
    }
    let mut pairs = names.iter().zip(own).enumerate();
    let (i, (theirs, ours)) = pairs.find(|(_, (a, b))| plain(a) != plain(b))?;
    let sorted = |names: &[String]| {
        let mut all: Vec<String> = names.iter().map(|name| plain(name)).collect();
        all.sort_unstable();
        all
    };
    let order = match sorted(own) == sorted(names) {
        true => " (the same names in another order)",
        false => "",
    };
    Some(format!(
        "class {i} is {ours} in {spec}, {theirs} in the model{order}"
    ))
}

/// True if names only number the classes: digits, transformers' `LABEL_7`, or WordNet's `n01440764`. Other sources
/// may name the same classes differently.
fn are_numbers(names: &[String]) -> bool {
    names.iter().all(|name| {
        let wordnet = name.strip_prefix('n').filter(|rest| rest.len() == 8);
        let digits = wordnet.or(name.strip_prefix("LABEL_")).unwrap_or(name);
        digits.bytes().all(|c| c.is_ascii_digit())
    })
}

/// Letters and digits of a name. Folders cannot be called `T-shirt/top`.
fn plain(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
