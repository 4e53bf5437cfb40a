//! Paths: as text, resolved, and new ones for output.

use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use wave_models::refuse;

/// A path as text for messages and JSON, with U+FFFD in place of invalid UTF-8.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A path as a word of a command that a shell reads, in quotes where it needs them.
pub fn word(path: &Path) -> String {
    let text = text(path);
    let plain = |c: char| c.is_alphanumeric() || "/._-:+@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// `path` with `suffix` appended to its name. Dots in a name do not start an extension: `my.v1` and `my.v2` with the
/// same suffix stay different.
pub fn appended(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Checks that a file that a user named for output is new or has this extension, so that no photograph or artefact is
/// replaced. Pipes and devices are written into.
pub fn check_replaceable(path: &Path, extension: &str) -> Result<()> {
    let right = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case(extension));
    // Redirected to a file, these are written into too.
    let is_stream = wave_hub::is_stream(path);
    match path.is_file() && !right && !is_stream {
        true => refuse!(
            "{} exists and is no .{extension} file; remove it, or give another name",
            path.display()
        ),
        false => Ok(()),
    }
}

/// Removes a file, if there is one.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// A path without links, `.` and `..`, so that each place has one spelling. The part that does not
/// exist yet stays as written.
pub fn resolve(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
        if let Ok(real) = resolved.canonicalize() {
            resolved = real;
        }
    }
    resolved
}

/// Creates a new directory at `path`, with a number appended to its name if needed, and returns the number.
pub fn create_unused(path: &Path) -> Result<u64> {
    for number in 1.. {
        let path = numbered(path, number);
        let cannot = || format!("cannot make the directory {}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(&path)).with_context(cannot)?;
        match fs::create_dir(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| number).with_context(cannot),
        }
    }
    anyhow::bail!("no free name is left for {}", path.display())
}

/// The path with that number, counted from 1.
pub fn numbered(path: &Path, number: u64) -> PathBuf {
    match number {
        1 => path.to_path_buf(),
        n => appended(path, &format!("-{n}")),
    }
}

/// Date and time, such as 20261122-0731, in UTC. `seconds` count from 1970.
pub(crate) fn date_and_time(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    // Years begin in March, so that the leap day comes last. They count from the year 0 in eras of 400
    // years, which are equally long.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153; // from March
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    let (hour, minute) = (minutes / 60, minutes % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}")
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
