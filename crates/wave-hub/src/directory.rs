//! The files of an artefact directory, its kinds, and how one is replaced.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::HubError;
use crate::atomic::{Staged, sync_dir};
use crate::files::{is_absent, read_json};

pub(crate) const CONFIG_FILE: &str = "config.json";
/// The card of an artefact.
pub(crate) const CARD_FILE: &str = "README.md";
/// A picture for the card, which people may add.
pub const PICTURE_FILE: &str = "picture.png";
/// A program beside templates that makes models of them without wave.
pub(crate) const EXPAND_FILE: &str = "expand.py";
pub(crate) const MODEL_FILE: &str = "model.safetensors";
pub(crate) const TEMPLATES_FILE: &str = "templates.safetensors";
pub(crate) const DELTA_FILE: &str = "delta.safetensors";
pub(crate) const PREPROCESSOR_FILE: &str = "preprocessor_config.json";
/// The same and that of texts in one, as transformers 5 writes it.
pub(crate) const PROCESSOR_FILE: &str = "processor_config.json";
/// What makes tokens of text.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// The scalers that an expanded model was composed from.
pub const SCALERS_FILE: &str = "scalers.safetensors";
/// A model as an ONNX graph, beside its directory's other files.
pub(crate) const ONNX_FILE: &str = "model.onnx";

/// Files beside a model's weights in one layout or another. Left by an earlier model, they would
/// contradict the new one.
const COMPANIONS: [&str; 5] = [
    SCALERS_FILE,
    ONNX_FILE,
    PREPROCESSOR_FILE,
    PROCESSOR_FILE,
    TOKENIZER_FILE,
];

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

/// Files that only people read: an artefact is the same with others.
pub const UNREAD_FILES: [&str; 2] = [CARD_FILE, EXPAND_FILE];

/// The kind of an artefact directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A model that timm can load: `model.safetensors` and its `config.json`.
    Model,
    /// A model in transformers' native layout: the same files, and other words in `config.json`.
    Transformers,
    /// Weight templates to expand models from: `templates.safetensors` and its `config.json`.
    Templates,
    /// What an adaptation changes in templates: `delta.safetensors` and its `config.json`.
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

/// Tells what kind of artefact `dir` holds, by its `config.json`.
///
/// # Errors
/// [`HubError::Missing`] or [`HubError::Malformed`] when `dir` is no directory, is incomplete,
/// or is of no kind.
pub fn directory_kind(dir: &Path) -> Result<Kind, HubError> {
    read_config(dir).map(|(kind, _)| kind)
}

/// The kind of `dir` and its whole `config.json`.
pub(crate) fn read_config(dir: &Path) -> Result<(Kind, Value), HubError> {
    check_is_dir(dir)?;
    let path = dir.join(CONFIG_FILE);
    if !path.exists() {
        let weights = [MODEL_FILE, TEMPLATES_FILE, DELTA_FILE]
            .into_iter()
            .find(|name| dir.join(name).exists());
        let (found, remedy) = match weights {
            Some(name) => (
                format!("{CONFIG_FILE} is missing beside {name}"),
                "it is written last, so the stage or copy that made this directory did not \
                 finish; run it again",
            ),
            None => (
                format!("holds no artefact: {CONFIG_FILE} is missing"),
                "name a model or template directory; if a stage is to write this one, it has \
                 not finished",
            ),
        };
        return Err(HubError::missing(dir, found, remedy));
    }
    let config: Value = read_json(&path)?;
    if config.get("templates_sha256").is_some() {
        Ok((Kind::Delta, config))
    } else if config.get("format_version").is_some() || config.get("kronecker").is_some() {
        Ok((Kind::Templates, config))
    } else if config.get("architecture").is_some() {
        Ok((Kind::Model, config))
    } else if config.get("model_type").is_some_and(Value::is_string) {
        Ok((Kind::Transformers, config))
    } else {
        Err(HubError::malformed(
            &path,
            "describes neither a model (no `architecture` or `model_type`) nor templates (no \
             `format_version`)",
            "name a directory in timm's or transformers' layout, or a template directory",
        ))
    }
}

/// The path of `name` in `dir`, which its `config.json` promises to be there.
pub(crate) fn promised_file(dir: &Path, name: &str, remedy: &str) -> Result<PathBuf, HubError> {
    let path = dir.join(name);
    if path.exists() {
        Ok(path)
    } else {
        let found = format!("{name} is missing beside {CONFIG_FILE}");
        Err(HubError::missing(dir, found, remedy))
    }
}

/// Names every staged file, `config.json` last. An old `config.json` goes first, and with it what
/// stood beside its model and is not replaced, so that at no moment a directory with one holds
/// files that do not belong together.
pub(crate) fn commit_directory(
    dir: &Path,
    files: Vec<Staged>,
    config: Staged,
) -> Result<(), HubError> {
    let path = dir.join(CONFIG_FILE);
    match fs::remove_file(&path) {
        Err(cause) if !is_absent(&cause) => return Err(HubError::io("replace", &path)(cause)),
        _ => sync_dir(dir)?,
    }
    let replaced = |name: &&str| files.iter().any(|file| file.is_for(&dir.join(name)));
    for name in COMPANIONS.iter().filter(|name| !replaced(name)) {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(cause) if !is_absent(&cause) => return Err(HubError::io("remove", &path)(cause)),
            _ => {}
        }
    }
    for file in files {
        file.commit()?;
    }
    sync_dir(dir)?;
    config.commit()?;
    sync_dir(dir)
}

fn check_is_dir(dir: &Path) -> Result<(), HubError> {
    match fs::metadata(dir) {
        Ok(about) if about.is_dir() => Ok(()),
        Ok(_) => Err(HubError::malformed(
            dir,
            "is a file, expected a directory",
            "name the directory that holds it",
        )),
        Err(cause) if is_absent(&cause) => Err(HubError::missing(
            dir,
            "no such directory",
            "check the path, or run the stage that writes it",
        )),
        Err(cause) => Err(HubError::io("read", dir)(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_request;

    #[test]
    fn the_kind_of_a_directory_is_told_by_its_config() {
        let root = tempfile::tempdir().unwrap();
        let config = root.path().join(CONFIG_FILE);
        for (text, kind) in [
            (r#"{"architecture": "x", "num_classes": 1}"#, Kind::Model),
            (r#"{"format_version": 7}"#, Kind::Templates),
            (
                r#"{"format_version": 7, "templates_sha256": 3}"#,
                Kind::Delta,
            ),
            (r#"{"model_type": "vit"}"#, Kind::Transformers),
            // timm's directories may say both, and are timm's.
            (r#"{"model_type": "vit", "architecture": "x"}"#, Kind::Model),
        ] {
            fs::write(&config, text).unwrap();
            assert_eq!(directory_kind(root.path()).unwrap(), kind);
        }
        for text in ["{}", "[1]", "3", r#"{"model_type": 3}"#] {
            fs::write(&config, text).unwrap();
            check_request(directory_kind(root.path()).unwrap_err(), &["neither"]);
        }
    }

    #[test]
    fn a_directory_that_is_none_says_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        check_request(
            directory_kind(&dir.join("nowhere")).unwrap_err(),
            &["nowhere", "no such directory"],
        );
        check_request(
            directory_kind(dir).unwrap_err(),
            &["config.json is missing", "has not finished"],
        );
        let weights = dir.join(MODEL_FILE);
        fs::write(&weights, "").unwrap();
        check_request(
            directory_kind(dir).unwrap_err(),
            &[
                "config.json is missing beside model.safetensors",
                "run it again",
            ],
        );
        check_request(
            directory_kind(&weights).unwrap_err(),
            &["is a file", "directory that holds it"],
        );
    }
}
