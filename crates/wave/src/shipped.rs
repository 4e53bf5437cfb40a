//! Template sets: those that come with the command, and which are at hand (`wave templates`).

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use wave_hub::Kind;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::{locate, paths, ranks};
use wave_stages::templates::{self, TemplateDir};

/// A template directory within the command.
struct Shipped {
    name: &'static str,
    /// `config.json` last: a directory with one is complete.
    files: [(&'static str, &'static [u8]); 2],
}

/// The first is taken where none is named.
const SETS: [Shipped; 1] = [Shipped {
    name: "fashion-mnist",
    files: [
        (
            "templates.safetensors",
            include_bytes!("../../../templates/fashion-mnist/templates.safetensors"),
        ),
        (
            "config.json",
            include_bytes!("../../../templates/fashion-mnist/config.json"),
        ),
    ],
}];

/// The template directory that a user names: a path, a name on a hub, or that of a set which comes with
/// the command; without a name, the first of these.
///
/// # Errors
/// If there is none of this name, or a shipped set cannot be unpacked.
pub fn resolve(name: Option<&Path>) -> Result<PathBuf> {
    let Some(path) = name else {
        return unpacked(&SETS[0]);
    };
    if path.exists() || locate::on_hub(path).is_some() {
        return Ok(path.to_path_buf());
    }
    let of_name = |set: &&Shipped| path.as_os_str() == set.name;
    match SETS.iter().find(of_name) {
        Some(set) => unpacked(set),
        None => Err(request(format!(
            "there are no templates {}{}; `wave templates` lists those at hand",
            path.display(),
            did_you_mean(&path.to_string_lossy(), SETS.iter().map(|set| set.name))
        ))),
    }
}

/// A shipped set as a directory in the user's cache. What is there is compared, not trusted.
fn unpacked(set: &Shipped) -> Result<PathBuf> {
    let dir = cache()?.join("templates").join(set.name);
    ranks::first_then_others(|| {
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

/// The user's cache.
fn cache() -> Result<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let own = var("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(var("HOME").or_else(|| var("USERPROFILE"))?).join(".cache"));
    match own.or_else(home) {
        Some(dir) => Ok(dir.join("wave")),
        None => Err(request(
            "the templates that come with wave need a place: set HOME or XDG_CACHE_HOME, or name a \
             template directory",
        )),
    }
}

/// The templates at hand: those that come with the command, those in the directory `templates` and in the
/// cache of downloads, and those in `dirs`, which hold some or are some. Returns what `--json` prints.
///
/// # Errors
/// If one of `dirs` cannot be read.
pub fn list(dirs: &[PathBuf]) -> Result<Value> {
    let mut rows = Vec::new();
    for set in &SETS {
        rows.push(row(set.name, &templates::read(&unpacked(set)?)?));
    }
    let here = Path::new("templates");
    let mut found = match here.is_dir() {
        true => within(here)?,
        false => Vec::new(),
    };
    for dir in dirs {
        let inside = match is_set(dir) {
            true => vec![dir.clone()],
            false => within(dir)?,
        };
        if inside.is_empty() {
            return Err(request(format!(
                "{} neither is a template directory nor holds one",
                dir.display()
            )));
        }
        found.extend(inside);
    }
    for dir in found {
        rows.push(row(&paths::text(&dir), &templates::read(&dir)?));
    }
    for (name, dir) in downloaded()? {
        if is_set(&dir) {
            rows.push(row(&name, &templates::read(&dir)?));
        }
    }
    Ok(json!({ "templates": rows }))
}

/// Names on the hub, and where they are cached.
#[cfg(feature = "hub")]
fn downloaded() -> Result<Vec<(String, PathBuf)>> {
    use wave_hub::hub::{HubSettings, cached};
    let names = |(name, dir)| (format!("hf:{name}"), dir);
    // Without a place for a cache nothing is cached.
    let all = HubSettings::from_env().map_or_else(|_| Vec::new(), |settings| cached(&settings));
    Ok(all.into_iter().map(names).collect())
}

#[cfg(not(feature = "hub"))]
fn downloaded() -> Result<Vec<(String, PathBuf)>> {
    Ok(Vec::new())
}

/// The template directories that a directory holds, sorted.
fn within(dir: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", dir.display());
    let entries = fs::read_dir(dir).with_context(cannot)?;
    let mut all: Vec<PathBuf> = entries
        .map(|entry| Ok(entry.with_context(cannot)?.path()))
        .collect::<Result<_>>()?;
    all.retain(|dir| is_set(dir));
    all.sort();
    Ok(all)
}

fn is_set(dir: &Path) -> bool {
    dir.is_dir() && wave_hub::directory_kind(dir).is_ok_and(|kind| kind == Kind::Templates)
}

/// A line of the list: sizes at which accuracies were recorded, and these.
fn row(name: &str, found: &TemplateDir) -> Value {
    let config = &found.config;
    let recorded = &config.accuracies;
    let range = |of: fn(&wave_hub::Accuracy) -> usize| {
        let all = recorded.iter().map(of);
        all.clone().min().zip(all.max()).map(|(a, b)| [a, b])
    };
    let top1: Vec<f64> = recorded.iter().map(|a| a.top1).collect();
    let least = top1.iter().copied().reduce(f64::min);
    let most = top1.iter().copied().reduce(f64::max);
    json!({
        "name": name,
        "data": config.provenance["data"],
        "image_size": config.image_size,
        "classes": config.classes,
        "depths": range(|a| a.depth),
        "widths": range(|a| a.width),
        "width_step": config.head_width,
        "top1": least.zip(most).map(|(a, b)| [a, b]),
    })
}
