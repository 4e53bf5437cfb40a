//! Names of repositories and revisions.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::digest::is_hex;
use crate::{HubError, on_hub};

/// A repository on a hub: `OWNER/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoName {
    /// The account or organisation.
    pub(super) owner: String,
    pub(super) name: String,
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// From `OWNER/NAME`, as hubs allow them.
impl FromStr for RepoName {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let refuse = |found: &str| {
            let remedy = "write OWNER/NAME, in letters, digits, `-`, `_` and `.`";
            HubError::malformed(Path::new(text), found, remedy)
        };
        let Some((owner, name)) = text.split_once('/') else {
            return Err(refuse("is not the name of a repository: it has no `/`"));
        };
        for part in [owner, name] {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let edge = |c: Option<char>| c.is_none_or(|c| "-.".contains(c));
            if !part.chars().all(allowed)
                || edge(part.chars().next())
                || edge(part.chars().last())
                || part.contains("..")
                || part.contains("--")
                || part.len() > 96
            {
                return Err(refuse("is not the name of a repository"));
            }
        }
        Ok(Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// A repository at a revision: `hf:OWNER/NAME` or `hf:OWNER/NAME@REV`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    /// The repository.
    pub repo: RepoName,
    /// A branch, a tag or a commit; `main` when the name does not say.
    pub revision: String,
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}@{}", self.repo, self.revision)
    }
}

/// From `hf:OWNER/NAME[@REV]`; the `hf:` may be left out, or be timm's `hf-hub:`.
impl FromStr for HubName {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let bare = on_hub(text).unwrap_or(text);
        let (repo, revision) = bare.split_once('@').unwrap_or((bare, "main"));
        let repo = repo.parse()?;
        check_revision(revision)?;
        Ok(Self {
            repo,
            revision: revision.to_owned(),
        })
    }
}

/// Refuses revisions that git would refuse, and any that would escape the cache's directory.
pub(super) fn check_revision(revision: &str) -> Result<(), HubError> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "\\~^:?*[@".contains(c);
    let part = |part: &str| part.is_empty() || part.starts_with(['.', '-']) || part.ends_with('.');
    if revision.len() > 200
        || revision.contains(odd)
        || revision.contains("..")
        || revision.split('/').any(part)
    {
        let found = "is not the name of a revision";
        let remedy = "write a branch, a tag or a commit";
        return Err(HubError::malformed(Path::new(revision), found, remedy));
    }
    Ok(())
}

/// True if `revision` is a commit hash, whose meaning never changes.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && is_hex(revision)
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
