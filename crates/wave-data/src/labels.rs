//! Labels of images that are not in folders: a file with a line `NAME CLASS` for each.
//!
//! NAME is a file's, with or without its extension; CLASS is a training folder's name or its number.
//! Commas, spaces and tabs part them, and what follows is ignored, so that Kaggle's
//! `LOC_val_solution.csv` (`ILSVRC2012_val_00000001,n01751748 ...`) and Caffe's `val.txt` both do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::DataError;
use crate::source::read_whole;

/// Longer is no list of labels.
const MAX_BYTES: u64 = 1 << 30;

/// The file of labels of the directory `part`, if there is one: `val.txt`, `val_labels.txt`,
/// `val.csv` or `LOC_val_solution.csv` beside it (of a directory `val`), or `labels.txt` in it.
pub(crate) fn find(part: &Path) -> Option<PathBuf> {
    let name = part.file_name()?.to_str()?;
    let beside = [
        format!("{name}.txt"),
        format!("{name}_labels.txt"),
        format!("{name}.csv"),
        format!("LOC_{name}_solution.csv"),
    ];
    let beside = beside.iter().map(|file| part.with_file_name(file));
    let within = ["labels.txt", "labels.csv"].map(|file| part.join(file));
    beside.chain(within).find(|file| file.is_file())
}

/// The label of each of `names`.
pub(crate) fn read(
    file: &Path,
    names: &[String],
    classes: &[String],
) -> Result<Vec<u32>, DataError> {
    let bytes = read_whole(file, MAX_BYTES)?;
    let parsed = parse(&String::from_utf8_lossy(&bytes), names, classes);
    parsed.map_err(|problem| DataError::content(file, problem))
}

fn parse(text: &str, names: &[String], classes: &[String]) -> Result<Vec<u32>, String> {
    let by_name: BTreeMap<&str, u32> = (0..).zip(classes).map(|(k, c)| (c.as_str(), k)).collect();
    let mut known: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (k, line) in text.lines().enumerate() {
        let mut words = line
            .split(|c: char| c == ',' || c.is_whitespace())
            .filter(|word| !word.is_empty());
        if let (Some(name), Some(class)) = (words.next(), words.next()) {
            let name = name.rsplit('/').next().unwrap_or(name);
            known.insert(name, (k + 1, class));
        }
    }
    let label = |name: &String| {
        let stem = name
            .rsplit_once('.')
            .map_or(name.as_str(), |(stem, _)| stem);
        let found = known.get(name.as_str()).or_else(|| known.get(stem));
        let &(line, class) = found.ok_or_else(|| {
            format!("does not name {name}; expected a line `{name} CLASS` for each image")
        })?;
        let number = class
            .parse()
            .ok()
            .filter(|&k: &u32| (k as usize) < classes.len());
        by_name.get(class).copied().or(number).ok_or_else(|| {
            format!(
                "line {line}: `{class}` is no class; expected a training folder's name or a number \
                 of 0 to {}",
                classes.len().saturating_sub(1)
            )
        })
    };
    names.iter().map(label).collect()
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
