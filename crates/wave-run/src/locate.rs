//! Names of artefacts: a local path, or a name on a hub (`hf:OWNER/NAME[@REV]`, in timm's spelling `hf-hub:`).

use crate::context::Context;
#[cfg(feature = "hub")]
use crate::progress::Transfers;
use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
#[cfg(feature = "hub")]
use std::sync::Arc;
#[cfg(feature = "hub")]
use wave_hub::HubError;
#[cfg(feature = "hub")]
use wave_hub::hub::{self, HubSettings, OnProgress};

/// The `config.json` of a directory or of a name on a hub; null if it cannot be read, since readers of the directory
/// report the error.
pub fn config(path: &Path, context: &Context) -> Result<Value> {
    let file = locate(path, context)?.join("config.json");
    Ok(wave_hub::read_json(&file).unwrap_or(Value::Null))
}

/// The rest of a name on a hub, `OWNER/NAME[@REV]`; `None` for a local path.
pub fn on_hub(path: &Path) -> Option<&str> {
    wave_hub::on_hub(path.to_str()?)
}

/// The repository of a name on a hub, `OWNER/NAME`; `None` for a local path.
pub fn repository(path: &Path) -> Option<String> {
    let name = on_hub(path)?;
    Some(name.split('@').next().unwrap_or(name).to_owned())
}

/// A local path unchanged; for a name on a hub its directory, downloaded unless cached.
pub fn locate(path: &Path, context: &Context) -> Result<PathBuf> {
    match on_hub(path) {
        None => Ok(path.to_path_buf()),
        // Ranks that share a cache download once.
        Some(name) => context.first_then_others(|| fetched(name)),
    }
}

/// As [`locate`], without downloading: `None` for a name on a hub that is not cached.
pub fn at_hand(path: &Path) -> Result<Option<PathBuf>> {
    match on_hub(path) {
        None => Ok(Some(path.to_path_buf())),
        Some(name) => cached(name),
    }
}

#[cfg(feature = "hub")]
fn fetched(name: &str) -> Result<PathBuf> {
    let (settings, name) = (HubSettings::from_env()?, name.parse()?);
    Ok(with_progress(|progress| hub::pull(&settings, &name, progress))?.dir)
}

#[cfg(feature = "hub")]
fn cached(name: &str) -> Result<Option<PathBuf>> {
    let settings = HubSettings {
        offline: true,
        ..HubSettings::from_env()?
    };
    let nothing: OnProgress = Arc::new(|_| ());
    match hub::pull(&settings, &name.parse()?, &nothing) {
        Ok(pulled) => Ok(Some(pulled.dir)),
        Err(HubError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Runs `work`, which transfers files, and shows its progress.
#[cfg(feature = "hub")]
pub fn with_progress<T>(work: impl FnOnce(&OnProgress) -> T) -> T {
    let shown = Arc::new(Transfers::default());
    let told = shown.clone();
    let progress: OnProgress = Arc::new(move |at: &hub::FileProgress| {
        told.step(&at.filename, at.bytes_completed, at.total_bytes);
    });
    let done = work(&progress);
    shown.finish();
    done
}

#[cfg(not(feature = "hub"))]
fn fetched(_: &str) -> Result<PathBuf> {
    Err(absent())
}

#[cfg(not(feature = "hub"))]
fn cached(_: &str) -> Result<Option<PathBuf>> {
    Err(absent())
}

/// The error for names on a hub.
#[cfg(not(feature = "hub"))]
pub fn absent() -> anyhow::Error {
    crate::error::request("this build has no hub support: build it with `--features hub`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_on_a_hub_has_one_prefix() {
        let name = |text: &'static str| on_hub(Path::new(text));
        assert_eq!(name("hf:o/n@v1"), Some("o/n@v1"));
        assert_eq!(name("hf-hub:o/n"), Some("o/n"));
        assert_eq!(name("hf:hf:o/n"), None);
        assert_eq!(repository(Path::new("hf:o/n@v1")), Some("o/n".to_owned()));
    }
}
