//! Plain files and JSON, and why one cannot be read.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::HubError;
use crate::atomic::write_atomic;

/// Reads a JSON file that describes a `T`.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, HubError> {
    let bytes = read_bytes(path)?;
    if bytes.is_empty() {
        let found = "is empty (0 bytes), expected JSON";
        return Err(HubError::malformed(path, found, "write or copy it again"));
    }
    serde_json::from_slice(&bytes).map_err(|cause| {
        let fault = match cause.is_data() {
            true => "has unexpected JSON",
            false => "is not valid JSON",
        };
        let remedy = "correct the file or write it again";
        HubError::malformed(path, format!("{fault}: {cause}"), remedy)
    })
}

/// Reads a text file in UTF-8.
pub fn read_text(path: &Path) -> Result<String, HubError> {
    String::from_utf8(read_bytes(path)?)
        .map_err(|_| HubError::malformed(path, "is not UTF-8 text", "write or copy it again"))
}

/// Writes `value`, whose maps have strings as keys, as indented JSON with a final newline, whole or not at all.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), HubError> {
    write_atomic(path, json_bytes(path, value)?.as_slice())
}

pub(crate) fn json_bytes<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, HubError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|cause| {
        let found = format!("the value has no JSON form: {cause}");
        HubError::unwritable(path, found, "use string keys and finite numbers")
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The whole content of a regular file: a pipe or a device may never end.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, HubError> {
    check_is_file(path)?;
    fs::read(path).map_err(HubError::io("read", path))
}

/// The first `most` bytes of a regular file, or all if it has fewer.
pub(crate) fn read_start(path: &Path, most: u64) -> Result<Vec<u8>, HubError> {
    check_is_file(path)?;
    let mut start = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut start))
        .map_err(HubError::io("read", path))?;
    Ok(start)
}

/// Refuses a path that cannot be read to its end: missing, a directory, a pipe or a device.
pub(crate) fn check_is_file(path: &Path) -> Result<(), HubError> {
    let about = about(path, "no such file", "check the path")?;
    let (found, remedy) = if about.is_file() {
        return Ok(());
    } else if about.is_dir() {
        ("is a directory, expected a file", "name the file inside it")
    } else {
        let found = "is a pipe or a device, expected a regular file";
        (found, "copy its content to a file and name that")
    };
    Err(HubError::malformed(path, found, remedy))
}

/// The metadata of a path, with `absent` and the remedy as the error where there is nothing.
pub(crate) fn about(path: &Path, absent: &str, remedy: &str) -> Result<fs::Metadata, HubError> {
    fs::metadata(path).map_err(|cause| match is_absent(&cause) {
        true => HubError::missing(path, absent, remedy),
        false => HubError::io("read", path)(cause),
    })
}

pub(crate) fn is_absent(cause: &io::Error) -> bool {
    // The second: a path below a regular file.
    matches!(
        cause.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
