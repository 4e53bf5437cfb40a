//! The output directory of a run: the one given, or a new one under `runs`.

use crate::context::Context;
use crate::paths;
use crate::run_dir::Options;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use wave_models::refuse;

/// Works in `out`, or in a new directory named after `name` and the time. Refuses to resume a run without `out`.
pub fn work_in<T>(
    out: Option<&Path>,
    name: &str,
    options: &Options,
    work: impl FnOnce(&Path, &Options) -> Result<T>,
) -> Result<T> {
    match out {
        Some(out) => work(out, options),
        None if options.resume => refuse!("--resume needs the --out of the run to continue"),
        None => {
            let new = create(name, &options.context)?;
            let done = work(&new, options);
            if options.context.is_first() {
                let _ = std::fs::remove_dir(&new); // only an empty one
            }
            done
        }
    }
}

/// Checks that a directory of this name can be made.
pub fn check(out: &Path) -> Result<()> {
    let taken = |part: &&Path| part.symlink_metadata().is_ok() && !part.is_dir();
    let Some(file) = out.ancestors().find(taken) else {
        return Ok(());
    };
    let kind = match file.is_file() {
        true => "a file",
        false => "no directory",
    };
    let (out, file) = (out.display(), file.display());
    refuse!("--out {out}: {file} is {kind}; choose another directory")
}

/// Creates a new directory `runs/NAME-DATE-TIME`, which the first rank chooses for all.
fn create(name: &str, context: &Context) -> Result<PathBuf> {
    let of_first = |n: u64| context.ranks().of_first(n as f64) as u64;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let time = paths::date_and_time(of_first(since.map_or(0, |d| d.as_secs())));
    let path = Path::new("runs").join(format!("{name}-{time}"));
    let number = match context.is_first() {
        true => paths::create_unused(&path)?,
        false => 0,
    };
    Ok(paths::numbered(&path, of_first(number)))
}
