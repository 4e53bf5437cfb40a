//! From a directory to the hub, as one commit of hf-hub's. Until then nothing is visible.

use std::path::Path;

use hf_hub::repository::{AddSource, CommitInfo, CommitOperation};
use hf_hub::{HFRepositorySync, RepoTypeModel};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use super::name::check_revision;
use super::plan::{PlannedFile, Published, plan};
use super::{Events, HubSettings, OnProgress, RepoName};
use crate::HubError;

const JSON: &str = "application/json";
const LFS: &str = "application/vnd.git-lfs+json";

/// Options of publishing. The default is a public repository's `main`, without a card, which it needs.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    /// True if the repository, if it has to be created, is hidden from others.
    pub private: bool,
    /// The branch to commit to, created if it is not there; `main` by default.
    pub revision: Option<String>,
    /// Propose the commit as a pull request to `main` instead, a draft until somebody publishes it there.
    pub create_pr: bool,
    /// Stop after the plan, without network or token.
    pub dry_run: bool,
    /// The commit's first line.
    pub message: Option<String>,
    /// The card, in place of the directory's `README.md`; see [`crate::model_card`].
    pub card: String,
}

/// Publishes the artefact in `dir` as one commit to `repo`.
///
/// # Errors
/// Before anything is sent, if the card has no YAML head, or the directory holds what is not part of the artefact:
/// pickles, other files, links that lead out of it; without a token, offline, or when a file holds the token; when the
/// hub or the network refuses. Unless the failure falls into the commit itself, nothing of it is visible then.
pub fn publish(
    settings: &HubSettings,
    dir: &Path,
    repo: &RepoName,
    options: &PublishOptions,
    progress: &OnProgress,
) -> Result<Published, HubError> {
    let branch = options.revision.as_deref().unwrap_or("main");
    check_revision(branch)?;
    if options.create_pr && branch != "main" {
        let found = "is a branch, but the hub accepts pull requests to main only";
        let remedy = "omit the branch or the pull request";
        return Err(HubError::malformed(Path::new(branch), found, remedy));
    }
    let mut published = plan(dir, &options.card)?;
    check_secrets(settings, dir, &published.files)?;
    if options.dry_run {
        return Ok(published);
    }
    check_settings(settings)?;
    let hub = Hub {
        client: Client::new(settings, &settings.cache)?,
        repo,
        about: repo.to_string(),
        dir,
        files: &published.files,
    };
    hub.prepare(options.private, branch)?;
    hub.check_storage((!options.create_pr).then_some(branch))?;
    let message = options.message.as_deref().unwrap_or("Publish with wave");
    let (mut revision, mut url) = (branch.to_owned(), None);
    if options.create_pr {
        let number = hub.propose(message)?;
        revision = format!("refs/pr/{number}");
        url = Some(format!("{}/{repo}/discussions/{number}", settings.endpoint));
    }
    let made = hub.commit(message, &revision, progress)?;
    published.commit = made.commit_oid;
    published.url = url.or(made.commit_url);
    Ok(published)
}

fn check_settings(settings: &HubSettings) -> Result<(), HubError> {
    let refuse = |name: &str, found: &str, remedy: &str| {
        Err(HubError::malformed(Path::new(name), found, remedy))
    };
    if settings.offline {
        let found = "is set, but publishing needs the network";
        return refuse("HF_HUB_OFFLINE", found, "unset it");
    }
    if settings.token.is_none() {
        let found = "is not set, but publishing needs a token with write access";
        return refuse("HF_TOKEN", found, "create one in the hub's settings");
    }
    Ok(())
}

/// Refuses files that contain the token: a run's settings may have ended up there.
fn check_secrets(
    settings: &HubSettings,
    dir: &Path,
    files: &[PlannedFile],
) -> Result<(), HubError> {
    let Some(token) = &settings.token else {
        return Ok(());
    };
    let leaks = |file: &&PlannedFile| file.content.iter().any(|content| token.is_in(content));
    if let Some(file) = files.iter().find(leaks) {
        let path = dir.join(&file.path);
        let remedy = "remove it from the file";
        return Err(HubError::malformed(&path, "holds the hub's token", remedy));
    }
    Ok(())
}

struct Hub<'a> {
    client: Client<'a>,
    repo: &'a RepoName,
    about: String,
    dir: &'a Path,
    files: &'a [PlannedFile],
}

#[derive(Deserialize)]
struct Opened {
    num: u64,
}

impl Hub<'_> {
    fn model(&self) -> HFRepositorySync<RepoTypeModel> {
        self.client.hub.model(&self.repo.owner, &self.repo.name)
    }

    /// Creates the repository and the branch if they do not exist.
    fn prepare(&self, private: bool, branch: &str) -> Result<(), HubError> {
        let (client, about) = (&self.client, &self.about);
        let repo = self.model();
        // A token that may write to one repository may not create it.
        if !client.call(about, || repo.exists().send())? {
            client.call(about, || {
                let create = client.hub.create_repository().repo_id(about);
                let create = create.repo_type(RepoTypeModel).private(private);
                create.exist_ok(true).send()
            })?;
        }
        let exists = || repo.revision_exists().revision(branch).send();
        if branch != "main" && !client.call(about, exists)? {
            client.call(about, || repo.create_branch().branch(branch).send())?;
        }
        Ok(())
    }

    /// Refuses a hub that does not take the weights by Xet: hf-hub would send them as text in the commit.
    /// A pull request belongs to no branch yet.
    fn check_storage(&self, branch: Option<&str>) -> Result<(), HubError> {
        let large = |file: &&PlannedFile| file.content.is_none();
        let object = |file: &PlannedFile| json!({ "oid": file.sha256, "size": file.bytes });
        let mut request = json!({
            "operation": "upload",
            "transfers": ["basic", "multipart", "xet"],
            "hash_algo": "sha256",
            "objects": self.files.iter().filter(large).map(object).collect::<Vec<_>>(),
        });
        if let Some(branch) = branch {
            request["ref"] = json!({ "name": branch });
        }
        let path = format!("{}.git/info/lfs/objects/batch", self.repo);
        let post = || self.client.ask(&path, Some((LFS, &request)));
        let answer: Value = self.client.call(&self.about, post)?;
        let way = answer.get("transfer").and_then(Value::as_str);
        if way == Some("xet") {
            return Ok(());
        }
        let way = self.client.settings.scrub(way.unwrap_or("Git LFS"));
        let found = format!("the hub accepts large files through {way}, expected Xet");
        let remedy = "upload the directory with Python's `hf upload` and HF_HUB_DISABLE_XET=1";
        Err(HubError::remote(&self.about, found, remedy, true))
    }

    fn commit(
        &self,
        message: &str,
        revision: &str,
        progress: &OnProgress,
    ) -> Result<CommitInfo, HubError> {
        let repo = self.model();
        let operation = |file: &PlannedFile| CommitOperation::Add {
            path_in_repo: file.path.clone(),
            source: match &file.content {
                None => AddSource::file(self.dir.join(&file.path)),
                Some(bytes) => AddSource::bytes(bytes.clone()),
            },
        };
        let operations: Vec<_> = self.files.iter().map(operation).collect();
        self.client.call(&self.about, || {
            let commit = repo.create_commit().operations(operations.clone());
            let commit = commit.commit_message(message).revision(revision);
            commit.progress(Events(progress.clone())).send()
        })
    }

    /// Opens a pull request, to which nothing is committed yet, and returns its number.
    fn propose(&self, message: &str) -> Result<u64, HubError> {
        let path = format!("api/models/{}/discussions", self.repo);
        let request = json!({ "title": message, "description": message, "pullRequest": true });
        let post = || self.client.ask(&path, Some((JSON, &request)));
        let Opened { num } = self.client.call(&self.about, post)?;
        Ok(num)
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
