//! Tar shards (WebDataset): members `KEY.jpg` with `KEY.cls` (a number) or `KEY.json` (`label`).
//!
//! Opening lists the members of every shard, in parallel, with their offsets; images are
//! then read in any order. Labels in `.cls` take precedence over `.json`. Next to the shards
//! `_info.json` may give the shards of each split, their numbers of images and the names of the
//! classes (`class_names`).

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rayon::prelude::*;
use serde_json::Value;

use crate::decode::too_long;
use crate::listing::{IMAGE_EXTENSIONS, TEST};
use crate::source::{MOST_CLASSES, check_label, named, open_file};
use crate::tar::{self, Member};
use crate::{DataError, Dataset, Source, cache, pattern};

mod info;

pub(crate) use info::{INCOMPLETE, INFO, by_pattern};
use info::{Info, TRAIN};

const MAX_LABEL_BYTES: u64 = 1 << 20;

/// The kind of a shard's cache file; renamed whenever the accepted files change.
const CACHED: &str = "tar-index-4";

pub(crate) fn is_shards(dir: &Path) -> bool {
    let mut described = [INFO, INCOMPLETE].iter();
    // A `train.tar` that was unpacked into `train/` is no shard.
    let unpacked = |shard: &PathBuf| Some(dir.join(shard.file_stem()?));
    let is_packed = |shard: &PathBuf| unpacked(shard).is_none_or(|folder| !folder.is_dir());
    described.any(|name| dir.join(name).is_file()) || splits(dir).concat().iter().any(is_packed)
}

/// Opens a directory of shards: by its `_info.json`, or else `train*.tar` and `val*.tar`.
pub(crate) fn open_directory(dir: &Path, name: String) -> Result<Dataset, DataError> {
    let info = Info::read(dir)?;
    let mut parts = [info.files(&[TRAIN]), info.files(&TEST)];
    if parts.concat().is_empty() {
        parts = splits(dir);
    }
    if parts.concat().is_empty() {
        let problem = "holds no tar shards whose names begin with `train` or `val`; name them \
                       train-*.tar, val-*.tar";
        return Err(DataError::content(dir, problem));
    }
    open(name, info, parts)
}

/// Opens shards by pattern: see [`by_pattern`].
pub(crate) fn open_pattern(spec: &str) -> Result<Dataset, DataError> {
    let (name, info, parts) = by_pattern(spec)?;
    open(name, info, parts)
}

/// `train*.tar` of a directory, and its `val*.tar`, `validation*.tar` or `test*.tar`.
pub(crate) fn splits(dir: &Path) -> [Vec<PathBuf>; 2] {
    let find = |part: &str| pattern::starred(&dir.join(format!("{part}*.tar"))).unwrap_or_default();
    let mut test = find("val");
    if test.is_empty() {
        test = find("test");
    }
    [find("train"), test]
}

fn open(name: String, info: Info, [train, test]: [Vec<PathBuf>; 2]) -> Result<Dataset, DataError> {
    let cache = cache::directory();
    let part = |files| Shards::open(files, &info, cache.as_deref());
    let (train, test) = (part(train)?, part(test)?);
    let all = train.samples.iter().chain(&test.samples);
    let highest = all.map(|sample| sample.label).max().unwrap_or(0);
    let names = named(info.class_names, highest, &format!("{INFO} names"))
        .map_err(|problem| DataError::Settings(format!("{name}: {problem}")))?;
    Ok(Dataset::new(name, names, train, test))
}

/// Offset and size of an image in its shard, and its label.
type Row = (u64, u64, u32);

/// The position and class of an image.
struct Sample {
    shard: u32,
    offset: u64,
    size: u64,
    label: u32,
}

struct Shards {
    files: Vec<PathBuf>,
    samples: Vec<Sample>,
}

impl Shards {
    fn open(files: Vec<PathBuf>, info: &Info, cache: Option<&Path>) -> Result<Shards, DataError> {
        let index = |file: &PathBuf| index(file, cache);
        let indexed: Vec<Result<Vec<Row>, DataError>> = files.par_iter().map(index).collect();
        let mut samples = Vec::new();
        let mut found = BTreeMap::new();
        for ((shard, file), rows) in (0..).zip(&files).zip(indexed) {
            let rows = rows?;
            found.insert(file.as_path(), rows.len() as u64);
            samples.extend(rows.into_iter().map(|(offset, size, label)| Sample {
                shard,
                offset,
                size,
                label,
            }));
        }
        info.check(&found)?;
        if let (true, Some(first)) = (samples.is_empty(), files.first()) {
            let problem = "no shard holds an image; expected members KEY.jpg and KEY.cls";
            return Err(DataError::content(first, problem));
        }
        Ok(Shards { files, samples })
    }
}

impl Source for Shards {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn label(&self, i: usize) -> u32 {
        self.samples[i].label
    }

    fn encoded(&self, i: usize) -> Result<Option<Vec<u8>>, DataError> {
        let sample = &self.samples[i];
        if let Some(problem) = too_long(sample.size) {
            return Err(DataError::content(self.name(i), problem));
        }
        let path = &self.files[sample.shard as usize];
        let mut bytes = Vec::with_capacity(sample.size as usize);
        let read = open_file(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(sample.offset))?;
            file.take(sample.size).read_to_end(&mut bytes)
        });
        read.map_err(DataError::read(path))?;
        Ok(Some(bytes))
    }

    fn file_size(&self, i: usize) -> Option<u64> {
        Some(self.samples[i].size)
    }

    fn modified(&self, i: usize) -> Option<SystemTime> {
        let file = &self.files[self.samples[i].shard as usize];
        file.metadata().ok()?.modified().ok()
    }

    fn name(&self, i: usize) -> String {
        let Sample { shard, offset, .. } = self.samples[i];
        format!("{}, byte {offset}", self.files[shard as usize].display())
    }
}

/// The images of a shard, from the cache if it has them.
fn index(file: &Path, cache: Option<&Path>) -> Result<Vec<Row>, DataError> {
    let known = cache.and_then(|dir| {
        let stamp = cache::stamp(file)?;
        Some((cache::file(dir, file, CACHED), stamp))
    });
    if let Some((path, stamp)) = &known
        && let Some((of, rows)) = cache::recall::<(String, Vec<Row>)>(path)
        && of == *stamp
    {
        return Ok(rows);
    }
    let archive = open_file(file).map_err(DataError::open(file))?;
    let rows = parse(&mut BufReader::with_capacity(4096, archive), file)?;
    if let Some((path, stamp)) = &known {
        cache::remember(path, &(stamp, &rows));
    }
    Ok(rows)
}

/// The images of an archive, in its order.
pub(crate) fn parse(archive: &mut (impl Read + Seek), path: &Path) -> Result<Vec<Row>, DataError> {
    let members = tar::list(archive, path)?;
    let wrong = |problem| DataError::content(path, problem);
    let mut images: Vec<(&str, &Member)> = Vec::new();
    let mut labels = BTreeMap::new();
    for member in &members {
        let (key, extension) = key_of(&member.name);
        if key.rsplit('/').next().unwrap_or(key).is_empty() {
            continue; // hidden
        }
        let extension = extension.to_ascii_lowercase();
        match extension.as_str() {
            "cls" | "json" => {
                if let Some(other) = labels.insert((key, extension == "json"), member) {
                    return Err(wrong(format!(
                        "has two labels for {key}, {} at byte {} and {} at byte {}; expected one",
                        other.name, other.offset, member.name, member.offset
                    )));
                }
            }
            image if image == "img" || IMAGE_EXTENSIONS.contains(&image) => {
                images.push((key, member));
            }
            _ => {}
        }
    }
    let row = |(key, image): (&str, &Member)| -> Result<Row, DataError> {
        let label = labels.get(&(key, false)).or(labels.get(&(key, true)));
        let missing = || wrong(format!("{} has no label; expected {key}.cls", image.name));
        let label = read_label(archive, label.ok_or_else(missing)?, path)?;
        Ok((image.offset, image.size, label))
    };
    images.into_iter().map(row).collect()
}

/// `dir/a.b.jpg` is `dir/a` and `b.jpg`; the last part counts.
fn key_of(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |at| at + 1);
    match name[file..].split_once('.') {
        Some((stem, rest)) => {
            let last = rest.rsplit('.').next().unwrap_or(rest);
            (&name[..file + stem.len()], last)
        }
        None => (name, ""),
    }
}

fn read_label(
    archive: &mut (impl Read + Seek),
    member: &Member,
    path: &Path,
) -> Result<u32, DataError> {
    let fail = |found: &str| {
        let found: String = found.chars().take(40).collect();
        let name = &member.name;
        let highest = MOST_CLASSES - 1;
        let problem =
            format!("{name}: `{found}` is not a label; expected a number from 0 to {highest}");
        DataError::content(path, problem)
    };
    if member.size > MAX_LABEL_BYTES {
        return Err(fail("a file that is too long"));
    }
    let mut text = vec![0; member.size as usize];
    tar::read_at(archive, member.offset, &mut text).map_err(DataError::open(path))?;
    let text = String::from_utf8_lossy(&text);
    let label = match member.name.to_ascii_lowercase().ends_with(".json") {
        true => {
            let json: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
            let mut keys = ["label", "cls", "class_id"].iter();
            keys.find_map(|&key| json[key].as_u64())
        }
        false => text.trim().parse().ok(),
    };
    label.and_then(check_label).ok_or_else(|| fail(&text))
}

#[cfg(test)]
#[path = "webdataset_tests.rs"]
mod tests;
