//! Names of artefacts: a local path, or a name on a hub (`hf:OWNER/NAME[@REV]`, in timm's spelling `hf-hub:`).

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

/// How names on a hub begin: here, and in timm.
const PREFIXES: [&str; 2] = ["hf:", "hf-hub:"];

/// The rest of a hub's name, `OWNER/NAME[@REV]`; `None` for a local path.
pub fn on_hub(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix))
}

/// The repository of a hub's name, `OWNER/NAME`; `None` for a local path.
pub fn repository(path: &Path) -> Option<String> {
    let name = on_hub(path)?;
    Some(name.split('@').next().unwrap_or(name).to_owned())
}

#[cfg(feature = "hub")]
mod connected {
    use super::*;
    use crate::terminal::tell;
    use wave_hub::HubError;
    use wave_hub::hub::{self, HubSettings, Progress};

    /// A local path as it is; a name on a hub as the directory that holds it, downloaded if it is
    /// not cached.
    pub fn locate(path: &Path) -> Result<PathBuf> {
        match on_hub(path) {
            None => Ok(path.to_path_buf()),
            // Ranks that share a cache download once.
            Some(name) => ranks::first_then_others(|| {
                Ok(hub::resolve(&HubSettings::from_env()?, name, &mut say)?)
            }),
        }
    }

    /// As [`locate`], without downloading: nothing of a name on a hub that is not cached.
    pub fn at_hand(path: &Path) -> Result<Option<PathBuf>> {
        let Some(name) = on_hub(path) else {
            return Ok(Some(path.to_path_buf()));
        };
        let settings = HubSettings {
            offline: true,
            ..HubSettings::from_env()?
        };
        match hub::resolve(&settings, name, &mut say) {
            Ok(dir) => Ok(Some(dir)),
            Err(HubError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A line for each file that has been transferred.
    pub fn say(progress: Progress) {
        if progress.done >= progress.total {
            tell(&format!("{}: {} bytes", progress.file, progress.total));
        }
    }
}

#[cfg(not(feature = "hub"))]
mod connected {
    use super::*;
    use crate::error::request;

    pub fn absent() -> anyhow::Error {
        request("this build has no hub: build it with the feature `hub`")
    }

    /// A local path as it is.
    pub fn locate(path: &Path) -> Result<PathBuf> {
        match on_hub(path).is_some() {
            true => Err(absent()),
            false => Ok(path.to_path_buf()),
        }
    }

    /// A local path as it is.
    pub fn at_hand(path: &Path) -> Result<Option<PathBuf>> {
        locate(path).map(Some)
    }
}

#[cfg(not(feature = "hub"))]
pub use connected::absent;
#[cfg(feature = "hub")]
pub use connected::say;
pub use connected::{at_hand, locate};
