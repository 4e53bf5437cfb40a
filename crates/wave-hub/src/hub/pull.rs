//! From the hub to the cache, and from the cache to a directory. hf-hub downloads into its own cache, next to the blobs
//! of the shared one. A file moves to the shared cache only once its content matches the hub's checksum, so that no
//! program ever finds an error page or a wrong response there, which hf-hub 1.0.0 would store.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hf_hub::{HFRepositorySync, RepoType, RepoTypeAny};
use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::cache::Cache;
use super::client::Client;
use super::name::{HubName, is_commit};
use super::{Events, FileProgress, HubSettings, OnProgress, is_artefact_file, is_pickle_name};
use crate::atomic::{Staged, sync_dir, temporary_dir};
use crate::digest::hex;
use crate::directory::{CONFIG_FILE, EXPAND_FILE, MODEL_FILE, TEMPLATES_FILE, commit_directory};
use crate::templates::EXPAND;
use crate::transformers::INDEX_FILE;
use crate::{Fault, HubError, prepare_out, remove_temporaries, sha256_file};

/// Files downloaded at a time.
const AT_A_TIME: usize = 8;
/// Maximum bytes of a file name, on common file systems.
const MAX_NAME: usize = 255;
/// Maximum size of a file that a hub may announce, in bytes; the largest on Hugging Face have a tenth of it.
const MAX_SIZE: u64 = 5_000_000_000_000;

/// A repository's files in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The directory, to be read only: its files are links into the cache.
    pub dir: PathBuf,
    /// The commit that the revision meant.
    pub commit: String,
    /// Files of the repository that were not wanted, and not downloaded.
    pub skipped: Vec<String>,
}

/// Chooses the wanted files of a repository, or says why they cannot be used; the path of the fault is not read.
pub type Choose<'a> = &'a dyn Fn(&[String]) -> Result<Vec<String>, Fault>;

/// Downloads the artefact files of the model repository `name` that the cache does not hold yet, and returns their
/// location. A revision that is a commit, once complete in the cache, needs no network; offline, nothing does, and a
/// branch means its last known commit.
///
/// # Errors
/// If the repository holds no artefact or cannot be read, if a checksum is wrong, or the cache cannot be written. An
/// incomplete download leaves no file behind.
pub fn pull(
    settings: &HubSettings,
    name: &HubName,
    progress: &OnProgress,
) -> Result<Pulled, HubError> {
    let choose = |files: &[String]| {
        let is_artefact = |file: &&String| is_artefact_file(file);
        let (wanted, skipped): (Vec<_>, Vec<_>) = files.iter().partition(is_artefact);
        check_artefact(&wanted, &skipped)?;
        Ok(wanted.into_iter().cloned().collect())
    };
    download(settings, RepoTypeAny::Model, name, &choose, progress)
}

/// [`pull()`] for a data set repository, of which `choose` selects the wanted files. Files may lie in folders.
pub fn pull_data(
    settings: &HubSettings,
    name: &HubName,
    choose: Choose<'_>,
    progress: &OnProgress,
) -> Result<Pulled, HubError> {
    download(settings, RepoTypeAny::Dataset, name, choose, progress)
}

/// Copies the artefact files of `from`, a directory in the cache, to `out`: all are on disk there before the first gets
/// its name, and `config.json` comes last. Templates get this version's `expand.py`: no code is downloaded.
pub fn checkout(from: &Path, out: &Path) -> Result<(), HubError> {
    crate::files::check_is_file(&from.join(CONFIG_FILE))?;
    let mut files = Vec::new();
    for entry in fs::read_dir(from).map_err(HubError::io("read", from))? {
        let entry = entry.map_err(HubError::io("read", from))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_artefact_file(name)) else {
            continue;
        };
        let (source, target) = (entry.path(), out.join(name));
        files.push(Staged::new(&target, |file| {
            let mut source = fs::File::open(&source).map_err(HubError::io("read", &source))?;
            let copied = std::io::copy(&mut source, file);
            copied.map(drop).map_err(HubError::io("write", &target))
        })?);
    }
    if from.join(TEMPLATES_FILE).exists() {
        files.push(Staged::from_bytes(&out.join(EXPAND_FILE), EXPAND)?);
    }
    commit_directory(out, files)
}

fn download(
    settings: &HubSettings,
    kind: RepoTypeAny,
    name: &HubName,
    choose: Choose<'_>,
    progress: &OnProgress,
) -> Result<Pulled, HubError> {
    let cache = Cache::new(&settings.cache, kind, &name.repo);
    let is_data = matches!(kind, RepoTypeAny::Dataset);
    let held = match is_data {
        true => cache.noted(&name.revision),
        false => cache.artefact(&name.revision),
    };
    match held {
        Some((commit, dir)) if settings.offline || is_commit(&name.revision) => {
            let skipped = Vec::new();
            return Ok(Pulled {
                dir,
                commit,
                skipped,
            });
        }
        None if settings.offline => {
            let found = format!("{name} is not in the cache, and HF_HUB_OFFLINE is set");
            let remedy = "unset it once to download it";
            return Err(HubError::missing(&cache.dir(), found, remedy));
        }
        _ => {}
    }
    let (commit, files) = list(settings, kind, name)?;
    let wanted = choose(&files)
        .map_err(|fault| HubError::remote(&name.to_string(), fault.found, &fault.remedy, true))?;
    let dir = cache.snapshot(&commit);
    let missing = wanted.iter().filter(|file| !dir.join(file).exists());
    // Its presence says that the rest is there.
    let (last, first): (Vec<&String>, Vec<_>) = missing.partition(|file| *file == CONFIG_FILE);
    if !(first.is_empty() && last.is_empty()) {
        prepare_out(&cache.blobs())?;
        let lock = cache.lock()?;
        let home = cache.dir();
        // The holder of the lock is the only writer.
        if lock.is_some() {
            let _ = remove_temporaries(&home); // they are in nobody's way
        }
        let staging = temporary_dir(&home).map_err(HubError::io("write", &home))?;
        let staged = staged_blobs(&cache, &Cache::new(staging.0.path(), kind, &name.repo))?;
        let client = Client::new(settings, staging.0.path())?;
        let (owner, repo) = (&name.repo.owner, &name.repo.name);
        let transfer = Transfer {
            repo: client.hub.repository(kind, owner, repo),
            client,
            cache: &cache,
            name,
            commit: &commit,
            progress,
            staged: Mutex::new(staged),
        };
        transfer.fetch_all(&first)?;
        transfer.fetch_all(&last)?;
    }
    if name.revision != commit {
        cache.remember(&name.revision, &commit)?;
    }
    if is_data {
        cache.remember(&commit, &commit)?; // the download is complete
    }
    let wanted: BTreeSet<String> = wanted.into_iter().collect();
    let skipped = files.into_iter().filter(|file| !wanted.contains(file));
    Ok(Pulled {
        dir,
        commit,
        skipped: skipped.collect(),
    })
}

/// The commit that a name means, and the names of its files.
fn list(
    settings: &HubSettings,
    kind: RepoTypeAny,
    name: &HubName,
) -> Result<(String, Vec<String>), HubError> {
    let client = Client::new(settings, &settings.cache)?;
    let about = name.to_string();
    let revision = name.revision.replace('/', "%2F");
    let path = format!("api/{}/{}/revision/{revision}", kind.plural(), name.repo);
    let Listing { sha, siblings } = client.call(&about, || client.ask(&path, None))?;
    if !is_commit(&sha) {
        let found = format!("a response that does not fit the API (a commit named {sha:?})");
        return Err(client.unexpected(&about, &found));
    }
    let files: Vec<String> = siblings.into_iter().map(|file| file.rfilename).collect();
    for file in &files {
        let mut remedy = "do not trust this repository";
        let found = if escapes(file) {
            "points outside its directory"
        } else if file.chars().any(char::is_control) {
            "has control characters"
        } else if file.split('/').any(|part| part.len() > MAX_NAME) {
            remedy = "ask its owner for a shorter name";
            "is too long for a file system"
        } else {
            continue;
        };
        let (bytes, start) = (file.len(), file.chars().take(MAX_NAME).collect::<String>());
        let found = format!("holds a file whose name {found}: {start:?} ({bytes} bytes)");
        return Err(HubError::remote(&about, found, remedy, true));
    }
    Ok((sha, files))
}

#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

fn escapes(file: &str) -> bool {
    let mut parts = file.split('/');
    file.contains(['\\', ':', '\0']) || parts.any(|part| ["", ".", ".."].contains(&part))
}

fn check_artefact(wanted: &[&String], skipped: &[&String]) -> Result<(), Fault> {
    let weights = wanted.iter().any(|file| file.ends_with(".safetensors"));
    let has = |files: &[&String], name: &str| files.iter().any(|file| *file == name);
    let config = has(wanted, CONFIG_FILE);
    let sharded = has(skipped, INDEX_FILE) && !has(wanted, MODEL_FILE);
    let mut remedy = "check the name and the revision";
    let found = match skipped.iter().find(|file| is_pickle_name(file)) {
        _ if sharded => {
            remedy =
                "ask its owner for one file, or load it and save it with a larger `max_shard_size`";
            format!("holds its weights in several files ({INDEX_FILE}), expected {MODEL_FILE}")
        }
        _ if weights && config => return Ok(()),
        _ if weights => format!("holds no artefact: {CONFIG_FILE} is missing"),
        Some(file) => {
            remedy = "ask its owner for safetensors, or convert it where running its code is safe";
            format!("holds its weights only as {file}, and reading a pickle may run code")
        }
        None => "holds no artefact: no .safetensors file".to_owned(),
    };
    Err(Fault::new("", found, remedy))
}

/// Downloads from one commit of a repository.
struct Transfer<'a> {
    client: Client<'a>,
    repo: HFRepositorySync<RepoTypeAny>,
    cache: &'a Cache<'a>,
    name: &'a HubName,
    commit: &'a str,
    progress: &'a OnProgress,
    /// hf-hub's blobs, on the file system of the shared ones. Locked while a file moves from there.
    staged: Mutex<PathBuf>,
}

/// The directory of hf-hub's `own` blobs, with the shared ones: files of another commit are not downloaded again.
fn staged_blobs(shared: &Cache<'_>, own: &Cache<'_>) -> Result<PathBuf, HubError> {
    let staged = own.blobs();
    fs::create_dir_all(&staged).map_err(HubError::io("create the directory", &staged))?;
    for blob in fs::read_dir(shared.blobs()).into_iter().flatten().flatten() {
        // Skip partial downloads of other programs.
        if matches!(blob.file_name().len(), 40 | 64) {
            let _ = fs::hard_link(blob.path(), staged.join(blob.file_name()));
        }
    }
    Ok(staged)
}

impl Transfer<'_> {
    /// Downloads several files, some at a time. The first error ends the work.
    fn fetch_all(&self, files: &[&String]) -> Result<(), HubError> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), HubError> {
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let fetched = self.fetch(file);
                fetched.inspect_err(|_| next.store(files.len(), Ordering::Relaxed))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers = AT_A_TIME.min(files.len());
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| {
                let result = thread.join();
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Downloads one file, a second time if the first has the wrong content.
    fn fetch(&self, file: &str) -> Result<(), HubError> {
        let about = format!("{}: {file}", self.name);
        if self.fetch_once(file, &about)?.is_none() {
            return Ok(());
        }
        std::thread::sleep(self.client.pause(1));
        let Some(found) = self.fetch_once(file, &about)? else {
            return Ok(());
        };
        let remedy = "run the command again later: a failing hub sends error pages; if this persists, a proxy or \
                      mirror is damaged";
        let found = format!("the hub twice sent {found}");
        Err(HubError::remote(&about, found, remedy, false))
    }

    /// Downloads one file and moves it to the cache, or returns what was sent instead of its content.
    fn fetch_once(&self, file: &str, about: &str) -> Result<Option<String>, HubError> {
        let announced = Arc::new(AtomicU64::new(0));
        let (most, tell) = (announced.clone(), self.progress.clone());
        let progress: OnProgress = Arc::new(move |at: &FileProgress| {
            most.fetch_max(at.total_bytes, Ordering::Relaxed);
            if at.total_bytes <= MAX_SIZE {
                tell(at);
            }
        });
        let pointer = self.client.call(about, || {
            let call = self.repo.download_file().filename(file);
            let call = call.revision(self.commit);
            call.progress(Events(progress.clone())).send()
        });
        let announced = announced.load(Ordering::Relaxed);
        if announced > MAX_SIZE {
            let found = format!("a file of {announced} bytes, expected at most {MAX_SIZE}");
            return Err(self.client.unexpected(about, &found));
        }
        let pointer = pointer?;
        // Files of equal content share a blob.
        let staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        let etag = etag_of(&pointer, &staged)?;
        let blob = staged.join(&etag);
        let shared = self.cache.blobs().join(&etag);
        let wrong = verify(&blob, &etag)?;
        if wrong.is_some() {
            for path in [&pointer, &blob] {
                let _ = fs::remove_file(path);
            }
            // A wrong file of another program, which would be found again.
            if verify(&shared, &etag)?.is_some() {
                let _ = fs::remove_file(&shared);
            }
            return Ok(wrong);
        }
        let synced = fs::File::open(&blob).and_then(|content| content.sync_all());
        synced.map_err(HubError::io("sync", &blob))?;
        // A second link, for the next file with this content.
        if fs::hard_link(&blob, &shared).is_err() && !shared.exists() {
            fs::rename(&blob, &shared).map_err(HubError::io("write", &shared))?;
        }
        sync_dir(&self.cache.blobs())?;
        self.cache.link(self.commit, file, &etag)?;
        Ok(None)
    }
}

/// The checksum of the file behind `pointer`, hf-hub's name for its content among the blobs in `staged`.
fn etag_of(pointer: &Path, staged: &Path) -> Result<String, HubError> {
    if let Ok(target) = fs::read_link(pointer)
        && let Some(etag) = target.file_name().and_then(|name| name.to_str())
    {
        return Ok(etag.to_owned());
    }
    // On file systems without links, the pointer is a copy.
    let names = [sha256_file(pointer)?, git_hash_of(pointer)?];
    let known = names.into_iter().find(|name| staged.join(name).exists());
    known.ok_or_else(|| {
        let found = "has content that matches no blob in the cache";
        HubError::malformed(pointer, found, "run the command again")
    })
}

/// Compares content with the hub's checksum (SHA-256 for large files, git's for small ones). Returns a mismatch.
fn verify(path: &Path, etag: &str) -> Result<Option<String>, HubError> {
    if !path.exists() {
        return Ok(Some("nothing".to_owned()));
    }
    let (kind, found) = match etag.len() {
        64 => ("SHA-256", sha256_file(path)?),
        40 => ("git hash", git_hash_of(path)?),
        // No other kind of checksum can be compared with the content.
        _ => {
            let found = "a file without a checksum (an ETag of 40 or 64 hexadecimal digits)";
            return Ok(Some(found.to_owned()));
        }
    };
    let wrong = || {
        let bytes = fs::metadata(path).map_or(0, |content| content.len());
        format!("{bytes} bytes with the {kind} {found}, expected {etag}")
    };
    Ok((found != etag.to_ascii_lowercase()).then(wrong))
}

/// The hash that git gives to a file's content.
fn git_hash_of(path: &Path) -> Result<String, HubError> {
    let bytes = fs::read(path).map_err(HubError::io("read", path))?;
    Ok(git_hash(&bytes))
}

pub(super) fn git_hash(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex(&hasher.finalize())
}

#[cfg(test)]
#[path = "pull_tests.rs"]
mod tests;
