//! Files that make opening a data set again faster. All of them may be deleted at any time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Environment variable with the cache directory; empty turns the cache off.
const VARIABLE: &str = "WAVE_CACHE";

/// A file or directory changed less than this long before it was read may have changed again unnoticed.
const SETTLED: Duration = Duration::from_secs(2);

/// Number of files written: threads may write one file at the same time.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// The directory of wave's cache: `$WAVE_CACHE`, `$XDG_CACHE_HOME/wave` or `~/.cache/wave`; none if `WAVE_CACHE` is
/// empty, or nothing is set.
pub fn directory() -> Option<PathBuf> {
    directory_of(std::env::var_os)
}

fn directory_of(var: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(dir) = var(VARIABLE) {
        return (!dir.is_empty()).then(|| dir.into());
    }
    let set = |name| var(name).filter(|value| !value.is_empty());
    let home = || Some(Path::new(&set("HOME").or_else(|| set("USERPROFILE"))?).join(".cache"));
    let caches = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    Some(caches.join("wave"))
}

/// The cache file in `dir` for `path`.
pub(crate) fn file(dir: &Path, path: &Path, kind: &str) -> PathBuf {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut hasher = DefaultHasher::new();
    resolved.hash(&mut hasher);
    dir.join(format!("{:016x}.{kind}", hasher.finish()))
}

/// The modification time and length of `path`, which differ once it has changed; `None` if it changed just now.
pub(crate) fn stamp(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let modified = metadata.modified().ok()?;
    if SystemTime::now().duration_since(modified).ok()? < SETTLED {
        return None;
    }
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let length = if metadata.is_dir() { 0 } else { metadata.len() };
    Some(format!("{since:?}-{length}"))
}

/// The content that [`remember`] wrote to a cache file; `None` if it is damaged.
pub(crate) fn recall<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a cache file. Failures are ignored: they only cost time.
pub(crate) fn remember<T: Serialize>(path: &Path, content: &T) {
    let _ = write_atomically(path, |out| Ok(serde_json::to_writer(out, content)?));
}

/// Writes a file atomically: to a temporary name, synced, then renamed.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let n = WRITES.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{n}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let outcome = (|| {
        let mut file = io::BufWriter::new(File::create(&temporary)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if outcome.is_err() {
        // A partial file is useless; it may not even exist.
        let _ = fs::remove_file(&temporary);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_told_by_the_environment() {
        let check = |set: &[(&str, &str)], expected: Option<&str>| {
            let var = |name: &'static str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(directory_of(var), expected.map(PathBuf::from), "{set:?}");
        };
        let (home, windows) = (("HOME", "/h"), ("USERPROFILE", "/u"));
        let xdg = ("XDG_CACHE_HOME", "/x");
        check(&[], None);
        check(&[home, windows], Some("/h/.cache/wave"));
        check(&[("HOME", ""), windows], Some("/u/.cache/wave"));
        check(&[home, xdg], Some("/x/wave"));
        check(&[home, xdg, (VARIABLE, "/w")], Some("/w"));
        check(&[home, xdg, (VARIABLE, "")], None);
    }

    #[test]
    fn threads_that_write_one_file_leave_it_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("index");
        let contents = [vec![1_u8; 1 << 20], vec![2; 10]];
        std::thread::scope(|scope| {
            for content in &contents {
                scope.spawn(|| {
                    for _ in 0..20 {
                        write_atomically(&path, |out| out.write_all(content)).unwrap();
                    }
                });
            }
        });
        assert!(contents.contains(&fs::read(&path).unwrap()));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
