//! The lock of an output directory, `OUT/run/lock`, which admits one process at a time.

use crate::error::request;
use crate::paths;
use anyhow::{Context, Result, bail};
use std::fs::{self, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// A directory locked against other processes until this value is dropped. The system releases the lock
/// whenever the process ends.
pub struct Lock {
    file: fs::File,
    path: PathBuf,
}

impl Lock {
    /// Creates `out`, locks it, and removes the temporary files that killed processes left there. Every writer of an
    /// artefact opens its directory in this way.
    ///
    /// # Errors
    /// If `out` is not writable, or another process holds the lock.
    pub fn take(out: &Path) -> Result<Lock> {
        wave_hub::prepare_out(out)?;
        wave_hub::prepare_out(&out.join("run"))?;
        let path = path_in(out);
        let cannot = || format!("cannot lock {}", path.display());
        let mut file = fs::File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).with_context(cannot)?;
                writeln!(file, "{}", std::process::id()).with_context(cannot)?;
            }
            // On a file system without locks, there is none.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(e).with_context(cannot),
            Err(TryLockError::WouldBlock) => return Err(busy(out, &mut file)),
        }
        for dir in [out, &out.join("run")] {
            wave_hub::remove_temporaries(dir)?;
        }
        Ok(Lock { file, path })
    }

    /// Checks that the directory is still the locked one: after a removal or replacement, it may belong to another
    /// process.
    pub fn check(&self) -> Result<()> {
        let is_there =
            |own| fs::metadata(&self.path).is_ok_and(|there| identity(&own) == identity(&there));
        if !self.file.metadata().is_ok_and(is_there) {
            bail!(
                "{} was removed or replaced during this run; the run stops, because another may \
                 have started there",
                self.path.display()
            );
        }
        Ok(())
    }
}

/// Refuses to write into `dir` while a run works there or in a directory above.
pub fn check_idle(dir: &Path) -> Result<()> {
    for place in paths::resolve(dir).ancestors() {
        let lock = path_in(place);
        // Locked only as a test: nothing is written, and the lock is released at once.
        if lock.is_file()
            && let Ok(mut file) = fs::File::open(lock)
            && let Err(TryLockError::WouldBlock) = file.try_lock()
        {
            return Err(busy(place, &mut file));
        }
    }
    Ok(())
}

fn path_in(out: &Path) -> PathBuf {
    out.join("run/lock")
}

fn busy(out: &Path, lock: &mut fs::File) -> anyhow::Error {
    let mut text = String::new();
    // The other process may not have written its process id yet.
    let _ = lock.read_to_string(&mut text);
    let pid = text.trim().parse::<u32>().ok();
    let holder = pid.map_or("another process".into(), |pid| format!("process {pid}"));
    request(format!(
        "{} is being written by {holder}; wait until it ends, or choose another --out",
        out.display()
    ))
}

/// Identity of a file.
#[cfg(unix)]
fn identity(file: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino())
}

/// On other systems an open file cannot be removed.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata) {}
