//! Tar shards (WebDataset): members `KEY.jpg` with `KEY.cls` (a number) or `KEY.json` (`label`).
//!
//! Opening lists the members of every shard, in parallel, with their offsets; images are
//! then read in any order. Labels in `.cls` take precedence over `.json`. Next to the shards
//! `_info.json` may give the shards of each split, their numbers of images and the names of the
//! classes (`class_names`).

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rayon::prelude::*;
use serde_json::Value;

use crate::decode::too_long;
use crate::error::Problem;
use crate::listing::IMAGE_EXTENSIONS;
use crate::source::{check_label, name_of, numbered, open_file};
use crate::tar::{self, Member};
use crate::{DataError, Dataset, Source, cache, pattern};

mod info;

pub(crate) use info::{INCOMPLETE, INFO, Info};
use info::{TEST, TRAIN};

/// The extension of images of any format.
const IMAGE: &str = "img";

/// Maximum size of a label file.
const MAX_LABEL_BYTES: u64 = 1 << 20;

/// The kind of a shard's cache file; renamed whenever the accepted files change.
const CACHED: &str = "tar-index-4";

/// True if `dir` holds tar shards.
pub(crate) fn is_shards(dir: &Path) -> bool {
    [INFO, INCOMPLETE]
        .iter()
        .any(|name| dir.join(name).is_file())
        || splits(dir).is_some()
}

/// Opens a directory of shards: by its `_info.json`, or else `train*.tar` and `val*.tar`.
pub(crate) fn open_directory(dir: &Path, name: String) -> Result<Dataset, DataError> {
    let info = Info::read(dir)?;
    let named = (info.files(&[TRAIN]), info.files(&TEST));
    let (train, test) = match named {
        (None, None) => splits(dir).ok_or_else(|| {
            let problem = "holds no tar shards whose names begin with `train` or `val`; name them \
                           train-*.tar, val-*.tar";
            DataError::content(dir, problem)
        })?,
        (train, test) => (train.unwrap_or_default(), test.unwrap_or_default()),
    };
    open(train, test, name, info)
}

/// Opens shards by pattern: see [`Info::parts`].
pub(crate) fn open_pattern(spec: &str) -> Result<Dataset, DataError> {
    let (pattern, test) = pattern::split(spec);
    let files = pattern::expand(pattern)?;
    let dir = files[0].parent().unwrap_or(Path::new(".")).to_owned();
    let info = Info::read(&dir)?;
    let (train, test) = info.parts(files, pattern, test)?;
    let name = name_of(&dir).unwrap_or_else(|| "shards".to_owned());
    open(train, test, name, info)
}

/// `train*.tar` of a directory, and its `val*.tar`, `validation*.tar` or `test*.tar`; if there are any.
fn splits(dir: &Path) -> Option<(Vec<PathBuf>, Vec<PathBuf>)> {
    let find = |part: &str| pattern::expand(dir.join(format!("{part}*.tar")).to_str()?).ok();
    let (train, test) = (find("train"), ["val", "test"].into_iter().find_map(find));
    (train.is_some() || test.is_some())
        .then(|| (train.unwrap_or_default(), test.unwrap_or_default()))
}

fn open(
    train: Vec<PathBuf>,
    test: Vec<PathBuf>,
    name: String,
    info: Info,
) -> Result<Dataset, DataError> {
    let cache = cache::directory();
    let part = |files| Shards::open(files, &info, cache.as_deref());
    let (mut train, mut test) = (part(train)?, part(test)?);
    let all = train.samples.iter().chain(&test.samples);
    let highest = all.map(|sample| sample.label).max().unwrap_or(0);
    let names = info.class_names.unwrap_or_else(|| numbered(highest));
    if names.len() <= highest as usize {
        return Err(DataError::Settings(format!(
            "{name}: has a label {highest}, but {INFO} names {} classes; expected labels from 0",
            names.len()
        )));
    }
    let names: Arc<[String]> = names.into();
    train.class_names = names.clone();
    test.class_names = names;
    Ok(Dataset::new(name, train, test))
}

/// The position and class of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) shard: u32,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) label: u32,
}

struct Shards {
    files: Vec<PathBuf>,
    samples: Vec<Sample>,
    class_names: Arc<[String]>,
}

impl Shards {
    fn open(files: Vec<PathBuf>, info: &Info, cache: Option<&Path>) -> Result<Shards, DataError> {
        let indexed: Vec<Result<Vec<Sample>, DataError>> = files
            .par_iter()
            .enumerate()
            .map(|(k, file)| index(file, k as u32, cache))
            .collect();
        let mut samples = Vec::new();
        let mut found = BTreeMap::new();
        for (file, shard) in files.iter().zip(indexed) {
            let shard = shard?;
            found.insert(file.as_path(), shard.len() as u64);
            samples.extend(shard);
        }
        info.check(&found)?;
        if let (true, Some(first)) = (samples.is_empty(), files.first()) {
            let problem = "no shard holds an image; expected members KEY.jpg and KEY.cls";
            return Err(DataError::content(first, problem));
        }
        Ok(Shards {
            files,
            samples,
            class_names: Arc::new([]),
        })
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
            return Err(DataError::content(Path::new(&self.name(i)), problem));
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

    fn class_names(&self) -> &[String] {
        &self.class_names
    }
}

/// The samples of a shard, from the cache if it has them.
fn index(file: &Path, shard: u32, cache: Option<&Path>) -> Result<Vec<Sample>, DataError> {
    let known = cache.and_then(|dir| {
        let stamp = cache::stamp(file)?;
        Some((cache::file(dir, file, CACHED), stamp))
    });
    if let Some((path, stamp)) = &known
        && let Some((of, samples)) = cache::recall::<(String, Vec<(u64, u64, u32)>)>(path)
        && of == *stamp
    {
        let sample = |(offset, size, label)| Sample {
            shard,
            offset,
            size,
            label,
        };
        return Ok(samples.into_iter().map(sample).collect());
    }
    let archive = open_file(file).map_err(DataError::open(file))?;
    let samples = parse(&mut BufReader::with_capacity(4096, archive), shard)
        .map_err(|problem| problem.of(file))?;
    if let Some((path, stamp)) = &known {
        let rows = samples.iter().map(|s| (s.offset, s.size, s.label));
        cache::remember(path, &(stamp, rows.collect::<Vec<_>>()));
    }
    Ok(samples)
}

/// The samples of an archive, in the order of their images.
pub(crate) fn parse(archive: &mut (impl Read + Seek), shard: u32) -> Result<Vec<Sample>, Problem> {
    let members = tar::list(archive)?;
    let mut images: Vec<(&str, &Member)> = Vec::new();
    let (mut numbers, mut descriptions) = (BTreeMap::new(), BTreeMap::new());
    for member in &members {
        let (key, extension) = key_of(&member.name);
        if key.rsplit('/').next().unwrap_or(key).is_empty() {
            continue; // hidden
        }
        let extension = extension.to_ascii_lowercase();
        match extension.as_str() {
            "cls" => label(&mut numbers, key, member)?,
            "json" => label(&mut descriptions, key, member)?,
            image if image == IMAGE || IMAGE_EXTENSIONS.contains(&image) => {
                images.push((key, member));
            }
            _ => {}
        }
    }
    let mut samples = Vec::with_capacity(images.len());
    for (key, image) in images {
        let label = numbers.get(key).or_else(|| descriptions.get(key));
        let member = label.ok_or_else(|| {
            Problem::Content(format!("{} has no label; expected {key}.cls", image.name))
        })?;
        samples.push(Sample {
            shard,
            offset: image.offset,
            size: image.size,
            label: read_label(archive, member)?,
        });
    }
    Ok(samples)
}

/// Records the label of a key, which has only one.
fn label<'a>(
    labels: &mut BTreeMap<&'a str, &'a Member>,
    key: &'a str,
    member: &'a Member,
) -> Result<(), Problem> {
    match labels.insert(key, member) {
        None => Ok(()),
        Some(other) => Err(Problem::Content(format!(
            "has two labels for {key}, {} at byte {} and {} at byte {}; expected one",
            other.name, other.offset, member.name, member.offset
        ))),
    }
}

/// `dir/a.b.jpg` is `dir/a` and `b.jpg`; the last part counts.
fn key_of(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |at| at + 1);
    match name[file..].find('.') {
        Some(dot) => {
            let last = name.rfind('.').unwrap_or(file + dot);
            (&name[..file + dot], &name[last + 1..])
        }
        None => (name, ""),
    }
}

fn read_label(archive: &mut (impl Read + Seek), member: &Member) -> Result<u32, Problem> {
    let fail = |found: &str| {
        let found: String = found.chars().take(40).collect();
        Problem::Content(format!(
            "{}: `{found}` is not a label; expected a number",
            member.name
        ))
    };
    if member.size > MAX_LABEL_BYTES {
        return Err(fail("a file that is too long"));
    }
    let mut text = vec![0; member.size as usize];
    archive.seek(SeekFrom::Start(member.offset))?;
    archive.read_exact(&mut text)?;
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
