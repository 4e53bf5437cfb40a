//! `_info.json` next to shards: the shards of each split, and their numbers of images.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::listing::TEST;
use crate::source::{name_of, read_whole};
use crate::{DataError, pattern};

pub(crate) const INFO: &str = "_info.json";

/// Exists next to the shards until all of them are written.
pub(crate) const INCOMPLETE: &str = "_incomplete";

const MAX_INFO_BYTES: u64 = 1 << 28;

pub(super) const TRAIN: &str = "train";

/// The content of `_info.json`, as timm reads it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    splits: BTreeMap<String, Split>,
    /// Empty if not given.
    pub(super) class_names: Vec<String>,
}

#[derive(Deserialize)]
struct Split {
    #[serde(default, rename = "filenames")]
    files: Vec<PathBuf>,
    /// Images in each of them; empty if not given.
    #[serde(default, rename = "shard_lengths")]
    lengths: Vec<u64>,
    /// Images in all of them, if given.
    #[serde(rename = "num_samples")]
    images: Option<u64>,
}

/// The name of a pattern's data set, the description beside its files, and the files for training and for testing:
/// those of `TRAIN,TEST`, or of one pattern, divided by the description or by their names.
pub(crate) fn by_pattern(spec: &str) -> Result<(String, Info, [Vec<PathBuf>; 2]), DataError> {
    let (train, test) = pattern::split(spec);
    let files = pattern::expand(train)?;
    let dir = files[0].parent().unwrap_or(Path::new("."));
    let name = name_of(dir).unwrap_or_else(|| "shards".to_owned());
    let info = Info::read(dir)?;
    let parts = match test {
        Some(test) => [files, pattern::expand(test)?],
        None => {
            let named = info.tests();
            let is_test = |file: &PathBuf| {
                let named = named.get(&**file).copied();
                named.unwrap_or_else(|| pattern::is_test(file))
            };
            let (test, train) = files.into_iter().partition(is_test);
            [train, test]
        }
    };
    Ok((name, info, parts))
}

impl Info {
    /// Reads the file of `dir`, if there is one.
    pub(super) fn read(dir: &Path) -> Result<Info, DataError> {
        if dir.join(INCOMPLETE).exists() {
            let problem = format!(
                "holds shards that were not completely packed ({INCOMPLETE}); pack them again, here \
                 or elsewhere"
            );
            return Err(DataError::content(dir, problem));
        }
        let path = dir.join(INFO);
        if !path.exists() {
            return Ok(Info::default());
        }
        let wrong = |problem| DataError::content(&path, problem);
        let bytes = read_whole(&path, MAX_INFO_BYTES, DataError::open(&path))?;
        let mut info: Info = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("is not JSON as timm reads it: {error}")))?;
        let plain = |part: Component| matches!(part, Component::Normal(_));
        // Names stay within `dir`.
        let within = |file: &PathBuf| file.components().all(plain);
        info.splits
            .retain(|_, split| !split.files.is_empty() && split.files.iter().all(within));
        for (name, split) in &mut info.splits {
            let (n, files) = (split.lengths.len(), split.files.len());
            if n != 0 && n != files {
                return Err(wrong(format!(
                    "{name}: {n} shard_lengths for {files} filenames; expected equal numbers"
                )));
            }
            for file in &mut split.files {
                *file = dir.join(&*file);
            }
        }
        Ok(info)
    }

    /// The shards of the first of these splits that exists, if any does.
    pub(super) fn files(&self, names: &[&str]) -> Vec<PathBuf> {
        let part = names.iter().find_map(|&name| self.splits.get(name));
        part.map_or_else(Vec::new, |part| part.files.clone())
    }

    /// All shards; true if a shard is of a test split alone.
    fn tests(&self) -> BTreeMap<&Path, bool> {
        let mut tests = BTreeMap::new();
        for (name, split) in &self.splits {
            for file in &split.files {
                *tests.entry(&**file).or_insert(true) &= TEST.contains(&name.as_str());
            }
        }
        tests
    }

    /// Compares the numbers of images found in each shard with the numbers in `_info.json`.
    pub(super) fn check(&self, found: &BTreeMap<&Path, u64>) -> Result<(), DataError> {
        for part in self.splits.values() {
            let count = |file: &PathBuf| found.get(file.as_path()).copied();
            for (file, length) in part.files.iter().zip(&part.lengths) {
                if let Some(count) = count(file).filter(|count| count != length) {
                    let problem = format!(
                        "holds {count} images, but {INFO} says {length}: it was cut off or \
                         changed; copy or pack it again"
                    );
                    return Err(DataError::content(file, problem));
                }
            }
            let sum = part.files.iter().map(count).sum::<Option<u64>>();
            if let (Some(sum), Some(images)) = (sum, part.images)
                && sum != images
            {
                let problem = format!(
                    "says num_samples = {images}, but its shards hold {sum} images: some were cut \
                     off or changed; copy or pack them again"
                );
                let info = part.files[0].with_file_name(INFO);
                return Err(DataError::content(&info, problem));
            }
        }
        Ok(())
    }
}
