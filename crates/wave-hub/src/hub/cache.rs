//! The cache's layout, as Python's `huggingface_hub` has it:
//!
//! ```text
//! models--OWNER--NAME/refs/REVISION           the commit that a branch or tag meant
//! models--OWNER--NAME/blobs/ETAG              a file's content
//! models--OWNER--NAME/snapshots/COMMIT/FILE   a link to its content
//! .locks/models--OWNER--NAME/wave.lock        held by the one wave that downloads into it
//! ```
//!
//! `datasets--OWNER--NAME` is the same for data. There, `refs/REVISION` is written when all files are in
//! place, for a commit too: `refs/COMMIT`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hf_hub::{RepoType, RepoTypeAny};

use super::name::{RepoName, is_commit};
use super::settings::HubSettings;
use crate::atomic::{parent_of, write_atomic};
use crate::directory::CONFIG_FILE;
use crate::{HubError, prepare_out};

/// The cached repositories with an artefact, `OWNER/NAME`, each with the directory of its newest `main`, sorted.
pub fn cached(settings: &HubSettings) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(&settings.cache).into_iter().flatten();
    let found = entries.flatten().filter_map(|entry| {
        let folder = entry.file_name().into_string().ok()?;
        let name = folder.strip_prefix("models--")?.replacen("--", "/", 1);
        let repo: RepoName = name.parse().ok()?;
        let cache = Cache::new(&settings.cache, RepoTypeAny::Model, &repo);
        let (_, dir) = cache.artefact("main")?;
        Some((name, dir))
    });
    let mut all: Vec<_> = found.collect();
    all.sort();
    all
}

/// The part of the cache that belongs to one repository.
pub(super) struct Cache<'a> {
    root: &'a Path,
    folder: String,
}

impl<'a> Cache<'a> {
    pub(super) fn new(root: &'a Path, kind: RepoTypeAny, repo: &RepoName) -> Self {
        let folder = format!("{}--{}--{}", kind.plural(), repo.owner, repo.name);
        Self { root, folder }
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.dir().join("snapshots").join(commit)
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.dir().join("blobs")
    }

    /// Notes that `revision` means `commit`.
    pub(super) fn remember(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        write_atomic(&self.reference(revision), commit.as_bytes())
    }

    /// The commit that `revision` meant when it was last noted, and its snapshot.
    pub(super) fn noted(&self, revision: &str) -> Option<(String, PathBuf)> {
        let commit = fs::read_to_string(self.reference(revision)).ok()?;
        let commit = commit.trim().to_owned();
        let dir = self.snapshot(&commit);
        (is_commit(&commit) && dir.is_dir()).then_some((commit, dir))
    }

    /// The snapshot of `revision`, if it holds an artefact: `config.json` is linked last.
    pub(super) fn artefact(&self, revision: &str) -> Option<(String, PathBuf)> {
        let (commit, dir) = match is_commit(revision) {
            true => (revision.to_owned(), self.snapshot(revision)),
            false => self.noted(revision)?,
        };
        let weights = |entry: fs::DirEntry| {
            let path = entry.path();
            path.extension() == Some("safetensors".as_ref()) && path.exists()
        };
        let mut files = fs::read_dir(&dir).ok()?.flatten();
        (dir.join(CONFIG_FILE).exists() && files.any(weights)).then_some((commit, dir))
    }

    /// Waits until no other wave downloads from this repository, and keeps others waiting until the result is
    /// dropped. `None` on file systems without locks.
    pub(super) fn lock(&self) -> Result<Option<File>, HubError> {
        let dir = self.root.join(".locks").join(&self.folder);
        prepare_out(&dir)?;
        let path = dir.join("wave.lock");
        let file = File::create(&path).map_err(HubError::io("write", &path))?;
        Ok(file.lock().is_ok().then_some(file))
    }

    /// Gives the content `etag` the name `file` in a snapshot.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        let dir = parent_of(&path);
        fs::create_dir_all(dir).map_err(HubError::io("create the directory", dir))?;
        // A dangling link would be in the way of a good one.
        let _ = fs::remove_file(&path);
        #[cfg(unix)]
        let linked = {
            let up = "../".repeat(2 + file.matches('/').count());
            std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &path)
        };
        #[cfg(not(unix))]
        let linked = fs::copy(self.blobs().join(etag), &path).map(drop);
        match linked {
            // Another program was faster.
            Err(cause) if !path.exists() => Err(HubError::io("link", &path)(cause)),
            _ => Ok(()),
        }
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.root.join(&self.folder)
    }

    fn reference(&self, revision: &str) -> PathBuf {
        self.dir().join("refs").join(revision)
    }
}
