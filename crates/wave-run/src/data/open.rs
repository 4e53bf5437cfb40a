//! Opening the data of `--data` by name.

use crate::context::Context;
use crate::error::request;
use crate::hint;
use crate::locate::on_hub;
use crate::progress;
use anyhow::Result;
use std::path::Path;
use wave_data::{CONTROLS, Dataset};
use wave_models::refuse;

/// Opens the data of `--data`; of several names, separated by `|`, the first that exists. Refuses ranks that find
/// different data.
pub fn open(spec: Option<&str>, context: &Context) -> Result<Dataset> {
    let Some(spec) = spec else {
        refuse!("no data; give --data fashion-mnist, --data shapes, or a directory of images");
    };
    // The other ranks read the cache that the first one writes for a large data set.
    let dataset = context.first_then_others(|| open_first(spec))?;
    let images = dataset.train.len() + dataset.test.len();
    let ranks = context.ranks();
    let first = ranks.of_first(images as f64);
    if ranks.any(first != images as f64) {
        refuse!(
            "{} has {images} images here and {first} on rank 0: give all ranks the same data",
            dataset.name
        );
    }
    tell_empty_classes(&dataset);
    Ok(dataset)
}

/// Opens the first of several names that exists; the error is that of the first name.
fn open_first(spec: &str) -> Result<Dataset> {
    let Some((name, others)) = spec.split_once('|') else {
        return open_one(spec.trim());
    };
    open_one(name.trim()).or_else(|error| open_first(others).map_err(|_| error))
}

/// Opens one data set by name.
fn open_one(name: &str) -> Result<Dataset> {
    let (controls, of) = controls(name);
    if let Some(repository) = on_hub(Path::new(of)) {
        return open_on_hub(controls, repository);
    }
    wave_data::open(name).map_err(|error| match meant(name) {
        Some(meant) => request(format!(
            "`{name}` is neither a data set nor a directory; did you mean `{meant}`?"
        )),
        None => error.into(),
    })
}

/// Splits `inverted:rotated:SPEC` before SPEC.
pub(crate) fn controls(name: &str) -> (&str, &str) {
    let is_control = |kind: &&str| {
        kind.strip_suffix(':')
            .is_some_and(|k| CONTROLS.contains(&k))
    };
    let controls = name.split_inclusive(':').take_while(is_control);
    name.split_at(controls.map(str::len).sum())
}

#[cfg(feature = "hub")]
fn open_on_hub(controls: &str, repository: &str) -> Result<Dataset> {
    super::repository::open(controls, repository)
}

#[cfg(not(feature = "hub"))]
fn open_on_hub(_: &str, _: &str) -> Result<Dataset> {
    Err(crate::locate::absent())
}

/// A suggestion for a missing data set: one that is built in, or the content of the directory.
fn meant(name: &str) -> Option<String> {
    let (controls, of) = controls(name);
    let path = Path::new(of);
    let file = path.file_name()?.to_str()?;
    if path.exists() || of.contains([',', '*', '{', ':']) {
        return None;
    }
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let siblings: Vec<String> = std::fs::read_dir(parent.unwrap_or(Path::new(".")))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let built_in = parent.is_none().then_some(["fashion-mnist", "shapes"]);
    let known = built_in.iter().flatten().copied();
    let near = hint::nearest(file, known.chain(siblings.iter().map(String::as_str)))?;
    if near == file {
        return None; // something else is wrong with it
    }
    let near = path.with_file_name(near);
    Some(format!("{controls}{}", near.to_str()?))
}

/// Prints a note if numbers stand for classes and skip some, as years do, and numbers from 1: each gap is a class of
/// the model.
fn tell_empty_classes(dataset: &Dataset) {
    let mut counts = vec![0; dataset.class_names.len()];
    for source in [&dataset.train, &dataset.test] {
        for i in 0..source.len() {
            if let Some(count) = counts.get_mut(source.label(i) as usize) {
                *count += 1;
            }
        }
    }
    let all = dataset.class_names.iter().zip(&counts).enumerate();
    let mut empty = all.filter(|(k, (name, count))| **count == 0 && **name == k.to_string());
    if let Some((first, _)) = empty.next() {
        progress::note(&format!(
            "{}: {} of {} classes have no image (the first: {first}), since labels that are numbers count the \
             classes from 0 to the largest; unless that is meant, number the classes from 0 without gaps, or name \
             them",
            dataset.name,
            1 + empty.count(),
            counts.len()
        ));
    }
}
