//! The inputs of a run. They must be the same when it resumes, and no output may overwrite them.

use crate::context::Context;
use crate::data::{self, Data};
use crate::locate;
use crate::paths::resolve;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use wave_data::{Dataset, Source, Transform};
use wave_models::refuse;

/// Digits kept of a digest: enough to tell inputs apart, few enough to read.
const DIGITS: usize = 16;

/// The inputs of a run.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    context: Context,
    /// Description and digest of each.
    identity: BTreeMap<String, String>,
    /// Paths of artefacts, directories or files, each with its role in the run.
    artefacts: Vec<(&'static str, PathBuf)>,
    /// Directories of data.
    data: Vec<PathBuf>,
}

impl Inputs {
    /// No inputs yet.
    pub fn new(context: &Context) -> Inputs {
        Inputs {
            context: context.clone(),
            ..Inputs::default()
        }
    }

    /// Adds an artefact: a directory, a weight file, or a name on a hub.
    pub fn artefact(mut self, name: &'static str, path: &Path) -> Result<Inputs> {
        let path = locate::locate(path, &self.context)?;
        let known = if path.is_file() {
            format!("digest {}", &wave_hub::sha256_file(&path)?[..DIGITS])
        } else {
            let mut text = String::new();
            for file in wave_hub::ARTEFACT_FILES {
                if !wave_hub::UNREAD_FILES.contains(&file) && path.join(file).exists() {
                    text += &format!("{file} {}\n", wave_hub::sha256_file(&path.join(file))?);
                }
            }
            digest(text.as_bytes())
        };
        self.identity.insert(name.into(), known);
        self.artefacts.push((name, path));
        Ok(self)
    }

    /// Adds an artefact that settings may name.
    pub fn artefact_if_any(self, name: &'static str, path: Option<&str>) -> Result<Inputs> {
        match path {
            Some(path) => self.artefact(name, Path::new(path)),
            None => Ok(self),
        }
    }

    /// Adds images and the value of `--data` that names them.
    pub fn images(self, spec: Option<&str>, data: &Data) -> Inputs {
        let train = described(&*data.train, &data.train_indices);
        let test = described(&*data.tests.source, &data.tests.indices);
        self.known("training images", train)
            .known("test images", test)
            .frame(&data.transform, &data.class_names)
            .place(spec)
    }

    /// Adds the properties of images that determine a model's input and classes.
    pub fn frame(self, transform: &Transform, class_names: &[String]) -> Inputs {
        let (mean, std) = (&transform.mean, &transform.std);
        let classes = match class_names.join(", ") {
            names if names.len() <= 200 => names,
            names => format!("{} ({})", class_names.len(), digest(names.as_bytes())),
        };
        let normalisation = format!("mean {mean:?}, standard deviation {std:?}");
        self.known("classes", classes)
            .known("normalisation", normalisation)
    }

    /// Adds an input described by `what`.
    pub fn known(mut self, name: &str, what: String) -> Inputs {
        self.identity.insert(name.into(), what);
        self
    }

    /// Adds the paths in a value of `--data`.
    pub fn place(mut self, spec: Option<&str>) -> Inputs {
        for name in spec.unwrap_or_default().split('|') {
            let (_, of) = data::controls(name.trim());
            self.data.push(of.into());
        }
        self
    }

    /// Description of each input, by name.
    pub fn identity(&self) -> &BTreeMap<String, String> {
        &self.identity
    }

    /// Refuses an `out` that is an input or lies within the data, under any spelling: writing there would change it.
    pub fn check_out(&self, out: &Path) -> Result<()> {
        let (place, out) = (resolve(out), out.display());
        for (name, path) in &self.artefacts {
            let (input, path) = (resolve(path), path.display());
            if input == place || (input.is_file() && input.parent() == Some(&*place)) {
                refuse!("the output {out} would overwrite the {name} {path}; choose another --out");
            }
        }
        for path in self.data.iter().filter(|path| path.is_dir()) {
            if place.starts_with(resolve(path)) {
                let path = path.display();
                refuse!(
                    "the output {out} is inside the data {path}, which it would change; choose \
                     another directory"
                );
            }
        }
        Ok(())
    }
}

/// Description and digest of a data set.
pub fn content(dataset: &Dataset) -> String {
    let all = |source: &dyn Source| {
        let images: Vec<u32> = (0..source.len() as u32).collect();
        described(source, &images)
    };
    let classes = dataset.class_names.join(", ");
    format!("{} {} {classes}", all(&*dataset.train), all(&*dataset.test))
}

/// The number of images, and a digest of them.
fn described(source: &dyn Source, images: &[u32]) -> String {
    let identity = &data::identity(source, images)[..DIGITS];
    format!("{} (digest {identity})", images.len())
}

fn digest(bytes: &[u8]) -> String {
    format!("digest {}", &wave_hub::sha256_hex(bytes)[..DIGITS])
}

/// Differences between two descriptions, by key.
pub fn differences(was: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let keys: BTreeSet<&String> = was.keys().chain(now.keys()).collect();
    let keys = keys.into_iter();
    let differ = keys.filter(|key| was.get(*key) != now.get(*key));
    let words = |key: &String| {
        let [was, now] = [was, now].map(|map| map.get(key).map_or("not set", String::as_str));
        format!("{key}: was {was}, now {now}")
    };
    differ.map(words).collect()
}

#[cfg(test)]
#[path = "inputs_tests.rs"]
mod tests;
