//! Data sets on a hub: the files of a repository that wave reads, and the `--data` name of the downloaded files.

use crate::error::request;
use crate::locate::with_progress;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use wave_data::Dataset;
use wave_hub::Fault;
use wave_hub::hub::{HubName, HubSettings, pull_data};

/// Words that identify the splits of a data set. Validation is used for testing if present, else test.
const TRAIN: [&str; 1] = ["train"];
const VALIDATION: [&str; 3] = ["val", "valid", "validation"];
const TEST: [&str; 1] = ["test"];

/// Folders of an ImageFolder.
const FOLDERS: [&str; 4] = ["train", "val", "validation", "test"];

/// Opens `OWNER/NAME[@REV]` with `controls` applied, and downloads files that are not in the cache.
pub(super) fn open(controls: &str, name: &str) -> Result<Dataset> {
    let name: HubName = name.parse()?;
    let settings = HubSettings::from_env()?;
    let choose = |files: &[String]| choose(files, wave_data::PARQUET).map(|chosen| chosen.files);
    let pulled = with_progress(|progress| pull_data(&settings, &name, &choose, progress))?;
    let here = files_below(&pulled.dir, Path::new(""));
    let chosen = self::choose(&here, wave_data::PARQUET).map_err(|refusal| {
        let Fault { found, remedy, .. } = refusal;
        request(format!("{}: {found}; {remedy}", pulled.dir.display()))
    })?;
    // Each part of a pattern is a path.
    let parts = chosen.spec.split('\n').map(|part| pulled.dir.join(part));
    let parts: Vec<String> = parts.map(|path| path.display().to_string()).collect();
    let mut dataset = wave_data::open(&format!("{controls}{}", parts.join(",")))?;
    let kinds = controls.replace(':', " ");
    dataset.name = format!("{kinds}hf:{}@{}", name.repo, pulled.commit);
    Ok(dataset)
}

/// The files below a directory, by their relative names.
fn files_below(dir: &Path, prefix: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join(prefix)).into_iter().flatten();
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let name = prefix.join(entry.file_name());
        match entry.path().is_dir() {
            true => files.extend(files_below(dir, &name)),
            false => files.extend(name.to_str().map(str::to_owned)),
        }
    }
    files.sort();
    files
}

/// The part of a repository that is read.
#[derive(Debug, PartialEq)]
struct Chosen {
    files: Vec<String>,
    /// A directory of the repository, or two patterns separated by a line break: the training files and the test
    /// files.
    spec: String,
}

/// Chooses parquet files, else tar shards, else folders of images.
fn choose(files: &[String], parquet: bool) -> Result<Chosen, Fault> {
    let (tables, shards) = (ending(files, &["parquet"]), ending(files, &["tar"]));
    let images = ending(files, &wave_data::IMAGE_EXTENSIONS);
    if parquet && !tables.is_empty() {
        shards_of(&tables, files)
    } else if !shards.is_empty() {
        shards_of(&shards, files)
    } else if !images.is_empty() {
        folders_of(&images, files)
    } else if !tables.is_empty() {
        refuse(
            "holds parquet files, and this program was built without parquet",
            "build it with `--features parquet`",
        )
    } else {
        refuse(
            "holds no data that wave reads from a hub: no parquet files, tar shards or images",
            "try the hub's own conversion, OWNER/NAME@refs/convert/parquet, or download and unpack it",
        )
    }
}

fn refuse<T>(found: impl Into<String>, remedy: &str) -> Result<T, Fault> {
    Err(Fault::new("", found, remedy))
}

/// The files with one of these extensions.
fn ending<'a>(files: &'a [String], extensions: &[&str]) -> Vec<&'a str> {
    let ends = |file: &&str| {
        let (_, own) = file.rsplit_once('.').unwrap_or_default();
        extensions
            .iter()
            .any(|known| own.eq_ignore_ascii_case(known))
    };
    files.iter().map(String::as_str).filter(ends).collect()
}

/// Splits a path into its folder and its last part.
fn folder(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// True if one of `words` is a word of `name`.
fn says(name: &str, words: &[&str]) -> bool {
    let mut all = name.split(|c: char| !c.is_ascii_alphabetic());
    all.any(|word| words.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// The files of one split: their name contains one of the words, or their folder is named so.
fn split_of<'a>(shards: &[&'a str], words: &[&str]) -> Vec<&'a str> {
    let is_of = |shard: &&&str| {
        let (dir, name) = folder(shard);
        says(name, words) || words.contains(&folder(dir).1)
    };
    shards.iter().filter(is_of).copied().collect()
}

/// Shards of one configuration: the training split, and validation or else test.
fn shards_of(shards: &[&str], files: &[String]) -> Result<Chosen, Fault> {
    let of = |shard: &str| {
        let (dir, _) = folder(shard);
        let (parent, last) = folder(dir);
        let part = FOLDERS.contains(&last);
        (if part { parent } else { dir }).to_owned()
    };
    let homes: BTreeSet<String> = shards.iter().map(|shard| of(shard)).collect();
    if homes.len() > 1 {
        let names: Vec<&str> = homes.iter().map(String::as_str).take(4).collect();
        return refuse(
            format!(
                "holds {} data sets, in the folders {}; expected one",
                homes.len(),
                names.join(", ")
            ),
            "download the one you want, and name its files: --data 'DIR/*.parquet'",
        );
    }
    let test = [&VALIDATION[..], &TEST].map(|words| split_of(shards, words));
    let test = test.into_iter().find(|part| !part.is_empty());
    let tested = split_of(shards, &[&VALIDATION[..], &TEST].concat());
    let trained = split_of(shards, &TRAIN);
    let is_train = |shard: &&&str| trained.contains(*shard) || !tested.contains(*shard);
    let train: Vec<&str> = shards.iter().filter(is_train).copied().collect();
    let test: Vec<&str> = test.unwrap_or_default();
    let test: Vec<&str> = test.into_iter().filter(|s| !train.contains(s)).collect();
    let parts = [&train, &test].into_iter().filter(|part| !part.is_empty());
    let spec: Vec<String> = parts.map(|part| pattern(part)).collect();
    let home = homes.first().map_or("", String::as_str);
    let info = files
        .iter()
        .filter(|file| folder(file) == (home, "_info.json"));
    let shards = train.into_iter().chain(test).map(str::to_owned);
    Ok(Chosen {
        files: shards.chain(info.cloned()).collect(),
        spec: spec.join("\n"),
    })
}

/// A pattern for files of one folder: `data/{train-0,train-1}.parquet`.
fn pattern(files: &[&str]) -> String {
    let stems = files.iter().filter_map(|file| file.rsplit_once('.'));
    let names: Vec<&str> = stems.clone().map(|(stem, _)| folder(stem).1).collect();
    let (prefix, _) = files[0].split_at(files[0].rfind('/').map_or(0, |at| at + 1));
    let ending = stems.map(|(_, ending)| ending).next().unwrap_or_default();
    format!("{prefix}{{{}}}.{ending}", names.join(","))
}

/// Image folders, with any lists of labels next to them.
fn folders_of(images: &[&str], files: &[String]) -> Result<Chosen, Fault> {
    let root = |image: &&str| {
        let parts: Vec<&str> = image.split('/').collect();
        let at = parts.iter().position(|part| FOLDERS.contains(part))?;
        let above = parts[..at].iter().map(|part| format!("{part}/"));
        (at + 1 < parts.len()).then(|| above.collect::<String>())
    };
    let roots: BTreeSet<String> = images.iter().filter_map(root).collect();
    let mut roots = roots.into_iter();
    let (Some(root), None) = (roots.next(), roots.next()) else {
        // Class folders, or images alone.
        return Ok(Chosen {
            files: images.iter().map(|image| (*image).to_owned()).collect(),
            spec: String::new(),
        });
    };
    let below = |folder: &str| format!("{root}{folder}/");
    let is_in = |folder: &&&str| images.iter().any(|image| image.starts_with(&below(folder)));
    let test = FOLDERS[1..].iter().find(is_in);
    let read = [Some(&"train"), test].into_iter().flatten();
    let read: Vec<String> = read.map(|f| below(f)).collect();
    let lists = ending(files, &["txt", "csv", "jsonl"]);
    let labels = test.and_then(|test| wave_data::label_files(Path::new(&below(test))));
    let mut labels = labels.unwrap_or_default();
    for home in read.iter().chain([&root]) {
        labels.extend(wave_data::METADATA.map(|file| PathBuf::from(format!("{home}{file}"))));
    }
    let is_read = |image: &&&str| read.iter().any(|dir| image.starts_with(dir));
    let is_label = |list: &&&str| labels.iter().any(|name| name == Path::new(list));
    let wanted = images.iter().filter(is_read);
    let lists = lists.iter().filter(is_label);
    Ok(Chosen {
        files: wanted.chain(lists).map(|file| (*file).to_owned()).collect(),
        spec: root.trim_end_matches('/').to_owned(),
    })
}

#[cfg(test)]
#[path = "repository_tests.rs"]
mod tests;
