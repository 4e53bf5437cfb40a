//! `OUT/run/`: what belongs to a run beside its artefact.
//!
//! - `lock`, locked while a process works there;
//! - `recipe.toml`, the resolved settings;
//! - `log.jsonl`, `log.csv` and TensorBoard's events, with an entry for each logged step and each
//!   evaluation;
//! - `loss.svg`, `accuracy.svg`;
//! - checkpoints, while the run is not complete;
//! - `result.json`, when it is.

use crate::checkpoint::{Best, Checkpoints};
use crate::error::request;
use crate::log::{self, Log};
use crate::plot;
use crate::ranks;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs::{self, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use wave_train::{State, Variable};

/// The open `run/` of an output directory. Of several ranks the first has it open; on the others
/// nothing is written.
pub struct RunDir {
    dir: PathBuf,
    open: Option<Open>,
}

/// What the first rank holds.
struct Open {
    log: Log,
    checkpoints: Checkpoints,
    /// Held for as long as this lives.
    _lock: fs::File,
}

/// What [`RunDir::open`] found.
pub enum Opened {
    /// A run to begin or to continue.
    Run(RunDir),
    /// With `--resume`: a complete run with these settings, and its result (null but on the first
    /// rank).
    Complete(Value),
}

impl RunDir {
    /// Opens `out/run/`. With `resume`, an earlier run with the same settings goes on, or is
    /// found complete; without, its traces are removed.
    ///
    /// # Errors
    /// If `out` is not writable, another process works there, or `resume` meets other settings.
    pub fn open(out: &Path, settings: &toml::Table, resume: bool) -> Result<Opened> {
        let opened = match ranks::is_first() {
            true => Self::open_here(out, settings, resume)?,
            false => Opened::Run(RunDir {
                dir: out.join("run"),
                open: None,
            }),
        };
        let complete = ranks::ranks().any(matches!(opened, Opened::Complete(_)));
        Ok(match (opened, complete) {
            (Opened::Run(_), true) => Opened::Complete(Value::Null),
            (opened, _) => opened,
        })
    }

    fn open_here(out: &Path, settings: &toml::Table, resume: bool) -> Result<Opened> {
        let lock = lock(out)?;
        let dir = out.join("run");
        let mut checkpoints = Checkpoints::new(&dir);
        let recipe = toml::to_string(settings).context("settings as TOML")?;
        let recipe_path = dir.join("recipe.toml");
        if resume {
            match fs::read_to_string(&recipe_path) {
                Ok(found) if found == recipe => {
                    if let Ok(text) = fs::read_to_string(dir.join("result.json"))
                        && let Ok(result) = serde_json::from_str(&text)
                    {
                        return Ok(Opened::Complete(result));
                    }
                }
                Ok(found) => {
                    return Err(request(format!(
                        "--resume: {} was started with other settings ({}); repeat those, or \
                         choose another --out",
                        out.display(),
                        first_difference(&found, &recipe)
                    )));
                }
                Err(_) => {}
            }
        } else {
            checkpoints.remove()?;
            match fs::remove_file(dir.join("result.json")) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(e).with_context(|| format!("cannot remove result.json in {dir:?}"));
                }
                _ => {}
            }
        }
        wave_hub::write_atomic(&recipe_path, recipe.as_bytes())?;
        // What is kept of an earlier log is known when its state is restored.
        let log = Log::open(&dir, resume.then_some(u64::MAX))?;
        let open = Some(Open {
            log,
            checkpoints,
            _lock: lock,
        });
        Ok(Opened::Run(RunDir { dir, open }))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Adds an entry to the log.
    pub fn log(&mut self, entry: &Value) -> Result<()> {
        match &mut self.open {
            Some(open) => open.log.write(entry),
            None => Ok(()),
        }
    }

    /// Begins to save the state, and says whether it did: not while another is being written, unless
    /// this is to be the `last`, and on the first rank alone.
    ///
    /// # Errors
    /// If this state, with `last`, or an earlier one could not be written.
    pub fn save(&mut self, state: &State, variables: &[Variable], last: bool) -> Result<bool> {
        match &mut self.open {
            Some(open) => {
                open.log.sync()?;
                open.checkpoints.save(state, variables, last)
            }
            None => Ok(true),
        }
    }

    /// Keeps the best values so far.
    pub(crate) fn keep_best(&mut self, best: &Best) -> Result<()> {
        match &mut self.open {
            Some(open) => open.checkpoints.keep_best(best),
            None => Ok(()),
        }
    }

    /// Continues from the saved state, if there is one: restores the variables, and drops the log
    /// entries written after it. With the best values so far, if any were kept. On the first rank
    /// only: the others have all this from it.
    pub(crate) fn restore(
        &mut self,
        variables: &[Variable],
    ) -> Result<Option<(State, Option<Best>)>> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let state = open.checkpoints.restore(variables)?;
        let last = state.as_ref().map_or(0, |state| state.step);
        open.log = Log::open(&self.dir, Some(last))?;
        Ok(state.map(|state| (state, open.checkpoints.best())))
    }

    /// Draws the log, writes the result, and removes the checkpoints: the artefact is complete.
    pub fn complete(&mut self, result: &Value) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let entries = log::read(&self.dir)?;
        let series = |key: &str| -> Vec<(f64, f64)> {
            entries
                .iter()
                .filter_map(|e| Some((e["epoch"].as_f64()?, e[key].as_f64()?)))
                .collect()
        };
        let plots = [
            (
                "loss.svg",
                "Loss",
                vec![("training".to_string(), series("loss"))],
            ),
            (
                "accuracy.svg",
                "Accuracy",
                vec![("test".to_string(), series("top1"))],
            ),
        ];
        for (name, label, lines) in plots {
            if lines.iter().any(|(_, points)| !points.is_empty()) {
                let svg = plot::line_plot(label, "epoch", &label.to_lowercase(), &lines)?;
                wave_hub::write_atomic(&self.dir.join(name), svg.as_bytes())?;
            }
        }
        wave_hub::write_json(&self.dir.join("result.json"), result)?;
        open.checkpoints.remove()
    }
}

/// Makes `out` and locks it against other processes, for as long as the file lives. The system takes
/// the lock away when the process ends, however it ends.
///
/// # Errors
/// If `out` is not writable, or another process has the lock.
pub fn lock(out: &Path) -> Result<fs::File> {
    wave_hub::prepare_out(out)?;
    wave_hub::prepare_out(&out.join("run"))?;
    let path = out.join("run/lock");
    let cannot = || format!("cannot lock {}", path.display());
    let mut file = fs::File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => {}
        // A file system without locks does without.
        Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => return Ok(file),
        Err(TryLockError::Error(e)) => return Err(e).with_context(cannot),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // It may not have come to write its number yet.
            let pid = match file.read_to_string(&mut text) {
                Ok(_) => text.trim().parse::<u32>().ok(),
                Err(_) => None,
            };
            let holder = pid.map_or("another process".into(), |pid| format!("process {pid}"));
            return Err(request(format!(
                "{} is being written by {holder}; wait until it ends, or choose another --out",
                out.display()
            )));
        }
    }
    file.set_len(0).with_context(cannot)?;
    writeln!(file, "{}", std::process::id()).with_context(cannot)?;
    Ok(file)
}

fn first_difference(found: &str, wanted: &str) -> String {
    let mut pairs = found.lines().zip(wanted.lines());
    match pairs.find(|(a, b)| a != b) {
        Some((a, b)) => format!("{a}; now {b}"),
        None => "more or fewer keys".into(),
    }
}

/// A log line of a training step.
pub fn step_entry(progress: &wave_train::Progress, images_per_second: f64) -> Value {
    json!({
        "step": progress.step,
        "epoch": progress.epoch,
        "loss": progress.loss,
        "learning_rate": progress.learning_rate,
        "gradient_norm": progress.gradient_norm,
        "images_per_second": images_per_second.round(),
    })
}
