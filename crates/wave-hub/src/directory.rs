//! The files of an artefact directory, its kinds, and the replacement of an artefact. `config.json` has the digests
//! of the weight files that were written with it; files written by other tools have none, and are not checked.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::atomic::{Staged, parent_of, sync_dir};
use crate::digest::sha256_file;
use crate::files::{about, is_absent, json_bytes, read_json};
use crate::tensors::stage_weights;
use crate::{HubError, Weights};

pub(crate) const CONFIG_FILE: &str = "config.json";
pub(crate) const CARD_FILE: &str = "README.md";
/// A picture for the card, which people may add.
pub const PICTURE_FILE: &str = "picture.png";
/// A program next to templates that expands models from them without wave.
pub(crate) const EXPAND_FILE: &str = "expand.py";
pub(crate) const MODEL_FILE: &str = "model.safetensors";
pub(crate) const TEMPLATES_FILE: &str = "templates.safetensors";
pub(crate) const DELTA_FILE: &str = "delta.safetensors";
/// The weights of each kind of artefact.
pub(crate) const WEIGHT_FILES: [&str; 3] = [MODEL_FILE, TEMPLATES_FILE, DELTA_FILE];
/// The key of `config.json` that names files and their digests.
const DIGESTS: &str = "digests";
pub(crate) const PREPROCESSOR_FILE: &str = "preprocessor_config.json";
/// The processors of images and of texts in one file, as transformers 5 writes it.
pub(crate) const PROCESSOR_FILE: &str = "processor_config.json";
/// The file of the tokenizer.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

pub(crate) const SCALERS_FILE: &str = "scalers.safetensors";
pub(crate) const ONNX_FILE: &str = "model.onnx";

/// Every file that an artefact directory may consist of.
pub const ARTEFACT_FILES: [&str; 11] = [
    CONFIG_FILE,
    CARD_FILE,
    EXPAND_FILE,
    MODEL_FILE,
    TEMPLATES_FILE,
    DELTA_FILE,
    SCALERS_FILE,
    ONNX_FILE,
    PREPROCESSOR_FILE,
    PROCESSOR_FILE,
    TOKENIZER_FILE,
];

/// Files that only people read: changing them does not change the artefact.
pub const UNREAD_FILES: [&str; 2] = [CARD_FILE, EXPAND_FILE];

/// The kind of an artefact directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A model that timm can load: `model.safetensors` and its `config.json`.
    Model,
    /// A model in transformers' native layout: the same files, with other keys in `config.json`.
    Transformers,
    /// Weight templates to expand models from: `templates.safetensors` and its `config.json`.
    Templates,
    /// The changes of an adaptation to templates: `delta.safetensors` and its `config.json`.
    Delta,
}

/// With its article.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Model => "a model directory",
            Kind::Transformers => "a model directory in transformers' layout",
            Kind::Templates => "a template directory",
            Kind::Delta => "a delta directory",
        })
    }
}

/// The directory of a model's path: that of `model.safetensors` if `config.json` is beside it, else the path itself.
pub fn model_directory(path: &Path) -> &Path {
    let is_weights = path.ends_with(MODEL_FILE) && path.is_file();
    match is_weights && path.with_file_name(CONFIG_FILE).is_file() {
        true => parent_of(path),
        false => path,
    }
}

/// The kind of the artefact in `dir`, by its `config.json`.
pub fn directory_kind(dir: &Path) -> Result<Kind, HubError> {
    read_config(dir).map(|(kind, _)| kind)
}

/// The kind of `dir` and its whole `config.json`.
pub(crate) fn read_config(dir: &Path) -> Result<(Kind, Value), HubError> {
    let remedy = "check the path, or run the stage that writes it";
    if !about(dir, "no such directory", remedy)?.is_dir() {
        let found = "is a file, expected a directory";
        let remedy = "name the directory that holds it";
        return Err(HubError::malformed(dir, found, remedy));
    }
    let path = dir.join(CONFIG_FILE);
    if !path.exists() {
        let weights = WEIGHT_FILES.iter().find(|name| dir.join(name).exists());
        let (found, remedy) = match weights {
            Some(name) => (
                format!("{CONFIG_FILE} is missing beside {name}"),
                "it is written last, so the stage or copy that made this directory did not \
                 finish; run it again",
            ),
            None => (
                format!("holds no artefact: {CONFIG_FILE} is missing"),
                "name a model or template directory; if a stage is writing this one, it has not \
                 finished",
            ),
        };
        return Err(HubError::missing(dir, found, remedy));
    }
    let config: Value = read_json(&path)?;
    let Some(kind) = kind_of(&config) else {
        let found = "describes neither a model (no `architecture` or `model_type`) nor templates (no \
                     `format_version`)";
        let remedy = "name a directory in timm's or transformers' layout, or a template directory";
        return Err(HubError::malformed(&path, found, remedy));
    };
    Ok((kind, config))
}

pub(crate) fn kind_of(config: &Value) -> Option<Kind> {
    let has = |key: &str| config.get(key).is_some();
    if has("templates_sha256") {
        Some(Kind::Delta)
    } else if has("format_version") || has("kronecker") {
        Some(Kind::Templates)
    } else if has("architecture") {
        Some(Kind::Model)
    } else {
        let is_named = config["model_type"].is_string();
        is_named.then_some(Kind::Transformers)
    }
}

/// The path of `name` in `dir`, which must exist according to its `config.json`.
pub(crate) fn promised_file(dir: &Path, name: &str, remedy: &str) -> Result<PathBuf, HubError> {
    let path = dir.join(name);
    if !path.exists() {
        let found = format!("{name} is missing beside {CONFIG_FILE}");
        return Err(HubError::missing(dir, found, remedy));
    }
    Ok(path)
}

/// Writes an artefact: weights by file name, the card, `more` files and `config`, to which the digests of the weights
/// are added. All of them are on disk under temporary names before the first gets its own.
pub(crate) fn write_artefact(
    dir: &Path,
    weights: &[(&'static str, Option<&Weights>)],
    card: &str,
    more: Vec<Staged>,
    config: &impl Serialize,
) -> Result<(), HubError> {
    let mut files = more;
    let mut digests = BTreeMap::new();
    for (name, weights) in weights {
        let Some(weights) = weights else { continue };
        let (file, digest) = stage_weights(&dir.join(name), weights)?;
        digests.insert(*name, digest);
        files.push(file);
    }
    files.push(Staged::from_bytes(&dir.join(CARD_FILE), card.as_bytes())?);
    let path = dir.join(CONFIG_FILE);
    let mut config = json!(config);
    config[DIGESTS] = json!(digests);
    files.push(Staged::from_bytes(&path, &json_bytes(&path, &config)?)?);
    commit_directory(dir, files)
}

/// Renames all staged files, `config.json` last. An old `config.json` is removed first, and the files of its artefact
/// that are not replaced before the new one, so that a directory with a `config.json` never holds files that do not
/// belong together. Old weights go once the new ones have their name, so that a kill leaves one or the other.
pub(crate) fn commit_directory(dir: &Path, files: Vec<Staged>) -> Result<(), HubError> {
    let is = |name: &'static str| move |file: &Staged| file.name() == Some(name);
    let remove = |name: &str| {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(cause) if !is_absent(&cause) => Err(HubError::io("replace", &path)(cause)),
            _ => Ok(()),
        }
    };
    remove(CONFIG_FILE)?;
    sync_dir(dir)?;
    // Files that only some artefacts have: left by an earlier one, they would contradict the new one.
    let mut stale = ARTEFACT_FILES.to_vec();
    stale.retain(|&name| name != CARD_FILE && !files.iter().any(is(name)));
    let (config, files): (Vec<Staged>, Vec<Staged>) = files.into_iter().partition(is(CONFIG_FILE));
    for file in files {
        file.commit()?;
    }
    sync_dir(dir)?;
    for name in stale {
        remove(name)?;
    }
    sync_dir(dir)?;
    config.into_iter().try_for_each(Staged::commit_synced)
}

/// Checks the weights in `dir` against the digest in its `config.json`, if it has one. Call it after all tensors were
/// found, since a wrong name has a clearer error there. [`read_scalers`](crate::read_scalers) checks scalers.
pub fn check_digests(dir: &Path) -> Result<(), HubError> {
    let mut names = WEIGHT_FILES.iter();
    names.try_for_each(|name| check_digest(dir, name).map(drop))
}

/// Checks the file `name` in `dir`, if it exists, against its digest in `config.json`, if any. Returns the digest.
pub fn check_digest(dir: &Path, name: &str) -> Result<Option<String>, HubError> {
    let (path, file) = (dir.join(CONFIG_FILE), dir.join(name));
    if !file.is_file() || !path.is_file() {
        return Ok(None);
    }
    let config: Value = read_json(&path)?;
    let digests = &config[DIGESTS];
    let expected = match (digests, digests.get(name)) {
        (Value::Null, _) | (Value::Object(_), None) => return Ok(None),
        (Value::Object(_), Some(Value::String(digest))) => digest,
        _ => {
            let found = format!("`{DIGESTS}` is {digests}, expected file names and their SHA-256");
            let remedy = "remove it, or copy the file again";
            return Err(HubError::malformed(&path, found, remedy));
        }
    };
    let found = sha256_file(&file)?;
    if found == *expected {
        return Ok(Some(found));
    }
    let found = format!(
        "has the SHA-256 {found}, expected {expected} from the {CONFIG_FILE} beside it: it is \
         damaged, or belongs to another"
    );
    let remedy =
        format!("copy both again; if the change was meant, remove `{DIGESTS}` from {CONFIG_FILE}");
    Err(HubError::malformed(&file, found, remedy))
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
