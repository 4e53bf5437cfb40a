//! From a directory to the hub, as one commit.
//!
//! 1. The repository and the branch are created if they are not there.
//! 2. The hub says of each file whether it goes into the commit or into large-file storage.
//! 3. Large files go there by the Git LFS batch API, whole or in parts, unless it has them.
//! 4. One commit names them all. Until then nothing is visible.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::client::{self, Call, Client, header, quoted};
use super::name::check_revision;
use super::plan::{Content, Plan, PlannedFile, plan};
use super::{HubSettings, OnProgress, RepoName};
use crate::HubError;

const LFS: &str = "application/vnd.git-lfs+json";
/// The ways of Git LFS in which large files are sent.
const TRANSFERS: [&str; 2] = ["basic", "multipart"];
/// Bytes of a file that the hub is shown, to tell text from large binaries.
const SAMPLE: usize = 512;

/// Options of publishing. The default is a public repository's `main`.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    /// Whether the repository, if it has to be created, is hidden from others.
    pub private: bool,
    /// The branch to commit to, created if it is not there; `main` by default.
    pub revision: Option<String>,
    /// Whether to propose the commit as a pull request instead.
    pub create_pr: bool,
    /// Whether to stop after the plan, without network or token.
    pub dry_run: bool,
    /// The commit's first line.
    pub message: Option<String>,
    /// A card in place of the directory's `README.md`; see [`crate::model_card`].
    pub card: Option<String>,
}

/// The result of publishing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The files sent; after a dry run, those that would have been.
    pub plan: Plan,
    /// The commit; `None` after a dry run.
    pub commit: Option<String>,
    /// The address of the pull request or the commit, if the hub says.
    pub url: Option<String>,
}

/// Publishes the artefact in `dir` as one commit to `repo`.
///
/// # Errors
/// Those of [`plan()`] before anything is sent; [`HubError::Malformed`] without a token, offline,
/// or when a file holds the token; [`HubError::Remote`] when the hub or the network refuses.
/// Unless the failure falls into the commit itself, nothing of it is visible then.
pub fn publish(
    settings: &HubSettings,
    dir: &Path,
    repo: &RepoName,
    options: &PublishOptions,
    progress: OnProgress<'_>,
) -> Result<Published, HubError> {
    let branch = options.revision.as_deref().unwrap_or("main");
    check_revision(branch)?;
    let plan = plan(dir, options.card.as_deref())?;
    check_secrets(settings, dir, &plan)?;
    if options.dry_run {
        return Ok(Published {
            plan,
            commit: None,
            url: None,
        });
    }
    check_settings(settings)?;
    let hub = Hub {
        client: Client::new(settings),
        repo,
        branch,
        create_pr: options.create_pr,
        about: repo.to_string(),
    };
    hub.prepare(options.private)?;
    let large = hub.sort_out(&plan)?;
    hub.store(&plan, &large, progress)?;
    let message = options.message.as_deref().unwrap_or("Publish with wave");
    let answer = hub.commit(&plan, &large, message)?;
    let text = |key: &str| answer.get(key)?.as_str().map(str::to_owned);
    Ok(Published {
        plan,
        commit: text("commitOid"),
        url: text("pullRequestUrl").or_else(|| text("commitUrl")),
    })
}

fn check_settings(settings: &HubSettings) -> Result<(), HubError> {
    let refuse = |name: &str, found: &str, remedy: &str| {
        Err(HubError::malformed(Path::new(name), found, remedy))
    };
    if settings.offline {
        let found = "is set, and publishing needs the network";
        return refuse("HF_HUB_OFFLINE", found, "unset it");
    }
    if settings.token.is_none() {
        let found = "is not set, and publishing needs a token that may write";
        return refuse("HF_TOKEN", found, "create one in the hub's settings");
    }
    Ok(())
}

/// Refuses files with the token in them: a run's settings may have found their way there.
fn check_secrets(settings: &HubSettings, dir: &Path, plan: &Plan) -> Result<(), HubError> {
    let Some(token) = &settings.token else {
        return Ok(());
    };
    for file in &plan.files {
        if !file.path.ends_with(".onnx")
            && !file.path.ends_with(".safetensors")
            && token.is_in(&bytes_of(file)?)
        {
            let path = dir.join(&file.path);
            let remedy = "remove it from the file";
            return Err(HubError::malformed(&path, "holds the hub's token", remedy));
        }
    }
    Ok(())
}

/// A repository on a hub, and the branch to commit to.
struct Hub<'a> {
    client: Client<'a>,
    repo: &'a RepoName,
    branch: &'a str,
    create_pr: bool,
    about: String,
}

impl Hub<'_> {
    /// Creates what is not there: the repository, the branch.
    fn prepare(&self, private: bool) -> Result<(), HubError> {
        let exists = |path: String| -> Result<bool, HubError> {
            let call = Call::new("GET", self.client.url(&path), &self.about).accept(&[404]);
            Ok(self.client.json(&call)?.0 != 404)
        };
        if !exists(format!("api/models/{}", self.repo))? {
            let request = json!({
                "type": "model",
                "name": self.repo.name(),
                "organization": self.repo.owner(),
                "private": private,
            });
            // 409: somebody else was faster.
            self.post("api/repos/create", &request, &[409])?;
        }
        let branch = quoted(self.branch);
        let path = format!("api/models/{}/revision/{branch}", self.repo);
        if self.branch != "main" && !exists(path)? {
            if self.create_pr {
                return Err(HubError::Remote {
                    about: self.about.clone(),
                    found: format!("has no branch {} to propose a change to", self.branch),
                    remedy: "name a branch that it has".to_owned(),
                    request: true,
                });
            }
            let path = format!("api/models/{}/branch/{branch}", self.repo);
            self.post(&path, &json!({}), &[409])?;
        }
        Ok(())
    }

    /// The files that belong into large-file storage.
    fn sort_out<'p>(&self, plan: &'p Plan) -> Result<Vec<&'p PlannedFile>, HubError> {
        let mut files = Vec::new();
        for file in &plan.files {
            files.push(json!({
                "path": file.path,
                "size": file.bytes,
                "sample": BASE64.encode(sample_of(file)?),
            }));
        }
        let path = self.at_branch("preupload");
        let answer = self.post(&path, &json!({ "files": files }), &[])?;
        let modes = answer.get("files").and_then(Value::as_array);
        let mut large = Vec::new();
        for file in &plan.files {
            let is = |mode: &&Value| mode.get("path").and_then(Value::as_str) == Some(&file.path);
            let mode = modes.and_then(|modes| modes.iter().find(is));
            let ignored = mode.and_then(|mode| mode.get("shouldIgnore")?.as_bool());
            if ignored == Some(true) {
                return Err(HubError::Remote {
                    about: format!("{}: {}", self.about, file.path),
                    found: "the repository's .gitignore leaves it out".to_owned(),
                    remedy: "correct that file on the hub".to_owned(),
                    request: true,
                });
            }
            match mode.and_then(|mode| mode.get("uploadMode")?.as_str()) {
                Some("lfs") => large.push(file),
                Some("regular") => {}
                _ => return Err(self.unexpected("no way to upload a file")),
            }
        }
        Ok(large)
    }

    /// Brings the large files to their storage.
    fn store(
        &self,
        plan: &Plan,
        large: &[&PlannedFile],
        progress: OnProgress<'_>,
    ) -> Result<(), HubError> {
        if large.is_empty() {
            return Ok(());
        }
        let objects: Vec<Value> = large
            .iter()
            .map(|file| json!({ "oid": file.sha256, "size": file.bytes }))
            .collect();
        let mut request = json!({
            "operation": "upload",
            "transfers": TRANSFERS,
            "hash_algo": "sha256",
            "objects": objects,
        });
        // A pull request belongs to no branch yet.
        if !self.create_pr {
            request["ref"] = json!({ "name": self.branch });
        }
        let url = self
            .client
            .url(&format!("{}.git/info/lfs/objects/batch", self.repo));
        let request = request.to_string();
        let (_, answer) = self.client.json(&lfs(url, &self.about, &request))?;
        // A hub that stores in another way sends no addresses, as for files that it has already.
        let transfer = answer.get("transfer").and_then(Value::as_str);
        if let Some(other) = transfer.filter(|name| !TRANSFERS.contains(name)) {
            let other = self.client.settings.scrub(other);
            return Err(HubError::Remote {
                about: self.about.clone(),
                found: format!(
                    "the hub takes large files by {other} only, which wave does not speak"
                ),
                remedy: "upload the directory with the hub's own client".to_owned(),
                request: true,
            });
        }
        let objects = answer.get("objects").and_then(Value::as_array);
        for object in objects.ok_or_else(|| self.unexpected("no storage for large files"))? {
            let id = object.get("oid").and_then(Value::as_str);
            let file = plan.files.iter().find(|file| Some(&*file.sha256) == id);
            let file = file.ok_or_else(|| self.unexpected("a file that was not asked about"))?;
            if let Some(error) = object.get("error") {
                let said = error.get("message").and_then(Value::as_str);
                let said = self
                    .client
                    .settings
                    .scrub(said.unwrap_or("no reason given"));
                return Err(HubError::Remote {
                    about: format!("{}: {}", self.about, file.path),
                    found: format!("the storage for large files refused: {said}"),
                    remedy: "try again later, or publish a smaller artefact".to_owned(),
                    request: false,
                });
            }
            // Without actions it is there already.
            if let Some(actions) = object.get("actions").filter(|actions| !actions.is_null()) {
                self.store_one(file, actions, progress)?;
            }
        }
        Ok(())
    }

    fn store_one(
        &self,
        file: &PlannedFile,
        actions: &Value,
        progress: OnProgress<'_>,
    ) -> Result<(), HubError> {
        let href = |action: &Value| match action.get("href").and_then(Value::as_str) {
            Some(url) => self.encrypted(url),
            None => Err(self.unexpected("an upload to nowhere")),
        };
        if let Some(upload) = actions.get("upload") {
            let url = href(upload)?;
            let none = serde_json::Map::new();
            let headers = upload.get("header").and_then(Value::as_object);
            let headers = headers.unwrap_or(&none);
            // Bytes in memory need a file to be sent from.
            let mut held = None;
            let path = match &file.content {
                Content::Disk(path) => path.clone(),
                Content::Memory(bytes) => {
                    let file = NamedTempFile::new()
                        .map_err(HubError::io("write", &std::env::temp_dir()))?;
                    fs::write(file.path(), bytes).map_err(HubError::io("write", file.path()))?;
                    held.insert(file).path().to_owned()
                }
            };
            let part = |start, length| client::RequestBody::Part {
                file: &path,
                start,
                length,
            };
            match headers.get("chunk_size").and_then(size_of) {
                None => {
                    let mut call = Call::new("PUT", url, &file.path).content(part(0, file.bytes));
                    for (name, value) in headers {
                        if let Some(value) = value.as_str() {
                            call = call.header(name, value);
                        }
                    }
                    self.client.send(&call, progress)?;
                }
                Some(size) => {
                    let mut parts = Vec::new();
                    for number in 1..=file.bytes.div_ceil(size) {
                        let start = (number - 1) * size;
                        let length = size.min(file.bytes - start);
                        let target = headers.get(&number.to_string()).or_else(|| {
                            // Some hubs pad the numbers.
                            headers.get(&format!("{number:05}"))
                        });
                        let target = target.and_then(Value::as_str);
                        let Some(target) = target else {
                            return Err(self.unexpected("too few addresses for a file's parts"));
                        };
                        let call = Call::new("PUT", self.encrypted(target)?, &file.path)
                            .content(part(start, length));
                        let answer = self.client.send(&call, progress)?;
                        let Some(etag) = header(&answer, "etag") else {
                            return Err(self.unexpected("no receipt for a part of a file"));
                        };
                        parts.push(json!({ "partNumber": number, "etag": etag }));
                    }
                    let receipt = json!({ "oid": file.sha256, "parts": parts }).to_string();
                    self.client
                        .send(&lfs(url, &file.path, &receipt), &mut |_| ())?;
                }
            }
        }
        let verify = actions.get("verify").filter(|action| !action.is_null());
        if let Some(action) = verify {
            let url = href(action)?;
            let request = json!({ "oid": file.sha256, "size": file.bytes }).to_string();
            self.client
                .send(&lfs(url, &file.path, &request), &mut |_| ())?;
        }
        Ok(())
    }

    /// One commit with everything.
    fn commit(
        &self,
        plan: &Plan,
        large: &[&PlannedFile],
        message: &str,
    ) -> Result<Value, HubError> {
        let mut lines = vec![json!({
            "key": "header",
            "value": { "summary": message, "description": "" },
        })];
        for file in &plan.files {
            lines.push(if large.contains(&file) {
                json!({
                    "key": "lfsFile",
                    "value": {
                        "path": file.path,
                        "algo": "sha256",
                        "oid": file.sha256,
                        "size": file.bytes,
                    },
                })
            } else {
                json!({
                    "key": "file",
                    "value": {
                        "path": file.path,
                        "encoding": "base64",
                        "content": BASE64.encode(bytes_of(file)?),
                    },
                })
            });
        }
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let url = self.client.url(&self.at_branch("commit"));
        let call = Call::new("POST", url, &self.about)
            .header("content-type", "application/x-ndjson")
            .content(client::RequestBody::Bytes(lines.as_bytes()));
        self.client.json(&call).map(|(_, answer)| answer)
    }

    fn post(&self, path: &str, request: &Value, accepted: &[u16]) -> Result<Value, HubError> {
        let body = request.to_string();
        let call = Call::new("POST", self.client.url(path), &self.about)
            .header("content-type", "application/json")
            .content(client::RequestBody::Bytes(body.as_bytes()))
            .accept(accepted);
        self.client.json(&call).map(|(_, answer)| answer)
    }

    fn at_branch(&self, action: &str) -> String {
        let pr = if self.create_pr { "?create_pr=1" } else { "" };
        let branch = quoted(self.branch);
        format!("api/models/{}/{action}/{branch}{pr}", self.repo)
    }

    /// An address that the hub gives, unless files would leave an encrypted hub in the clear.
    fn encrypted(&self, url: &str) -> Result<String, HubError> {
        if self.client.settings.endpoint.starts_with("https:") && !url.starts_with("https:") {
            return Err(self.unexpected("an unencrypted address to upload to"));
        }
        Ok(url.to_owned())
    }

    fn unexpected(&self, found: &str) -> HubError {
        self.client.unexpected(&self.about, found)
    }
}

/// A request in the words of Git LFS.
fn lfs<'a>(url: String, about: &'a str, request: &'a str) -> Call<'a> {
    Call::new("POST", url, about)
        .header("accept", LFS)
        .header("content-type", LFS)
        .content(client::RequestBody::Bytes(request.as_bytes()))
}

fn bytes_of(file: &PlannedFile) -> Result<Vec<u8>, HubError> {
    match &file.content {
        Content::Disk(path) => fs::read(path).map_err(HubError::io("read", path)),
        Content::Memory(bytes) => Ok(bytes.clone()),
    }
}

fn sample_of(file: &PlannedFile) -> Result<Vec<u8>, HubError> {
    use std::io::Read;
    match &file.content {
        Content::Disk(path) => {
            let mut sample = Vec::new();
            fs::File::open(path)
                .and_then(|file| file.take(SAMPLE as u64).read_to_end(&mut sample))
                .map_err(HubError::io("read", path))?;
            Ok(sample)
        }
        Content::Memory(bytes) => Ok(bytes[..bytes.len().min(SAMPLE)].to_vec()),
    }
}

/// A positive number, or its digits.
fn size_of(value: &Value) -> Option<u64> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.filter(|size| *size > 0)
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
