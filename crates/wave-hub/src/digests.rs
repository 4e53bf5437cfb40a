//! The digests in `config.json`: of the weight files that were written with it, under `digests`. Files that
//! other tools wrote have none, and are not compared.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::atomic::Staged;
use crate::digest::sha256_file;
use crate::directory::{CONFIG_FILE, DELTA_FILE, MODEL_FILE, TEMPLATES_FILE, commit_directory};
use crate::files::{json_bytes, read_json};

/// The key of `config.json` that names files and their digests.
pub(crate) const DIGESTS: &str = "digests";

/// Checks the weights of the artefact in `dir` against the digest in its `config.json`, if it has one. For a
/// reader that has found all tensors: a name that is wrong is told better by that. Scalers have a reader of
/// their own ([`read_scalers`](crate::read_scalers)).
///
/// # Errors
/// [`HubError::Malformed`] when the file has another content than was written; [`HubError::Missing`] and
/// [`HubError::Io`] when something cannot be read.
pub fn check_digests(dir: &Path) -> Result<(), HubError> {
    [MODEL_FILE, TEMPLATES_FILE, DELTA_FILE]
        .iter()
        .try_for_each(|name| check_digest(dir, name))
}

/// Checks the file `name` in `dir`, if it is there, against the digest in the `config.json` beside it.
pub(crate) fn check_digest(dir: &Path, name: &str) -> Result<(), HubError> {
    let (path, file) = (dir.join(CONFIG_FILE), dir.join(name));
    if !file.is_file() || !path.is_file() {
        return Ok(());
    }
    let config: Value = read_json(&path)?;
    let digests = &config[DIGESTS];
    let wrong = || {
        let found = format!("`{DIGESTS}` is {digests}, expected names of files and their SHA-256");
        HubError::malformed(&path, found, "remove it, or copy the file again")
    };
    if digests.is_null() {
        return Ok(());
    }
    let expected = match digests.as_object().ok_or_else(wrong)?.get(name) {
        None => return Ok(()),
        Some(digest) => digest.as_str().ok_or_else(wrong)?,
    };
    let found = sha256_file(&file)?;
    if found == expected {
        return Ok(());
    }
    Err(HubError::malformed(
        &file,
        format!(
            "has the SHA-256 {found}, expected {expected} by the {CONFIG_FILE} beside it: it is damaged, or \
             belongs to another"
        ),
        format!("copy both again; if the change was meant, remove `{DIGESTS}` from {CONFIG_FILE}"),
    ))
}

/// The digests of the weight files among `files`.
pub(crate) fn of_weights(files: &[Staged]) -> Result<BTreeMap<String, String>, HubError> {
    let named = files.iter().filter_map(|file| {
        let name = file.name()?;
        name.ends_with(".safetensors").then_some((name, file))
    });
    named
        .map(|(name, file)| Ok((name.to_owned(), sha256_file(file.content())?)))
        .collect()
}

/// [`commit_directory`] with this `config.json`, to which the digests of the weights are added.
pub(crate) fn commit_artefact<C: Serialize>(
    dir: &Path,
    files: Vec<Staged>,
    config: &C,
) -> Result<(), HubError> {
    #[derive(Serialize)]
    struct WithDigests<'a, C> {
        #[serde(flatten)]
        config: &'a C,
        digests: BTreeMap<String, String>,
    }
    let digests = of_weights(&files)?;
    let path = dir.join(CONFIG_FILE);
    let json = json_bytes(&path, &WithDigests { config, digests })?;
    commit_directory(dir, files, Staged::from_bytes(&path, &json)?)
}
