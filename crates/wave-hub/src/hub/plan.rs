//! The plan of publishing a directory: the files to send.

use std::fs;
use std::path::{Path, PathBuf};

use super::{is_artefact_file, is_pickle_name};
use crate::directory::{CARD_FILE, EXPAND_FILE, WEIGHT_FILES, check_digest};
use crate::files::{read_bytes, read_start};
use crate::templates::EXPAND;
use crate::{
    CardFront, HubError, Kind, check_digests, directory_kind, model_card, read_delta, read_model,
    read_templates, read_transformers, read_weights, sha256_file, sha256_hex,
};

/// Names in an artefact's directory that are not part of it, and are not sent.
const LEFT_OUT: [&str; 4] = ["run", ".cache", ".git", ".gitattributes"];

/// The files that publishing a directory would send, and those it would not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The files to send, in name order.
    pub files: Vec<PlannedFile>,
    /// Names in the directory that are not sent: the run's own records, a repository's.
    pub left_out: Vec<String>,
    /// The text of the card.
    pub card: String,
}

/// A file to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its name in the repository.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, as 64 lower-case hexadecimal digits.
    pub sha256: String,
    pub(super) content: Content,
}

/// The source of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Disk(PathBuf),
    Memory(Vec<u8>),
}

impl PlannedFile {
    fn of_bytes(path: &str, bytes: Vec<u8>) -> Self {
        Self {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            sha256: sha256_hex(&bytes),
            content: Content::Memory(bytes),
        }
    }

    fn on_disk(path: &str, file: &Path) -> Result<Self, HubError> {
        let about = fs::metadata(file).map_err(HubError::io("read", file))?;
        Ok(Self {
            path: path.to_owned(),
            bytes: about.len(),
            sha256: sha256_file(file)?,
            content: Content::Disk(file.to_owned()),
        })
    }

    pub(super) fn content(&self) -> Result<Vec<u8>, HubError> {
        match &self.content {
            Content::Disk(path) => fs::read(path).map_err(HubError::io("read", path)),
            Content::Memory(bytes) => Ok(bytes.clone()),
        }
    }
}

/// Checks that `dir` is a sound artefact and nothing else, and lists what publishing it would send. `card` replaces
/// the directory's `README.md`; with neither, a short one is made. Templates are sent with the `expand.py` of this
/// version, and no other code. Needs no network.
///
/// # Errors
/// Also if the card has no YAML head, or the directory holds what is not part of the artefact: pickles, other files,
/// links that lead out of it.
pub fn plan(dir: &Path, card: Option<&str>) -> Result<Plan, HubError> {
    let kind = check_readable(dir)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(HubError::io("read", dir))? {
        let entry = entry.map_err(HubError::io("read", dir))?;
        let name = entry.file_name().into_string().map_err(|name| {
            let path = dir.join(name);
            HubError::malformed(&path, "has a name that is not UTF-8", "rename or remove it")
        })?;
        names.push(name);
    }
    names.sort();
    let (left_out, names): (Vec<String>, Vec<String>) = names
        .into_iter()
        .partition(|name| LEFT_OUT.contains(&name.as_str()));
    let mut files = Vec::new();
    for name in names {
        let path = dir.join(&name);
        if name == EXPAND_FILE && kind == Kind::Templates {
            continue;
        }
        check_file(dir, &path, &name)?;
        if name.ends_with(".safetensors") && !WEIGHT_FILES.contains(&&*name) {
            read_weights(&path)?;
            check_digest(dir, &name)?;
        }
        if name != CARD_FILE {
            files.push(PlannedFile::on_disk(&name, &path)?);
        }
    }
    let own = dir.join(CARD_FILE);
    let bytes = match card {
        Some(card) => card.as_bytes().to_vec(),
        None if own.exists() => read_bytes(&own)?,
        None => short_card(dir, kind).into_bytes(),
    };
    let card = String::from_utf8_lossy(&bytes).into_owned();
    check_card(&own, &card)?;
    files.push(PlannedFile::of_bytes(CARD_FILE, bytes));
    if kind == Kind::Templates {
        files.push(PlannedFile::of_bytes(EXPAND_FILE, EXPAND.to_vec()));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Plan {
        files,
        left_out,
        card,
    })
}

/// Reads the whole artefact, as a later pull will.
fn check_readable(dir: &Path) -> Result<Kind, HubError> {
    let kind = directory_kind(dir)?;
    match kind {
        Kind::Model => read_model(dir).map(drop),
        Kind::Templates => read_templates(dir).map(drop),
        Kind::Delta => read_delta(dir).map(drop),
        Kind::Transformers => read_transformers(dir).map(drop),
    }?;
    check_digests(dir)?;
    Ok(kind)
}

fn check_file(dir: &Path, path: &Path, name: &str) -> Result<(), HubError> {
    let real = |path: &Path| fs::canonicalize(path).map_err(HubError::io("read", path));
    let (found, remedy) = if !real(path)?.starts_with(real(dir)?) {
        let found = "is a link that points outside the directory";
        (found, "replace it with a copy of the file")
    } else if is_pickle_name(name) || holds_pickle(path)? {
        let found = "is, or may hold, a Python pickle, which runs code when it is read";
        (found, "remove it; the weights are in the .safetensors file")
    } else if !is_artefact_file(name) || !path.is_file() {
        let found = "is not part of an artefact";
        (found, "move it out of the directory, or below run/")
    } else {
        return Ok(());
    };
    Err(HubError::malformed(path, found, remedy))
}

/// True if a file starts as pickles do, or the zip archives that hold them.
fn holds_pickle(path: &Path) -> Result<bool, HubError> {
    if path.extension() == Some("safetensors".as_ref()) || !path.is_file() {
        // Already read and valid, though its header length may look like another format.
        return Ok(false);
    }
    let start = read_start(path, 4)?;
    Ok(start.starts_with(b"PK\x03\x04") || matches!(start[..], [0x80, 2..=5, ..]))
}

/// Hubs index a card by its YAML head, and refuse one that is broken.
fn check_card(path: &Path, card: &str) -> Result<(), HubError> {
    if crate::card::split(card).is_some() {
        return Ok(());
    }
    let remedy = "start it with a line `---`, lines such as `license: mit`, and another `---`";
    Err(HubError::malformed(
        path,
        "has no YAML front matter",
        remedy,
    ))
}

/// The card of an artefact that has none.
fn short_card(dir: &Path, kind: Kind) -> String {
    let library = match kind {
        Kind::Model => "timm",
        Kind::Transformers => "transformers",
        Kind::Templates | Kind::Delta => "wave",
    };
    let front = CardFront {
        tags: vec!["image-classification".to_owned(), "wave".to_owned()],
        library_name: Some(library.to_owned()),
        pipeline_tag: Some("image-classification".to_owned()),
        ..CardFront::default()
    };
    let title = dir.file_name().map(|name| name.to_string_lossy());
    model_card(&front, title.as_deref().unwrap_or("Model"), "")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
