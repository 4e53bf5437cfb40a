//! Checkpoints of a training: the latest state, the previous one, and the best values.
//!
//! A thread writes them from a copy, so that no step waits for the disk. The previous state is kept until the latest
//! is safely on disk, and is used if the latest has a wrong checksum. A state also records the inputs of its run,
//! which cannot resume with others.

use crate::error::request;
use crate::paths;
use anyhow::{Context, Result, anyhow};
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use wave_hub::{Fault, HubError};
use wave_models::{Weights, refuse};
use wave_train::{Ranks, State, Variable};

const LATEST: &str = "checkpoint.safetensors";
const BEFORE: &str = "checkpoint-before.safetensors";
const BEST: &str = "best.safetensors";

/// Metadata key of the tensors' names and shapes, which the file's checksum does not cover.
const NAMES: &str = "names";

type Metadata = BTreeMap<String, String>;

/// The checkpoints in the directory of a run.
pub struct Checkpoints {
    dir: PathBuf,
    /// Metadata of the run, saved with every state.
    about: Metadata,
    writing: Option<JoinHandle<Result<()>>>,
}

/// The values of the epoch with the best test accuracy.
pub struct Best {
    /// Their accuracy, 0 to 1.
    pub top1: f64,
    /// Values by variable name.
    pub values: Weights,
}

impl Best {
    /// Copies values that training will go on to change.
    pub fn copy(values: &Weights, top1: f64) -> Result<Best> {
        let copy =
            |(name, t): (&String, &Tensor)| Ok((name.clone(), t.copy()?.to_device(&Device::Cpu)?));
        let values = values.iter().map(copy).collect::<Result<_>>()?;
        Ok(Best { top1, values })
    }

    /// Broadcasts the first rank's values to every rank.
    pub fn of_first(
        best: Option<Best>,
        variables: &[Variable],
        ranks: &dyn Ranks,
    ) -> Result<Option<Best>> {
        if ranks.size() == 1 {
            return Ok(best);
        }
        // No accuracy is negative: -1 stands for none.
        let top1 = ranks.of_first(best.as_ref().map_or(-1.0, |best| best.top1));
        if top1 < 0.0 {
            return Ok(None);
        }
        let mut values = Weights::new();
        for v in variables {
            let own = best.as_ref().and_then(|best| best.values.get(&v.name));
            let mut numbers = match own {
                Some(t) => t.flatten_all()?.to_vec1::<f32>()?,
                None => vec![0.0; v.var.elem_count()],
            };
            ranks.broadcast(&mut numbers);
            let t = Tensor::from_vec(numbers, v.var.shape(), &Device::Cpu)?;
            values.insert(v.name.clone(), t);
        }
        Ok(Some(Best { top1, values }))
    }
}

impl Checkpoints {
    /// The checkpoints in `dir`; `about` is saved with every state.
    pub fn new(dir: &Path, about: Metadata) -> Checkpoints {
        Checkpoints {
            dir: dir.to_path_buf(),
            about,
            writing: None,
        }
    }

    /// True if the directory of a run has any state, even a damaged one.
    pub fn exist_in(dir: &Path) -> bool {
        [LATEST, BEFORE].iter().any(|name| dir.join(name).exists())
    }

    /// Reads the latest intact state, if any, to resume from it. The previous state replaces a damaged latest one, so
    /// that the next write keeps it. For the process that holds the lock of the run.
    ///
    /// # Errors
    /// If there are states and all are damaged, or a damaged one cannot be replaced.
    pub fn find(&self) -> Result<Option<Found>> {
        let mut broken: Option<HubError> = None;
        let latest = self.dir.join(LATEST);
        let paths = [latest.clone(), self.dir.join(BEFORE)];
        for path in paths.into_iter().filter(|path| path.exists()) {
            match read_whole(&path) {
                Ok((weights, about)) => {
                    if broken.is_some() {
                        fs::rename(&path, &latest)
                            .with_context(|| format!("cannot replace {}", latest.display()))?;
                    }
                    return Ok(Some(Found {
                        weights,
                        about,
                        broken: broken.map(|error| error.to_string()),
                    }));
                }
                Err(error) => _ = broken.get_or_insert(error),
            }
        }
        match broken {
            None => Ok(None),
            Some(error) => refuse!(
                "{error:#}; no other state is intact; start over with --overwrite (a state without \
                 a checksum is from an earlier version of wave, and only that version can resume \
                 it)"
            ),
        }
    }

    /// Removes all checkpoints.
    pub fn remove(&mut self) -> Result<()> {
        let _ = self.wait(); // its result no longer matters
        for name in [LATEST, BEFORE, BEST] {
            paths::remove(&self.dir.join(name))?;
        }
        Ok(())
    }

    /// Waits for the write in progress.
    fn wait(&mut self) -> Result<()> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(_)) => Err(anyhow!("the thread that writes checkpoints crashed")),
        }
    }

    /// Starts saving a state, unless another is being written; returns true if it did. With `last` it waits, and
    /// always saves the state.
    ///
    /// # Errors
    /// If this state, with `last`, or an earlier one could not be written.
    pub fn save(&mut self, state: &State, variables: &[Variable], last: bool) -> Result<bool> {
        if !last && self.writing.as_ref().is_some_and(|w| !w.is_finished()) {
            return Ok(false);
        }
        self.wait()?;
        let counts = state.counts().into_iter();
        let mut metadata = self.about.clone();
        metadata.extend(counts.map(|(key, n)| (key.to_string(), n.to_string())));
        let weights = state.to_weights(variables)?;
        let (dir, step) = (self.dir.clone(), state.step);
        self.writing = Some(std::thread::spawn(move || {
            write_state(&dir, &weights, metadata, step)
        }));
        if last {
            self.wait()?;
        }
        Ok(true)
    }

    /// Starts to save values for [`Checkpoints::best`], if no earlier write failed.
    pub fn keep_best(&mut self, best: &Best) -> Result<()> {
        self.wait()?;
        let metadata = BTreeMap::from([("top1".to_string(), best.top1.to_string())]);
        let path = self.dir.join(BEST);
        let values = best.values.clone(); // nothing changes them
        self.writing = Some(std::thread::spawn(move || {
            Ok(write_whole(&path, &values, metadata)?)
        }));
        Ok(())
    }

    /// The best values kept so far, if any.
    pub fn best(&self) -> Result<Option<Best>> {
        let path = self.dir.join(BEST);
        if !path.exists() {
            return Ok(None);
        }
        let (values, metadata) = read_whole(&path)
            .map_err(|error| request(format!("{error:#}; start over with --overwrite")))?;
        let top1 = metadata.get("top1").and_then(|v| v.parse().ok());
        Ok(top1.map(|top1| Best { top1, values }))
    }
}

/// The result of [`Checkpoints::find`].
pub struct Found {
    weights: Weights,
    /// Metadata of the run that saved the state.
    pub about: Metadata,
    /// The error in the latest state, if that one is damaged.
    pub broken: Option<String>,
}

impl Found {
    /// Restores the variables, and returns the state.
    pub fn restore(&self, variables: &[Variable]) -> Result<State> {
        let count = |key: &str| self.about.get(key).and_then(|v| v.parse().ok());
        Ok(State::restore(variables, &self.weights, count)?)
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // Wait, so that the last state is complete even if training failed.
        let _ = self.wait();
    }
}

fn write_state(dir: &Path, weights: &Weights, metadata: Metadata, step: u64) -> Result<()> {
    let (latest, before) = (dir.join(LATEST), dir.join(BEFORE));
    if latest.exists() {
        let _ = fs::remove_file(&before);
        // A hard link; on a file system without links, the previous state is not kept.
        let _ = fs::hard_link(&latest, &before);
    }
    write_whole(&latest, weights, metadata).with_context(|| match latest.exists() {
        true => "the previous state is kept; continue from it with --resume".to_owned(),
        false => format!("step {step} is lost: no state was saved"),
    })
}

/// Writes tensors with a checksum of the whole file.
fn write_whole(path: &Path, weights: &Weights, mut metadata: Metadata) -> Result<(), HubError> {
    metadata.insert(NAMES.into(), names_digest(weights));
    wave_hub::write_table(path, weights, &metadata)
}

/// Reads the output of [`write_whole`] and checks it.
fn read_whole(path: &Path) -> Result<(Weights, Metadata), HubError> {
    let (weights, mut metadata) = wave_hub::read_table(path)?;
    match metadata.remove(NAMES) {
        Some(digest) if digest == names_digest(&weights) => Ok((weights, metadata)),
        _ => {
            let found = "its tensors differ from the ones that were written";
            let fault = Fault::new(path, found, "the file is damaged");
            Err(HubError::Malformed(fault))
        }
    }
}

fn names_digest(weights: &Weights) -> String {
    let line = |(name, t): (&String, &Tensor)| format!("{name} {:?} {:?}\n", t.dtype(), t.dims());
    let all = weights.iter().map(line);
    wave_hub::sha256_hex(all.collect::<String>().as_bytes())
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
