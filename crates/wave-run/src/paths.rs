//! Paths: as text, resolved, and new ones for output.

use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// A path as text for messages and JSON, with U+FFFD in place of invalid UTF-8.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// `path` with `suffix` appended to its name. Dots in a name do not start an extension: `my.v1` and `my.v2` with the
/// same suffix stay different.
pub fn appended(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
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

/// Creates a new directory in `parent`, `NAME-DATE-TIME`, with a number appended if needed, and returns
/// the number. `seconds` count from 1970.
///
/// # Errors
/// If `parent` is not writable.
pub fn create_unused(parent: &Path, name: &str, seconds: u64) -> Result<u64> {
    for number in 1.. {
        let path = numbered(parent, name, seconds, number);
        let cannot = || format!("cannot make the directory {}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(parent)).with_context(cannot)?;
        match fs::create_dir(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| number).with_context(cannot),
        }
    }
    anyhow::bail!("no free name is left in {}", parent.display())
}

/// The path with that number, counted from 1.
pub fn numbered(parent: &Path, name: &str, seconds: u64, number: u64) -> PathBuf {
    let behind = match number {
        1 => String::new(),
        n => format!("-{n}"),
    };
    parent.join(format!("{name}-{}{behind}", date_and_time(seconds)))
}

/// Date and time, such as 20261122-0731, in UTC.
fn date_and_time(seconds: u64) -> String {
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
mod tests {
    use super::*;

    // python3 -c "import datetime as d; print(d.datetime.fromtimestamp(S, d.timezone.utc))"
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "19700101-0000"),
            (951_782_399, "20000228-2359"),
            (951_782_400, "20000229-0000"),
            (951_868_800, "20000301-0000"),
            (1_735_689_599, "20241231-2359"),
            (1_795_332_660, "20261122-0731"),
            (4_107_542_400, "21000301-0000"),
        ] {
            assert_eq!(date_and_time(seconds), expected);
        }
    }

    #[test]
    fn a_suffix_keeps_all_of_the_name() {
        for (name, expected) in [("a/my.v1", "a/my.v1.start"), ("b", "b.start")] {
            assert_eq!(appended(Path::new(name), ".start"), Path::new(expected));
        }
    }

    #[test]
    fn no_two_directories_have_one_name() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("runs");
        for number in 1..4 {
            assert_eq!(create_unused(&parent, "a", 0).unwrap(), number);
            assert!(numbered(&parent, "a", 0, number).is_dir());
        }
        assert!(parent.join("a-19700101-0000-3").is_dir());
    }

    #[cfg(unix)]
    #[test]
    fn every_spelling_leads_to_one_place() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().canonicalize().unwrap().join("real");
        fs::create_dir_all(real.join("inside")).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for (path, expected) in [
            (link.clone(), real.clone()),
            (link.join("./inside/../new/x/.."), real.join("new")),
            (link.join("inside/../../link/new"), real.join("new")),
        ] {
            assert_eq!(resolve(&path), expected);
        }
        assert_eq!(
            resolve(Path::new("/nowhere/at/../all")),
            Path::new("/nowhere/all")
        );
    }
}
