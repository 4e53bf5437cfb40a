//! The plan of publishing a directory: the files to send.

use std::fs;
use std::path::Path;

use super::{is_artefact_file, is_pickle_name};
use crate::directory::{
    CARD_FILE, DELTA_FILE, EXPAND_FILE, MODEL_FILE, SCALERS_FILE, TEMPLATES_FILE, WEIGHT_FILES,
    check_digest,
};
use crate::files::{read_bytes, read_start};
use crate::scalers::read_shaped;
use crate::templates::EXPAND;
use crate::{HubError, Kind, directory_kind, read_weights, sha256_file, sha256_hex};

/// Names in an artefact's directory that are not part of it, and are not sent.
const LEFT_OUT: [&str; 4] = ["run", ".cache", ".git", ".gitattributes"];

/// The result of publishing a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The files sent, in name order; after a dry run, those that would have been.
    pub files: Vec<PlannedFile>,
    /// Names in the directory that are not sent: records of a run or a repository, weights of another kind of artefact.
    pub left_out: Vec<String>,
    /// The commit; `None` after a dry run.
    pub commit: Option<String>,
    /// The address of the pull request or the commit, if the hub says.
    pub url: Option<String>,
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
    /// Its content; `None` for weights, which hubs keep apart, and which are read from disk as they are sent.
    pub(super) content: Option<Vec<u8>>,
}

impl PlannedFile {
    fn of_bytes(path: &str, bytes: Vec<u8>) -> Self {
        Self {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            sha256: sha256_hex(&bytes),
            content: Some(bytes),
        }
    }

    /// The file `name` of `dir`, whose SHA-256 is computed unless it is known.
    fn on_disk(dir: &Path, name: &str, sha256: Option<String>) -> Result<Self, HubError> {
        let file = dir.join(name);
        if !(name.ends_with(".safetensors") || name.ends_with(".onnx")) {
            return Ok(Self::of_bytes(name, read_bytes(&file)?));
        }
        let about = fs::metadata(&file).map_err(HubError::io("read", &file))?;
        Ok(Self {
            path: name.to_owned(),
            bytes: about.len(),
            sha256: sha256.map_or_else(|| sha256_file(&file), Ok)?,
            content: None,
        })
    }
}

/// Checks that `dir` holds an artefact and nothing else, and lists what publishing it would send. `card` replaces the
/// directory's `README.md`. Templates are sent with the `expand.py` of this version, and no other code.
pub(super) fn plan(dir: &Path, card: &str) -> Result<Published, HubError> {
    let kind = directory_kind(dir)?;
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
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    for name in names {
        if name == EXPAND_FILE && kind == Kind::Templates {
            continue;
        }
        if LEFT_OUT.contains(&name.as_str()) || is_foreign(&name, kind) {
            left_out.push(name);
            continue;
        }
        let path = dir.join(&name);
        check_file(dir, &path, &name)?;
        let mut sha256 = None;
        if name.ends_with(".safetensors") {
            match name == SCALERS_FILE {
                true => read_shaped(&path)?,
                false => read_weights(&path)?,
            };
            sha256 = check_digest(dir, &name)?;
        }
        if name != CARD_FILE {
            files.push(PlannedFile::on_disk(dir, &name, sha256)?);
        }
    }
    if crate::card::split(card).is_none() {
        // Hubs index a card by its YAML head, and refuse one that is broken.
        let found = "has no YAML front matter";
        let remedy = "start it with a line `---`, lines such as `license: mit`, and another `---`";
        let path = dir.join(CARD_FILE);
        return Err(HubError::malformed(&path, found, remedy));
    }
    files.push(PlannedFile::of_bytes(CARD_FILE, card.into()));
    if kind == Kind::Templates {
        files.push(PlannedFile::of_bytes(EXPAND_FILE, EXPAND.to_vec()));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Published {
        files,
        left_out,
        commit: None,
        url: None,
    })
}

/// True for `expand.py` or weights of another kind of artefact, which older versions of wave left there.
fn is_foreign(name: &str, kind: Kind) -> bool {
    let own = match kind {
        Kind::Model | Kind::Transformers => MODEL_FILE,
        Kind::Templates => TEMPLATES_FILE,
        Kind::Delta => DELTA_FILE,
    };
    name != own && (name == EXPAND_FILE || WEIGHT_FILES.contains(&name))
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
        // The first bytes of a valid file are its header's length, which may look like another format.
        return Ok(false);
    }
    let start = read_start(path, 4)?;
    Ok(start.starts_with(b"PK\x03\x04") || matches!(start[..], [0x80, 2..=5, ..]))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
