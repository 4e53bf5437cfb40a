//! From the hub to the cache, and from the cache to a directory.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha1::{Digest, Sha1};
use ureq::Body;
use ureq::http::Response;

use super::cache::Cache;
use super::client::{Call, Client, header, quoted};
use super::name::{HubName, is_commit, is_hex};
use super::{HubSettings, OnProgress, Progress, is_artefact_file, is_pickle_name};
use crate::atomic::{PREFIX, Staged, Temporary, remove_left, sync_dir};
use crate::directory::{CONFIG_FILE, commit_directory};
use crate::{HubError, prepare_out, sha256_file};

const PIECE: usize = 256 << 10;
/// The most of a file whose size the hub does not tell.
const MOST_UNTOLD: u64 = 64 << 20;

/// An artefact in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The directory, to be read only: its files are links into the cache.
    pub dir: PathBuf,
    /// The commit that the revision meant.
    pub commit: String,
    /// Files of the repository that are no part of an artefact and were left there.
    pub skipped: Vec<String>,
}

/// The directory that holds `name`, `hf:OWNER/NAME[@REV]`: [`pull()`] for a name as users write
/// it.
///
/// # Errors
/// [`HubError::Malformed`] when it is no such name; otherwise those of [`pull()`].
pub fn resolve(
    settings: &HubSettings,
    name: &str,
    progress: OnProgress<'_>,
) -> Result<PathBuf, HubError> {
    pull(settings, &name.parse()?, progress).map(|pulled| pulled.dir)
}

/// Downloads the artefact files of `name` that the cache does not hold yet, and tells where they
/// are. A revision that is a commit, once complete in the cache, needs no network; offline,
/// nothing does, and a branch means what it last meant.
///
/// # Errors
/// [`HubError::Missing`] when offline and not cached; [`HubError::Malformed`] when the repository
/// holds no artefact or lies about its files; [`HubError::Remote`] when the hub or the network
/// refuses, or a checksum is wrong; [`HubError::Io`] when the cache cannot be written. What was
/// not complete leaves no file behind.
pub fn pull(
    settings: &HubSettings,
    name: &HubName,
    progress: OnProgress<'_>,
) -> Result<Pulled, HubError> {
    let cache = Cache::new(&settings.cache, &name.repo);
    if (settings.offline || is_commit(&name.revision))
        && let Some((commit, dir)) = cache.complete(&name.revision)
    {
        return Ok(Pulled {
            dir,
            commit,
            skipped: Vec::new(),
        });
    }
    if settings.offline {
        return Err(cache.absent(name));
    }
    let client = Client::new(settings);
    let (commit, files) = list(&client, name)?;
    let (mut wanted, skipped): (Vec<String>, Vec<String>) =
        files.into_iter().partition(|file| is_artefact_file(file));
    check_artefact(name, &wanted, &skipped)?;
    // Its presence says that the rest is there.
    wanted.sort_by_key(|file| file == CONFIG_FILE);
    for file in &wanted {
        if !cache.snapshot(&commit).join(file).exists() {
            fetch(&client, &cache, name, &commit, file, progress)?;
        }
    }
    cache.remember(&name.revision, &commit)?;
    Ok(Pulled {
        dir: cache.snapshot(&commit),
        commit,
        skipped,
    })
}

/// Copies the artefact files of `from`, a directory in the cache, to `out`: all of them are on
/// disk there before the first gets its name, and `config.json` comes last.
///
/// # Errors
/// [`HubError::Missing`] when `from` holds no artefact, [`HubError::Io`] when the work fails.
pub fn checkout(from: &Path, out: &Path) -> Result<(), HubError> {
    crate::files::check_is_file(&from.join(CONFIG_FILE))?;
    let mut files = Vec::new();
    let mut config = None;
    let entries = fs::read_dir(from).map_err(HubError::io("read", from))?;
    for entry in entries {
        let entry = entry.map_err(HubError::io("read", from))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_artefact_file(name)) else {
            continue;
        };
        let (source, target) = (entry.path(), out.join(name));
        let staged = Staged::new(&target, |file| {
            let mut source = fs::File::open(&source).map_err(HubError::io("read", &source))?;
            std::io::copy(&mut source, file)
                .map(drop)
                .map_err(HubError::io("write", &target))
        })?;
        match name == CONFIG_FILE {
            true => config = Some(staged),
            false => files.push(staged),
        }
    }
    match config {
        Some(config) => commit_directory(out, files, config),
        None => Ok(()),
    }
}

/// The commit that a name means, and the names of its files.
fn list(client: &Client<'_>, name: &HubName) -> Result<(String, Vec<String>), HubError> {
    let about = name.to_string();
    let revision = quoted(&name.revision);
    let url = client.url(&format!("api/models/{}/revision/{revision}", name.repo));
    let (_, info) = client.json(&Call::new("GET", url, &about))?;
    let commit = info.get("sha").and_then(Value::as_str);
    let commit = commit.filter(|commit| is_commit(commit));
    let files = info.get("siblings").and_then(Value::as_array);
    let (Some(commit), Some(files)) = (commit, files) else {
        return Err(client.unexpected(&about, "a repository without commit or files"));
    };
    let files = files
        .iter()
        .map(|file| file.get("rfilename").and_then(Value::as_str))
        .map(|file| match file {
            Some(file) if escapes(file) => Err(HubError::Remote {
                about: about.clone(),
                found: format!("holds a file named {file:?}, which leads out of its directory"),
                remedy: "do not trust this repository".to_owned(),
                request: true,
            }),
            Some(file) => Ok(file.to_owned()),
            None => Err(client.unexpected(&about, "a file without a name")),
        })
        .collect::<Result<_, _>>()?;
    Ok((commit.to_owned(), files))
}

fn escapes(file: &str) -> bool {
    file.contains(['\\', ':', '\0'])
        || file
            .split('/')
            .any(|part| part.is_empty() || part == "." || part == "..")
}

fn check_artefact(name: &HubName, wanted: &[String], skipped: &[String]) -> Result<(), HubError> {
    let refuse = |found: String, remedy: &str| HubError::Remote {
        about: name.to_string(),
        found,
        remedy: remedy.to_owned(),
        request: true,
    };
    if !wanted.iter().any(|file| file.ends_with(".safetensors")) {
        return Err(match skipped.iter().find(|file| is_pickle_name(file)) {
            Some(file) => refuse(
                format!("holds its weights only as {file}, and reading a pickle may run code"),
                "ask its owner for safetensors, or convert it where that is safe",
            ),
            None => refuse(
                "holds no artefact: no .safetensors file".to_owned(),
                "check the name and the revision",
            ),
        });
    }
    if !wanted.iter().any(|file| file == CONFIG_FILE) {
        let found = format!("holds no artefact: {CONFIG_FILE} is missing");
        return Err(refuse(found, "check the name and the revision"));
    }
    Ok(())
}

/// The hub's size and checksum of a file.
struct About {
    /// SHA-256, or git's SHA-1, in lower-case digits.
    etag: String,
    size: Option<u64>,
}

/// Downloads one file into the cache.
fn fetch(
    client: &Client<'_>,
    cache: &Cache<'_>,
    name: &HubName,
    commit: &str,
    file: &str,
    progress: OnProgress<'_>,
) -> Result<(), HubError> {
    let subject = format!("{name}: {file}");
    let url = client.url(&format!("{}/resolve/{commit}/{}", name.repo, quoted(file)));
    let about = ask(client, &url, &subject)?;
    let blob = cache.blob(&about.etag);
    let lock = cache.lock(&about.etag)?;
    let held = fs::metadata(&blob).map(|held| held.len());
    // A blob of another size was cut short by some other program.
    if !held.is_ok_and(|held| about.size.is_none_or(|size| size == held)) {
        let dir = blob.parent().unwrap_or(&blob);
        prepare_out(dir)?;
        let prefix = format!("{PREFIX}{}-", about.etag);
        if lock.is_some() {
            remove_left(dir, &prefix)?; // by downloads that were killed: who has the lock is alone
        }
        let mut part = Temporary::new(dir, &prefix).map_err(HubError::io("write", &blob))?;
        let content = &mut part.file;
        download(client, &url, &subject, file, &about, content, progress)?;
        verify(content.path(), &subject, &about.etag)?;
        let synced = content.as_file().sync_all();
        synced.map_err(HubError::io("sync", &blob))?;
        part.persist(&blob)?;
        sync_dir(dir)?;
    }
    cache.link(commit, file, &about.etag)
}

/// The checksum and size of a file. Large files lie with another host, but the hub's own answer
/// tells them.
fn ask(client: &Client<'_>, url: &str, subject: &str) -> Result<About, HubError> {
    let call = Call::new("HEAD", url.to_owned(), subject).header("accept-encoding", "identity");
    let (mut linked, mut linked_size) = (None, None);
    let answer = client.follow(&call, false, &mut |answer| {
        let etag = header(answer, "x-linked-etag").map(str::to_owned);
        linked = linked.take().or(etag);
        linked_size = linked_size.or_else(|| number(answer, "x-linked-size"));
    })?;
    let etag = linked.or_else(|| header(&answer, "etag").map(str::to_owned));
    let etag = etag.map(|etag| {
        let etag = etag.trim().trim_start_matches("W/").trim_matches('"');
        etag.to_ascii_lowercase()
    });
    // Any other name of the content could not be compared with it.
    let etag = etag.filter(|etag| matches!(etag.len(), 40 | 64) && is_hex(etag));
    let Some(etag) = etag else {
        let found = "a file without a checksum (an ETag of 40 or 64 hexadecimal digits)";
        return Err(client.unexpected(subject, found));
    };
    let here = (answer.status().as_u16() == 200).then(|| number(&answer, "content-length"));
    Ok(About {
        etag,
        size: linked_size.or(here.flatten()),
    })
}

/// Fills `part`. A connection that is cut is taken up where it ended, where the host can.
fn download(
    client: &Client<'_>,
    url: &str,
    subject: &str,
    file: &str,
    about: &About,
    part: &mut tempfile::NamedTempFile,
    progress: OnProgress<'_>,
) -> Result<(), HubError> {
    let path = part.path().to_owned();
    let write = |cause| HubError::io("write", &path)(cause);
    let mut done: u64 = 0;
    let mut cuts = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let mut call =
            Call::new("GET", url.to_owned(), subject).header("accept-encoding", "identity");
        if done > 0 {
            call = call.header("range", &format!("bytes={done}-"));
        }
        let mut answer = client.follow(&call.accept(&[416]), true, &mut |_| ())?;
        if answer.status().as_u16() != 206 || !continues(&answer, done) {
            done = 0;
        }
        if answer.status().as_u16() == 416 {
            cuts += 1;
            if cuts >= client.settings.attempts.max(1) {
                return Err(client.unexpected(subject, "no part of a file that it has (416)"));
            }
            continue;
        }
        let target = part.as_file_mut();
        target.set_len(done).map_err(write)?;
        target.seek(SeekFrom::Start(done)).map_err(write)?;
        let mut reader = answer.body_mut().with_config().limit(u64::MAX).reader();
        let cut = loop {
            match reader.read(&mut piece) {
                Ok(0) => break None,
                Ok(n) => {
                    target.write_all(&piece[..n]).map_err(write)?;
                    done += n as u64;
                    progress(Progress {
                        file,
                        done,
                        total: about.size.unwrap_or(done),
                    });
                    if done > about.size.unwrap_or(MOST_UNTOLD) {
                        break None;
                    }
                }
                Err(cause) => break Some(cause),
            }
        };
        match (cut, about.size) {
            (None, None) if done > MOST_UNTOLD => {
                let found = format!("more than {MOST_UNTOLD} bytes of a file of untold size");
                return Err(wrong(subject, &found));
            }
            (None, None) => return Ok(()),
            (_, Some(size)) if done == size => return Ok(()),
            (_, Some(size)) if done > size => {
                return Err(wrong(
                    subject,
                    &format!("more than the {size} bytes it should have"),
                ));
            }
            (cause, size) => {
                cuts += 1;
                if cuts >= client.settings.attempts.max(1) {
                    let of = size.map_or(String::new(), |size| format!(" of {size}"));
                    let why = cause.map_or(String::new(), |cause| {
                        format!(" ({})", client.settings.scrub(&cause.to_string()))
                    });
                    return Err(HubError::Remote {
                        about: subject.to_owned(),
                        found: format!("the connection was cut after {done}{of} bytes{why}"),
                        remedy: "run the command again".to_owned(),
                        request: false,
                    });
                }
                client.wait(cuts);
            }
        }
    }
}

/// Whether an answer to a range starts where it should.
fn continues(answer: &Response<Body>, done: u64) -> bool {
    let range = header(answer, "content-range");
    range.is_some_and(|range| range.trim().starts_with(&format!("bytes {done}-")))
}

/// Checks the content against the hub's checksum: SHA-256 for large files, git's for small ones.
fn verify(path: &Path, subject: &str, etag: &str) -> Result<(), HubError> {
    let (kind, found) = match etag.len() {
        64 => ("SHA-256", sha256_file(path)?),
        _ => {
            let bytes = fs::read(path).map_err(HubError::io("read", path))?;
            ("git hash", git_hash(&bytes))
        }
    };
    match found == etag {
        true => Ok(()),
        false => Err(wrong(
            subject,
            &format!("content with the {kind} {found}, expected {etag}"),
        )),
    }
}

/// The name that git gives to content.
pub(super) fn git_hash(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    let digest = hasher.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn wrong(subject: &str, found: &str) -> HubError {
    HubError::Remote {
        about: subject.to_owned(),
        found: format!("was sent {found}"),
        remedy: "run the command again; if it stays so, a proxy or mirror is damaged".to_owned(),
        request: false,
    }
}

fn number(answer: &Response<Body>, name: &str) -> Option<u64> {
    header(answer, name)?.trim().parse().ok()
}

#[cfg(test)]
#[path = "pull_tests.rs"]
mod tests;
