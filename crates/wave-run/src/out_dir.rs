//! The output directory of a run: the one given, or a new one under `runs`.

use crate::context::Context;
use crate::error::request;
use crate::paths;
use crate::run_dir::Options;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Works in `out`, or in a new directory named after `name` and the time.
///
/// # Errors
/// If a run shall continue and `out` is not given, or the new directory cannot be made; and those of the work.
pub fn work_in<T>(
    out: Option<&Path>,
    name: &str,
    options: &Options,
    work: impl FnOnce(&Path, &Options) -> Result<T>,
) -> Result<T> {
    match out {
        Some(out) => work(out, options),
        None if options.resume => Err(request("--resume needs the --out of the run to continue")),
        None => {
            let unused = Unused::create(name, &options.context)?;
            work(&unused.path, options)
        }
    }
}

/// A directory created for output, which is removed if it stays empty.
struct Unused {
    path: PathBuf,
    /// True on the rank that created it.
    own: bool,
}

impl Unused {
    fn create(name: &str, context: &Context) -> Result<Unused> {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        let (own, parent) = (context.is_first(), Path::new("runs"));
        let number = match own {
            true => paths::create_unused(parent, name, seconds)?,
            false => 0,
        };
        // The first rank chooses for all.
        let [seconds, number] =
            [seconds, number].map(|n| context.ranks().of_first(n as f64) as u64);
        let path = paths::numbered(parent, name, seconds, number);
        Ok(Unused { path, own })
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if self.own {
            let _ = std::fs::remove_dir(&self.path); // only an empty one
        }
    }
}
