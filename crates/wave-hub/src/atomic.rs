//! Files that are complete or absent: staged under a temporary name in their own directory, so that the rename never
//! crosses a file system; synced, so that it never publishes unwritten blocks; renamed; and the directory is synced, so
//! that the new name survives a power cut.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "hub")]
use tempfile::TempDir;
use tempfile::{Builder, NamedTempFile};

use crate::HubError;

/// The prefix and suffix of temporary files.
const PREFIX: &str = ".wave-";
const SUFFIX: &str = ".tmp";

/// Writes `bytes` to `path`, whole or not at all, creating the parent directories.
/// An existing file is replaced; until then, and after an error, readers see the old content.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    Staged::from_bytes(path, bytes)?.commit_synced()
}

/// Writes `bytes` to a file that a user named. A link is followed and stays: its target is written, as
/// [`write_atomic`] does. A pipe or a device is written into, never replaced.
pub fn write_named(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let failed = || HubError::io("write", path);
    let special = |about: fs::Metadata| !about.is_file() && !about.is_dir();
    let mut out: Box<dyn Write> = match stream(path) {
        // A file opened again has its own offset, and would overwrite what stdout already printed.
        Some(1) => Box::new(io::stdout()),
        Some(_) => Box::new(io::stderr()),
        // Through `path`: the link of an open pipe in /proc leads to no name.
        _ if fs::metadata(path).is_ok_and(special) => {
            let open = fs::OpenOptions::new().write(true).open(path);
            Box::new(open.map_err(failed())?)
        }
        _ => return write_atomic(&followed(path).map_err(failed())?, bytes),
    };
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(failed())
}

/// True if the path names the standard output or error of this process.
pub fn is_stream(path: &Path) -> bool {
    stream(path).is_some()
}

/// 1 for a name of the standard output, 2 for one of the standard error.
fn stream(path: &Path) -> Option<u8> {
    match path.to_str()? {
        "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" if cfg!(unix) => Some(1),
        "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" if cfg!(unix) => Some(2),
        _ => None,
    }
}

/// The end of a chain of links, which need not exist.
fn followed(path: &Path) -> io::Result<PathBuf> {
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = parent_of(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("a cycle of symbolic links"))
}

/// Creates the directory `dir`, with its parents, and checks that files can be written there.
pub fn prepare_out(dir: &Path) -> Result<(), HubError> {
    create_dir(dir)?;
    let (probe, _known) =
        temporary_file(dir).map_err(HubError::io("write to the directory", dir))?;
    match probe.close() {
        // A process that works there may have removed it as a leftover of a dead process.
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(HubError::io("remove a file from the directory", dir)(cause))
        }
        _ => Ok(()),
    }
}

/// Removes the temporary files and directories that killed processes left in `dir`, if it exists. Only for the sole
/// writer of `dir`: those of a running process look the same.
pub fn remove_temporaries(dir: &Path) -> Result<(), HubError> {
    let cannot = || HubError::io("clean up the directory", dir);
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(dir).map_err(cannot())? {
        let entry = entry.map_err(cannot())?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            remove(&entry.path()).map_err(cannot())?;
        }
    }
    Ok(())
}

/// Removes a file, or a directory with its content; of a link, only the link.
fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Temporary files that are not yet renamed, and temporary directories.
static TEMPORARY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes this process's temporary files as it ends early. Creating new ones blocks while the result lives.
pub fn remove_own_temporaries() -> impl Drop {
    let files = temporary_files();
    for path in &*files {
        let _ = remove(path); // whatever goes wrong, the process ends
    }
    files
}

fn temporary_files() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a file or directory that [`remove_own_temporaries`] knows until this is dropped.
pub(crate) struct Known(PathBuf);

impl Drop for Known {
    fn drop(&mut self) {
        temporary_files().remove(&self.0);
    }
}

/// A file or directory with a unique name.
fn temporary<T: AsRef<Path>>(
    make: impl FnOnce(&mut Builder<'_, '_>) -> io::Result<T>,
) -> io::Result<(T, Known)> {
    let mut all = temporary_files();
    let made = make(Builder::new().prefix(PREFIX).suffix(SUFFIX))?;
    let path = made.as_ref().to_owned();
    all.insert(path.clone());
    Ok((made, Known(path)))
}

fn temporary_file(dir: &Path) -> io::Result<(NamedTempFile, Known)> {
    temporary(|builder| {
        // Temporary files are private by default; these become ordinary files, so the umask decides.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(dir)
    })
}

/// A directory in `dir` that is removed with its content by [`remove_own_temporaries`] or when it is dropped.
#[cfg(feature = "hub")]
pub(crate) fn temporary_dir(dir: &Path) -> io::Result<(TempDir, Known)> {
    temporary(|builder| builder.tempdir_in(dir))
}

/// A complete, synced file under a temporary name. Dropping it removes it.
pub(crate) struct Staged {
    file: NamedTempFile,
    target: PathBuf,
    _known: Known,
}

impl Staged {
    /// Writes the future content of `path` under a temporary name next to it, and creates the directory if needed.
    pub(crate) fn new(
        path: &Path,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), HubError>,
    ) -> Result<Self, HubError> {
        create_dir(parent_of(path))?;
        Self::beside(path, fill)
    }

    /// [`Staged::new`] in an existing directory, which is not created again if it was removed or renamed meanwhile.
    pub(crate) fn beside(
        path: &Path,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), HubError>,
    ) -> Result<Self, HubError> {
        let failed = || HubError::io("write", path);
        if path.is_dir() {
            return Err(failed()(io::ErrorKind::IsADirectory.into()));
        }
        let (file, known) = temporary_file(parent_of(path)).map_err(failed())?;
        let mut buffer = BufWriter::with_capacity(1 << 20, file.as_file());
        fill(&mut buffer)?;
        buffer.flush().map_err(failed())?;
        drop(buffer);
        let synced = file.as_file().sync_all();
        synced.map_err(HubError::io("sync", path))?;
        Ok(Self {
            file,
            target: path.to_owned(),
            _known: known,
        })
    }

    /// [`Staged::new`] for content in memory.
    pub(crate) fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, HubError> {
        Self::new(path, |file| {
            file.write_all(bytes).map_err(HubError::io("write", path))
        })
    }

    /// Renames the file to its final name, and syncs the directory.
    pub(crate) fn commit_synced(self) -> Result<(), HubError> {
        let dir = parent_of(&self.target).to_owned();
        self.commit()?;
        sync_dir(&dir)
    }

    /// The name that it will have in its directory.
    pub(crate) fn name(&self) -> Option<&str> {
        self.target.file_name()?.to_str()
    }

    /// Renames the file to its final name. The directory still has to be synced.
    pub(crate) fn commit(self) -> Result<(), HubError> {
        match self.file.persist(&self.target) {
            Ok(_) => Ok(()),
            Err(refused) => Err(HubError::io("write", &self.target)(refused.error)),
        }
    }
}

/// Makes the names in `dir` survive a power cut, if the file system can.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), HubError> {
    // Windows cannot open a directory as a file; its renames are journalled.
    if !cfg!(unix) {
        return Ok(());
    }
    // Some network file systems do not know how to sync a directory.
    let unknown = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
    match File::open(dir).and_then(|handle| handle.sync_all()) {
        Err(cause) if !unknown.contains(&cause.kind()) => {
            Err(HubError::io("sync the directory", dir)(cause))
        }
        _ => Ok(()),
    }
}

/// Creates `dir` and its parents, and makes each new name survive a power cut.
fn create_dir(dir: &Path) -> Result<(), HubError> {
    let is_new = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let created: Vec<&Path> = dir.ancestors().take_while(is_new).collect();
    fs::create_dir_all(dir).map_err(HubError::io("create the directory", dir))?;
    for new in created {
        sync_dir(parent_of(new))?;
    }
    Ok(())
}

/// The directory that holds `path`; `.` for a bare file name.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
#[path = "atomic_tests.rs"]
mod tests;
