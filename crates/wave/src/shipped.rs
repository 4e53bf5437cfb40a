//! Template sets: the ones included in the command, and the list of `wave templates`.

use crate::run::entries;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use wave_artefacts::templates::{self, Source, TemplateDir};
use wave_hub::Kind;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::{locate, paths, progress};

/// A template directory embedded in the command.
struct Shipped {
    name: &'static str,
    /// `config.json` comes last: a directory that has it is complete.
    files: [(&'static str, &'static [u8]); 4],
}

macro_rules! shipped {
    ($name:literal: $($file:literal),*) => {
        Shipped {
            name: $name,
            files: [$(($file, include_bytes!(concat!("../templates/", $name, "/", $file)))),*],
        }
    };
}

/// The first set is the default.
const SETS: [Shipped; 2] = [
    shipped!("cifar-10": "templates.safetensors", "README.md", "expand.py", "config.json"),
    shipped!("fashion-mnist": "templates.safetensors", "README.md", "expand.py", "config.json"),
];

/// The names of the sets included in the command.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|set| set.name)
}

/// The templates for a user's argument: a path, a name on a hub, or the name of a set included in the command;
/// without an argument, the first of these sets.
///
/// # Errors
/// If there is none with this name, or an embedded set cannot be unpacked.
pub fn resolve(name: Option<&Path>, context: &Context) -> Result<Source> {
    let path = name.unwrap_or(Path::new(SETS[0].name));
    if name.is_some() && (path.exists() || locate::on_hub(path).is_some()) {
        return Ok(path.to_path_buf().into());
    }
    let of_name = |set: &&Shipped| path.as_os_str() == set.name;
    match SETS.iter().find(of_name) {
        Some(set) => Ok(Source {
            path: unpacked(set, context)?,
            shipped: Some(set.name),
        }),
        None => refuse!(
            "there are no templates {}{}; `wave templates` lists the available sets",
            path.display(),
            did_you_mean(&path.to_string_lossy(), names())
        ),
    }
}

/// An embedded set as a directory in the user's cache, whose files are compared with the embedded ones.
fn unpacked(set: &Shipped, context: &Context) -> Result<PathBuf> {
    let cache = wave_data::cache_directory().ok_or_else(|| {
        request(
            "the templates that come with wave need a cache directory; set WAVE_CACHE, HOME or \
             XDG_CACHE_HOME, or give a template directory",
        )
    })?;
    let dir = cache.join("templates").join(set.name);
    context.first_then_others(|| {
        wave_hub::prepare_out(&dir)?;
        for (name, bytes) in set.files {
            let file = dir.join(name);
            if fs::read(&file).is_ok_and(|found| found == bytes) {
                continue;
            }
            wave_hub::write_atomic(&file, bytes)
                .context("the templates that come with wave cannot be unpacked")?;
        }
        Ok(())
    })?;
    Ok(dir)
}

/// The available templates: the ones included in the command, in the directory `templates` and in the
/// download cache, and in `dirs` (or directories in these). Returns the output of `--json`.
pub fn list(dirs: &[PathBuf], context: &Context) -> Result<Value> {
    let mut found = Vec::new();
    for set in &SETS {
        match unpacked(set, context) {
            Ok(dir) => found.push((set.name.to_owned(), dir)),
            Err(error) => progress::note(&format!("{}: {error:#}", set.name)),
        }
    }
    let named: Vec<PathBuf> = dirs.iter().map(|dir| paths::resolve(dir)).collect();
    let mut local = within(Path::new("templates"))?;
    for dir in dirs {
        let inside = match is_set(dir) {
            true => vec![dir.clone()],
            false => within(dir)?,
        };
        if inside.is_empty() {
            refuse!(
                "{} is not a template directory and contains none; give another directory",
                dir.display()
            );
        }
        local.extend(inside);
    }
    let mut places = BTreeSet::new();
    local.retain(|dir| places.insert(paths::resolve(dir)));
    found.extend(local.into_iter().map(|dir| (paths::text(&dir), dir)));
    found.extend(downloaded().into_iter().filter(|(_, dir)| is_set(dir)));
    let mut rows = Vec::new();
    for (name, dir) in &found {
        match templates::read(dir) {
            Ok(set) => rows.push(row(name, &set)),
            Err(error) if named.contains(&paths::resolve(dir)) => return Err(error.into()),
            Err(error) => progress::note(&format!("wave: {name} is left out: {error}")),
        }
    }
    Ok(json!({ "templates": rows }))
}

/// The most downloaded template sets on the hub, by their tags. Returns the output of `--json`.
#[cfg(feature = "hub")]
pub fn on_hub() -> Result<Value> {
    use wave_hub::hub::{HubSettings, search};
    let found = search(&HubSettings::from_env()?, &templates::TAGS)?;
    let rows = found.into_iter().map(|set| {
        let name = format!("hf:{}", set.name);
        json!({ "name": name, "data": set.datasets.join(", "), "license": set.license,
            "downloads_a_month": set.downloads })
    });
    Ok(json!({ "templates": rows.collect::<Value>() }))
}

/// Always fails: this build has no hub.
#[cfg(not(feature = "hub"))]
pub fn on_hub() -> Result<Value> {
    Err(locate::absent())
}

/// Names on the hub with their cache directories.
#[cfg(feature = "hub")]
fn downloaded() -> Vec<(String, PathBuf)> {
    use wave_hub::hub::{HubSettings, cached};
    let names = |(name, dir)| (format!("hf:{name}"), dir);
    // Without a cache directory there are no downloads.
    let all = HubSettings::from_env().map_or_else(|_| Vec::new(), |settings| cached(&settings));
    all.into_iter().map(names).collect()
}

#[cfg(not(feature = "hub"))]
fn downloaded() -> Vec<(String, PathBuf)> {
    Vec::new()
}

/// The template directories in a directory, sorted; none if it is not one.
fn within(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut all = entries(dir)?;
    all.retain(|dir| is_set(dir));
    all.sort();
    Ok(all)
}

fn is_set(dir: &Path) -> bool {
    dir.is_dir() && wave_hub::directory_kind(dir).is_ok_and(|kind| kind == Kind::Templates)
}

/// A row of the list: name, data and classes, with the ranges of recorded sizes and accuracies.
fn row(name: &str, found: &TemplateDir) -> Value {
    let config = &found.config;
    let recorded = &config.accuracies;
    let range = |of: fn(&wave_hub::Accuracy) -> usize| {
        let all = recorded.iter().map(of);
        all.clone().min().zip(all.max())
    };
    let top1 = recorded.iter().map(|a| a.top1);
    json!({
        "name": name,
        "data": config.provenance["data"],
        "image_size": config.image_size,
        "classes": config.classes,
        "depth_range": range(|a| a.depth),
        "width_range": range(|a| a.width),
        "width_step": config.head_width,
        "top1_range": top1.clone().reduce(f64::min).zip(top1.reduce(f64::max)),
    })
}
