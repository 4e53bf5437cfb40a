//! `_info.json` next to shards: the shards of each split, and their numbers of images.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::source::read_whole;
use crate::{DataError, pattern};

pub(crate) const INFO: &str = "_info.json";

/// Exists next to the shards until all of them are written.
pub(crate) const INCOMPLETE: &str = "_incomplete";

/// Maximum size of an `_info.json`.
const MAX_INFO_BYTES: u64 = 1 << 28;

/// The split of training images.
pub(super) const TRAIN: &str = "train";
/// Splits of test images.
pub(super) const TEST: [&str; 3] = ["validation", "val", "test"];

/// The content of `_info.json`, as timm reads it.
#[derive(Default)]
pub(crate) struct Info {
    splits: BTreeMap<String, SplitInfo>,
    /// Named shards; true if a shard is of a test split alone.
    tests: BTreeMap<PathBuf, bool>,
    pub(super) class_names: Option<Vec<String>>,
}

/// A split, as `_info.json` describes it.
struct SplitInfo {
    files: Vec<PathBuf>,
    /// Images in each of them; empty if not given.
    lengths: Vec<u64>,
    /// Images in all of them, if given.
    images: Option<u64>,
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
        let bytes = read_whole(&path, MAX_INFO_BYTES)?;
        let info: Value = serde_json::from_slice(&bytes)
            .map_err(|error| DataError::content(&path, format!("is not JSON: {error}")))?;
        let (mut splits, mut tests) = (BTreeMap::new(), BTreeMap::new());
        for (name, split) in info["splits"].as_object().into_iter().flatten() {
            let part = SplitInfo::new(dir, split)
                .map_err(|problem| DataError::content(&path, format!("{name}: {problem}")))?;
            if let Some(part) = part {
                for file in &part.files {
                    *tests.entry(file.clone()).or_insert(true) &= TEST.contains(&name.as_str());
                }
                splits.insert(name.clone(), part);
            }
        }
        Ok(Info {
            splits,
            tests,
            class_names: Some(strings(&info["class_names"])).filter(|names| !names.is_empty()),
        })
    }

    /// The shards of the first of these splits that exists.
    pub(super) fn files(&self, names: &[&str]) -> Option<Vec<PathBuf>> {
        let part = names.iter().find_map(|&name| self.splits.get(name))?;
        Some(part.files.clone())
    }

    /// The files for training and testing: the ones of the patterns `TRAIN,TEST`, or of one pattern, whose files
    /// `_info.json` or their names divide. If all are for training, the test set comes from an `_info.json`, or
    /// has the same name with `val`, `validation` or `test` instead of `train`, or is empty.
    pub(crate) fn parts(
        &self,
        files: Vec<PathBuf>,
        pattern: &str,
        test: Option<&str>,
    ) -> Result<(Vec<PathBuf>, Vec<PathBuf>), DataError> {
        if let Some(test) = test {
            return Ok((files, pattern::expand(test)?));
        }
        let is_test = |file: &PathBuf| {
            let named = self.tests.get(file).copied();
            named.unwrap_or_else(|| pattern::is_test(file))
        };
        let (mut test, train): (Vec<_>, Vec<_>) = files.into_iter().partition(is_test);
        if test.is_empty() {
            let known = train.iter().all(|file| self.tests.contains_key(file));
            let split = self.files(&TEST).filter(|_| known);
            test = split
                .or_else(|| pattern::companion(pattern))
                .unwrap_or_default();
        }
        Ok((train, test))
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

impl SplitInfo {
    fn new(dir: &Path, split: &Value) -> Result<Option<SplitInfo>, String> {
        let files = strings(&split["filenames"]);
        let plain = |part| matches!(part, std::path::Component::Normal(_));
        // Names stay within `dir`.
        if files.is_empty() || !files.iter().all(|f| Path::new(f).components().all(plain)) {
            return Ok(None);
        }
        let mut lengths = Vec::new();
        if let Some(all) = split["shard_lengths"].as_array() {
            lengths.extend(all.iter().filter_map(Value::as_u64));
            let (n, files) = (lengths.len(), files.len());
            if n != files {
                return Err(format!(
                    "{n} shard_lengths for {files} filenames; expected equal numbers"
                ));
            }
        }
        Ok(Some(SplitInfo {
            files: files.iter().map(|file| dir.join(file)).collect(),
            lengths,
            images: split["num_samples"].as_u64(),
        }))
    }
}

/// The strings of a list; empty for anything else.
fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|s| Some(s.as_str()?.to_owned())).collect()
}
