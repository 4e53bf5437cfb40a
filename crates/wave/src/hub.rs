//! `wave publish` and `wave pull`.

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use wave_run::context::Context;

/// Settings of a publication.
#[derive(clap::Args, Deserialize, Clone, Debug)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Publish {
    /// Repository: OWNER/NAME
    #[arg(long, value_name = "OWNER/NAME")]
    pub repo: String,
    /// Make the repository private, if it has to be created
    #[arg(long)]
    pub private: bool,
    /// Branch to commit to, created if missing [default: main]
    #[arg(long, value_name = "BRANCH")]
    pub revision: Option<String>,
    /// Open a pull request to main instead of committing; it stays a draft until you publish it
    #[arg(long, conflicts_with = "revision")]
    pub create_pr: bool,
    /// First line of the commit message
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Licence to name in the card, by the hub's identifier: apache-2.0, cc-by-4.0 [default: the licence
    /// of the model that the weights derive from, if its card names one]
    #[arg(long, value_name = "ID")]
    pub license: Option<String>,
}

#[cfg(feature = "hub")]
mod connected {
    use super::*;
    use anyhow::Context as _;
    use serde_json::json;
    use wave_artefacts::model::Model;
    use wave_artefacts::{delta, origin, templates};
    use wave_hub::Kind;
    use wave_hub::hub::{self, HubName, HubSettings, PublishOptions, RepoName};
    use wave_run::locate::{on_hub, with_progress};

    /// Publishes a template or model directory as a single commit. Returns the output of `--json`.
    pub fn publish(
        dir: &Path,
        settings: &Publish,
        dry_run: bool,
        context: &Context,
    ) -> Result<Value> {
        let repo = on_hub(Path::new(&settings.repo)).unwrap_or(&settings.repo);
        let repo: RepoName = repo.parse()?;
        check(dir, context)?;
        let license = settings.license.as_deref();
        let card = wave_hub::read_text(&dir.join("README.md")).context(
            "cannot publish without a card: a README.md that starts with a line `---`, lines such \
             as `license: mit`, and another `---`",
        )?;
        let mut card = origin::published(&card, &repo.to_string(), license);
        if dir.join(wave_hub::PICTURE_FILE).is_file() {
            card = origin::illustrated(&card);
        }
        let options = PublishOptions {
            private: settings.private,
            revision: settings.revision.clone(),
            create_pr: settings.create_pr,
            dry_run,
            message: settings.message.clone(),
            card,
        };
        let hub = HubSettings::from_env()?;
        let done = with_progress(|progress| hub::publish(&hub, dir, &repo, &options, progress))?;
        let files = done.files.iter();
        let files = files.map(|f| json!({ "path": f.path, "bytes": f.bytes, "sha256": f.sha256 }));
        let mut result = json!({
            "repo": repo.to_string(),
            "commit": done.commit,
            "url": done.url,
            "files": files.collect::<Value>(),
            "left_out": done.left_out,
        });
        if dry_run {
            result["card"] = json!(options.card);
        }
        Ok(result)
    }

    /// Reads an artefact as a user's program would, so that only valid ones are published.
    fn check(dir: &Path, context: &Context) -> Result<()> {
        match wave_hub::directory_kind(dir)? {
            Kind::Templates => drop(templates::read(dir)?),
            Kind::Delta => drop(delta::fetch(dir, context)?),
            Kind::Model => drop(Model::read(dir, context)?),
            // This layout also holds networks for other inputs than images.
            Kind::Transformers => drop(wave_hub::read_transformers(dir)?),
        }
        Ok(())
    }

    /// Downloads an artefact, to `out` if given, else to the cache. Returns the output of `--json`.
    pub fn pull(name: &str, out: Option<&Path>) -> Result<Value> {
        let name: HubName = name.parse()?;
        let settings = HubSettings::from_env()?;
        let pulled = with_progress(|progress| hub::pull(&settings, &name, progress))?;
        let dir = match out {
            Some(out) => {
                wave_run::lock::check_idle(out)?;
                wave_hub::prepare_out(out)?;
                hub::checkout(&pulled.dir, out)?;
                out
            }
            None => &pulled.dir,
        };
        let out = wave_run::paths::text(dir);
        Ok(json!({ "out": out, "commit": pulled.commit, "left_out": pulled.skipped }))
    }
}

#[cfg(not(feature = "hub"))]
mod connected {
    use super::*;
    use wave_run::locate::absent;

    /// Always fails: this build has no hub.
    pub fn publish(_: &Path, _: &Publish, _: bool, _: &Context) -> Result<Value> {
        Err(absent())
    }

    /// Always fails: this build has no hub.
    pub fn pull(_: &str, _: Option<&Path>) -> Result<Value> {
        Err(absent())
    }
}

pub use connected::{publish, pull};
