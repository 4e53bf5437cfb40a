//! SHA-256, for provenance and for checking copies.
//!
//! `config.json` names the digests of the weight files that were written with it, under `digests`. Files that
//! other tools wrote have none, and are not compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::HubError;
use crate::atomic::Staged;
use crate::directory::{CONFIG_FILE, DELTA_FILE, MODEL_FILE, TEMPLATES_FILE};
use crate::files::{check_is_file, read_json};

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

/// The SHA-256 of a file's content, as 64 lower-case hexadecimal digits. Reads the file in
/// pieces, so its size does not matter.
///
/// # Errors
/// [`HubError::Missing`] or [`HubError::Malformed`] when there is no such file,
/// [`HubError::Io`] when it cannot be read.
pub fn sha256_file(path: &Path) -> Result<String, HubError> {
    check_is_file(path)?;
    let mut file = File::open(path).map_err(HubError::io("read", path))?;
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(n) => hasher.update(&piece[..n]),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(HubError::io("read", path)(cause)),
        }
    }
}

/// The SHA-256 of `bytes`, as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // python3 -c "import hashlib; print(hashlib.sha256(b'wave').hexdigest())"
    const WAVE: &str = "4b125ec99a74470517f9f51ac1a70eafa3dbd1ddd4bae409fe59a98ed720a3a4";
    // python3 -c "import hashlib; print(hashlib.sha256(bytes(3_000_000)).hexdigest())"
    const ZEROS: &str = "35bce4eae54ec8e6cc2868baa8d157914d6ae2858811b4cc0c078c94460fa26f";

    #[test]
    fn digests_equal_pythons() {
        assert_eq!(sha256_hex(b"wave"), WAVE);
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("zeros");
        std::fs::write(&path, vec![0; 3_000_000]).unwrap();
        assert_eq!(sha256_file(&path).unwrap(), ZEROS);
    }

    #[test]
    fn a_missing_file_is_a_wrong_request() {
        let error = sha256_file(Path::new("no/such/file")).unwrap_err();
        assert!(error.is_request());
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }
}
