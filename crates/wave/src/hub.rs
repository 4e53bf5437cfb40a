//! Names on a hub (`hf:OWNER/NAME[@REV]`), `wave publish` and `wave pull`.

#[cfg(feature = "hub")]
use crate::ranks;
use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The `config.json` of a directory or a hub's name; null where none can be read: what is wrong with a
/// directory is told by those who read it.
///
/// # Errors
/// If it is a hub's name that cannot be fetched.
pub fn config(path: &Path) -> Result<Value> {
    let file = locate(path)?.join("config.json");
    Ok(wave_hub::read_json(&file).unwrap_or(Value::Null))
}

/// How to publish.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Publish {
    /// The repository: OWNER/NAME
    #[arg(long, value_name = "OWNER/NAME")]
    pub repo: String,
    /// Hide the repository from others, if it has to be created
    #[arg(long)]
    pub private: bool,
    /// Commit to this branch, created if it is not there [default: main]
    #[arg(long, value_name = "BRANCH")]
    pub revision: Option<String>,
    /// Propose the commit as a pull request
    #[arg(long)]
    pub create_pr: bool,
    /// The commit's first line
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
}

#[cfg(feature = "hub")]
mod connected {
    use super::*;
    use crate::terminal::tell;
    use serde_json::json;
    use wave_hub::hub::{self, HubName, HubSettings, Progress, PublishOptions, RepoName};

    /// A local path as it is; a name on a hub as the directory that holds it, downloaded if it is
    /// not cached.
    pub fn locate(path: &Path) -> Result<PathBuf> {
        match path.to_str().filter(|name| name.starts_with("hf:")) {
            None => Ok(path.to_path_buf()),
            // Ranks that share a cache download once.
            Some(name) => ranks::first_then_others(|| {
                Ok(hub::resolve(&HubSettings::from_env()?, name, &mut say)?)
            }),
        }
    }

    /// Publishes a template or model directory as one commit. Returns what `--json` prints.
    pub fn publish(dir: &Path, settings: &Publish, dry_run: bool) -> Result<Value> {
        let repo: RepoName = settings.repo.parse()?;
        let options = PublishOptions {
            private: settings.private,
            revision: settings.revision.clone(),
            create_pr: settings.create_pr,
            dry_run,
            message: settings.message.clone(),
            card: None,
        };
        let done = hub::publish(&HubSettings::from_env()?, dir, &repo, &options, &mut say)?;
        let files: Vec<Value> = done
            .plan
            .files
            .iter()
            .map(|f| json!({ "path": f.path, "bytes": f.bytes, "sha256": f.sha256 }))
            .collect();
        Ok(json!({
            "repo": settings.repo,
            "commit": done.commit,
            "url": done.url,
            "files": files,
            "left_out": done.plan.left_out,
        }))
    }

    /// Downloads an artefact, to `out` if given, else into the cache. Returns what `--json`
    /// prints.
    pub fn pull(name: &str, out: Option<&Path>) -> Result<Value> {
        let full = match name.strip_prefix("hf:") {
            Some(_) => name.to_string(),
            None => format!("hf:{name}"),
        };
        let name: HubName = full.parse()?;
        let pulled = hub::pull(&HubSettings::from_env()?, &name, &mut say)?;
        let dir = match out {
            Some(out) => {
                crate::lock::check_idle(out)?;
                wave_hub::prepare_out(out)?;
                hub::checkout(&pulled.dir, out)?;
                out
            }
            None => &pulled.dir,
        };
        Ok(
            json!({ "out": crate::paths::text(dir), "commit": pulled.commit, "left_out": pulled.skipped }),
        )
    }

    /// A line for each file that has been transferred.
    fn say(progress: Progress) {
        if progress.done >= progress.total {
            tell(&format!("{}: {} bytes", progress.file, progress.total));
        }
    }
}

#[cfg(not(feature = "hub"))]
mod connected {
    use super::*;
    use crate::error::request;

    fn absent() -> anyhow::Error {
        request("this build has no hub: build it with the feature `hub`")
    }

    /// A local path as it is.
    pub fn locate(path: &Path) -> Result<PathBuf> {
        match path.to_str().is_some_and(|name| name.starts_with("hf:")) {
            true => Err(absent()),
            false => Ok(path.to_path_buf()),
        }
    }

    /// Refuses.
    pub fn publish(_: &Path, _: &Publish, _: bool) -> Result<Value> {
        Err(absent())
    }

    /// Refuses.
    pub fn pull(_: &str, _: Option<&Path>) -> Result<Value> {
        Err(absent())
    }
}

pub use connected::{locate, publish, pull};
