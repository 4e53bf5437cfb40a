//! Tar shards (WebDataset): members `KEY.jpg` with `KEY.cls` (a number) or `KEY.json` (`label`).
//!
//! Opening lists the members of every shard, in parallel, and remembers where they are; images are
//! then read from any place of any shard. Of labels, `.cls` goes before `.json`. Beside the shards
//! `_info.json` may say which shards make which split, and name the classes (`class_names`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::Value;

use crate::image::MAX_FILE_BYTES;
use crate::source::{Empty, no_image};
use crate::tar::{self, Member, Problem};
use crate::{DataError, Dataset, Encoded, RawImage, Source, cache, pattern};

const IMAGES: [&str; 6] = ["jpg", "jpeg", "png", "webp", "gif", "img"];

/// A label's file is not longer.
const MAX_LABEL_BYTES: u64 = 1 << 20;

pub(crate) const INFO: &str = "_info.json";

/// Whether `dir` holds tar shards.
pub(crate) fn is_shards(dir: &Path) -> bool {
    dir.join(INFO).is_file() || splits(dir).is_some()
}

/// Opens a directory of shards: by its `_info.json`, or else `train*.tar` and `val*.tar`.
pub(crate) fn open_directory(dir: &Path, name: String) -> Result<Dataset, DataError> {
    let info = Info::read(dir)?;
    let fail = |problem: &str| DataError::Layout {
        path: dir.to_owned(),
        problem: problem.to_owned(),
    };
    let named = |split: &str| info.files(dir, &[split]);
    let (train, test) = match (
        named("train"),
        info.files(dir, &["validation", "val", "test"]),
    ) {
        (Some(train), test) => (train, test),
        (None, Some(_)) => return Err(fail("_info.json names no split `train`")),
        (None, None) => {
            let (train, test) = splits(dir).ok_or_else(|| {
                fail("holds no tar shards whose names begin with `train`; name them: train-*.tar")
            })?;
            (train, Some(test).filter(|test| !test.is_empty()))
        }
    };
    open(train, test, name, info.class_names)
}

/// Opens shards by pattern: `TRAIN,TEST` or `TRAIN`, where the test set is that of an `_info.json`
/// or has the same name with `val`, `validation` or `test` for `train`, or is empty.
pub(crate) fn open_pattern(spec: &str) -> Result<Dataset, DataError> {
    let (train, test) = pattern::split(spec);
    let files = pattern::expand(train)?;
    let dir = files[0].parent().unwrap_or(Path::new(".")).to_owned();
    let info = Info::read(&dir)?;
    let companion = || info.companion(&dir, &files);
    let test = match test {
        Some(test) => Some(pattern::expand(test)?),
        None => match companion() {
            Some(test) => Some(test),
            None => pattern::companion(train)
                .map(|test| pattern::expand(&test))
                .transpose()?,
        },
    };
    let name = dir.canonicalize().unwrap_or(dir);
    let name = name
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    open(
        files,
        test,
        name.unwrap_or_else(|| "shards".to_owned()),
        info.class_names,
    )
}

/// `train*.tar` of a directory, and its `val*.tar`, `validation*.tar` or `test*.tar`.
fn splits(dir: &Path) -> Option<(Vec<PathBuf>, Vec<PathBuf>)> {
    let find = |part: &str| pattern::expand(dir.join(format!("{part}*.tar")).to_str()?).ok();
    let test = ["val", "test"].into_iter().find_map(find);
    Some((find("train")?, test.unwrap_or_default()))
}

fn open(
    train: Vec<PathBuf>,
    test: Option<Vec<PathBuf>>,
    name: String,
    class_names: Option<Vec<String>>,
) -> Result<Dataset, DataError> {
    let cache = cache::directory();
    let mut train = Shards::open(train, cache.as_deref())?;
    let mut test = test
        .map(|files| Shards::open(files, cache.as_deref()))
        .transpose()?;
    let labels = |shards: &Shards| shards.samples.iter().map(|s| s.label).max();
    let highest = labels(&train)
        .max(test.as_ref().and_then(labels))
        .unwrap_or(0);
    let names = class_names.unwrap_or_else(|| (0..=highest).map(|k| k.to_string()).collect());
    if names.len() <= highest as usize {
        return Err(DataError::Spec(format!(
            "{name}: a label {highest}, but {INFO} names {} classes; expected labels from 0",
            names.len()
        )));
    }
    let names: Arc<[String]> = names.into();
    train.class_names = names.clone();
    if let Some(test) = &mut test {
        test.class_names = names.clone();
    }
    Ok(Dataset {
        name,
        train: Arc::new(train),
        test: match test {
            Some(test) => Arc::new(test),
            None => Arc::new(Empty(names)),
        },
    })
}

/// What `_info.json` says, as timm reads it.
#[derive(Default)]
struct Info {
    splits: BTreeMap<String, Vec<String>>,
    class_names: Option<Vec<String>>,
}

impl Info {
    fn read(dir: &Path) -> Result<Info, DataError> {
        let path = dir.join(INFO);
        if !path.is_file() {
            return Ok(Info::default());
        }
        let text = std::fs::read_to_string(&path).map_err(|source| DataError::Open {
            path: path.clone(),
            source,
        })?;
        let info: Value = serde_json::from_str(&text)
            .map_err(|error| DataError::content(&path, format!("is no JSON: {error}")))?;
        let strings = |list: &Value| -> Vec<String> {
            let items = list.as_array().into_iter().flatten();
            items.filter_map(|s| Some(s.as_str()?.to_owned())).collect()
        };
        let splits = info["splits"].as_object().into_iter().flatten();
        Ok(Info {
            splits: splits
                .map(|(name, split)| (name.clone(), strings(&split["filenames"])))
                .filter(|(_, files)| !files.is_empty())
                .collect(),
            class_names: Some(strings(&info["class_names"])).filter(|names| !names.is_empty()),
        })
    }

    /// The shards of the first of these splits that there is. Names stay within `dir`.
    fn files(&self, dir: &Path, names: &[&str]) -> Option<Vec<PathBuf>> {
        let files = names.iter().find_map(|&name| self.splits.get(name))?;
        let within = |file: &String| {
            let plain = |part| matches!(part, std::path::Component::Normal(_));
            Path::new(file)
                .components()
                .all(plain)
                .then(|| dir.join(file))
        };
        files.iter().map(within).collect()
    }

    /// The test split, if `files` are of the training split.
    fn companion(&self, dir: &Path, files: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let train = self.files(dir, &["train"])?;
        let belong = files.iter().all(|file| train.contains(file));
        belong.then(|| self.files(dir, &["validation", "val", "test"]))?
    }
}

/// Where an image is, and its class.
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
    fn open(files: Vec<PathBuf>, cache: Option<&Path>) -> Result<Shards, DataError> {
        let indexed: Vec<Result<Vec<Sample>, DataError>> = files
            .par_iter()
            .enumerate()
            .map(|(k, file)| index(file, k as u32, cache))
            .collect();
        let mut samples = Vec::new();
        for shard in indexed {
            samples.extend(shard?);
        }
        if samples.is_empty() {
            return Err(DataError::Layout {
                path: files[0].clone(),
                problem: "no shard holds an image; expected members KEY.jpg and KEY.cls".to_owned(),
            });
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

    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        self.file(i)?.decode()
    }

    fn encoded(&self, i: usize) -> Result<Option<Encoded>, DataError> {
        self.file(i).map(Some)
    }

    fn file_size(&self, i: usize) -> Option<u64> {
        Some(self.samples.get(i)?.size)
    }

    fn name(&self, i: usize) -> String {
        match self.samples.get(i) {
            Some(sample) => {
                let file = self.files[sample.shard as usize].display();
                format!("{file}, byte {}", sample.offset)
            }
            None => format!("image {i}"),
        }
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn native_size(&self) -> Option<(usize, usize, usize)> {
        None
    }
}

impl Shards {
    fn file(&self, i: usize) -> Result<Encoded, DataError> {
        let sample = self.samples.get(i).ok_or_else(|| no_image(i, self.len()))?;
        let name = self.name(i);
        if sample.size > MAX_FILE_BYTES {
            return Err(DataError::Content {
                path: name,
                problem: format!(
                    "is {} bytes long; expected at most {MAX_FILE_BYTES}",
                    sample.size
                ),
            });
        }
        let path = &self.files[sample.shard as usize];
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(sample.offset))?;
            let mut bytes = Vec::with_capacity(sample.size as usize);
            file.take(sample.size).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Encoded { bytes, name }),
            Err(source) => Err(DataError::Read {
                path: path.clone(),
                source,
            }),
        }
    }
}

/// The samples of a shard, from the cache if it knows them.
fn index(file: &Path, shard: u32, cache: Option<&Path>) -> Result<Vec<Sample>, DataError> {
    let known = cache.and_then(|dir| {
        let stamp = cache::stamp(file)?;
        Some((cache::file(dir, file, "tar-index"), stamp))
    });
    if let Some((path, stamp)) = &known
        && let Ok(text) = std::fs::read_to_string(path)
        && let Some(samples) = recall(&text, stamp, shard)
    {
        return Ok(samples);
    }
    let samples = read_index(file, shard)?;
    if let Some((path, stamp)) = &known {
        // A cache that cannot be written costs time, nothing else.
        let _ = cache::write_atomically(path, |out| {
            writeln!(out, "{stamp}")?;
            samples
                .iter()
                .try_for_each(|s| writeln!(out, "{} {} {}", s.offset, s.size, s.label))
        });
    }
    Ok(samples)
}

fn recall(text: &str, stamp: &str, shard: u32) -> Option<Vec<Sample>> {
    let mut lines = text.lines();
    if lines.next() != Some(stamp) {
        return None;
    }
    let sample = |line: &str| {
        let mut numbers = line.split(' ');
        Some(Sample {
            shard,
            offset: numbers.next()?.parse().ok()?,
            size: numbers.next()?.parse().ok()?,
            label: numbers.next()?.parse().ok()?,
        })
    };
    lines.map(sample).collect()
}

fn read_index(path: &Path, shard: u32) -> Result<Vec<Sample>, DataError> {
    let file = File::open(path).map_err(|source| DataError::Open {
        path: path.to_owned(),
        source,
    })?;
    parse(&mut BufReader::with_capacity(4096, file), shard).map_err(|problem| match problem {
        Problem::Content(problem) => DataError::content(path, problem),
        Problem::Reading(source) => DataError::Open {
            path: path.to_owned(),
            source,
        },
    })
}

/// The samples of an archive, in the order of their images.
pub(crate) fn parse(archive: &mut (impl Read + Seek), shard: u32) -> Result<Vec<Sample>, Problem> {
    let members = tar::list(archive)?;
    let mut images: Vec<(&str, &Member)> = Vec::new();
    let mut labels: BTreeMap<&str, &Member> = BTreeMap::new();
    for member in &members {
        let (key, extension) = key_of(&member.name);
        if key.rsplit('/').next().unwrap_or(key).is_empty() {
            continue; // hidden
        }
        match extension {
            "cls" => _ = labels.insert(key, member),
            "json" => _ = labels.entry(key).or_insert(member),
            _ if IMAGES
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known)) =>
            {
                images.push((key, member));
            }
            _ => {}
        }
    }
    let mut samples = Vec::with_capacity(images.len());
    for (key, image) in images {
        let member = labels.get(key).ok_or_else(|| {
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

/// `dir/a.b.jpg` is `dir/a` and `b.jpg`, of which the last part counts.
fn key_of(name: &str) -> (&str, &str) {
    let file = name.rfind('/').map_or(0, |at| at + 1);
    match name[file..].find('.') {
        Some(dot) => {
            let extension = &name[file + dot + 1..];
            let last = extension.rfind('.').map_or(0, |at| at + 1);
            (&name[..file + dot], &extension[last..])
        }
        None => (name, ""),
    }
}

fn read_label(archive: &mut (impl Read + Seek), member: &Member) -> Result<u32, Problem> {
    let fail = |found: &str| {
        let found: String = found.chars().take(40).collect();
        Problem::Content(format!(
            "{}: `{found}` is no label; expected a number",
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
    if member.name.ends_with(".json") {
        let json: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let label = ["label", "cls", "class_id"]
            .iter()
            .find_map(|&key| json[key].as_u64());
        return label.and_then(check_label).ok_or_else(|| fail(&text));
    }
    let number = text.trim().parse().ok();
    number.and_then(check_label).ok_or_else(|| fail(&text))
}

/// No data set has a million classes; a label that large is a mistake that would cost memory.
pub(crate) fn check_label(label: u64) -> Option<u32> {
    (label < 1_000_000).then_some(label as u32)
}

#[cfg(test)]
#[path = "webdataset_tests.rs"]
mod tests;
