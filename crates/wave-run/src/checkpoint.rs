//! What of a training is on disk while it runs: its latest state, the one before, the best values.
//!
//! They are written by a thread of their own, from a copy, so that no step waits for the disk. The
//! latest state is replaced when the new one is safely there; the one before stands in for it if it
//! is damaged, as a checksum over everything in the file tells. A state also says what the run reads,
//! so that it does not go on with something else.

use crate::error::request;
use crate::ranks::ranks;
use anyhow::{Context, Result, anyhow};
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use wave_hub::HubError;
use wave_models::Weights;
use wave_train::{State, Variable};

const LATEST: &str = "checkpoint.safetensors";
const BEFORE: &str = "checkpoint-before.safetensors";
const BEST: &str = "best.safetensors";

/// The metadata's key of the tensors' names and shapes, which the file's checksum leaves out.
const NAMES: &str = "names";

type Metadata = BTreeMap<String, String>;

/// The checkpoints in a run's directory.
pub struct Checkpoints {
    dir: PathBuf,
    /// What every state says of the run, beside itself.
    about: Metadata,
    writing: Option<JoinHandle<Result<()>>>,
    /// The state to go on from.
    found: Option<(Weights, Metadata)>,
}

/// Values that tested better than those of other epochs.
pub struct Best {
    /// Their accuracy, 0 to 1.
    pub top1: f64,
    /// By the variables' names.
    pub values: Weights,
}

impl Best {
    /// A copy of values, which training goes on to change.
    pub fn copy(values: &Weights, top1: f64) -> Result<Best> {
        let copy =
            |(name, t): (&String, &Tensor)| Ok((name.clone(), t.copy()?.to_device(&Device::Cpu)?));
        let values = values.iter().map(copy).collect::<Result<_>>()?;
        Ok(Best { top1, values })
    }

    /// The first rank's on every rank.
    pub fn of_first(best: Option<Best>, variables: &[Variable]) -> Result<Option<Best>> {
        let ranks = ranks();
        if ranks.size() == 1 {
            return Ok(best);
        }
        // No accuracy is below 0.
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
    /// Those in `dir`, of a run of which `about` is to be known.
    pub fn new(dir: &Path, about: Metadata) -> Checkpoints {
        Checkpoints {
            dir: dir.to_path_buf(),
            about,
            writing: None,
            found: None,
        }
    }

    /// Whether there is a state, or what is left of one.
    pub fn exist(&self) -> bool {
        [LATEST, BEFORE]
            .iter()
            .any(|name| self.dir.join(name).exists())
    }

    /// Reads the latest state that is whole, if there is one, to go on from it. Returns what it says of
    /// its run, its step, and what is wrong with a later one.
    ///
    /// # Errors
    /// If there are states and none is whole.
    pub fn find(&mut self) -> Result<Option<Found>> {
        let mut broken: Option<HubError> = None;
        for path in [LATEST, BEFORE].map(|name| self.dir.join(name)) {
            if !path.exists() {
                continue;
            }
            match read_whole(&path) {
                Ok((weights, metadata)) => {
                    let found = Found {
                        about: metadata.clone(),
                        broken: broken.map(|error| error.to_string()),
                    };
                    self.found = Some((weights, metadata));
                    return Ok(Some(found));
                }
                Err(error) => {
                    broken.get_or_insert(error);
                }
            }
        }
        match broken {
            None => Ok(None),
            Some(error) => Err(request(format!(
                "{error:#}. No other state is whole; start over with --overwrite (a state that an \
                 earlier version of wave saved, without a checksum, goes on in that version alone)"
            ))),
        }
    }

    /// Removes them all.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn remove(&mut self) -> Result<()> {
        if let Some(writing) = self.writing.take() {
            let _ = writing.join(); // whatever became of it
        }
        for name in [LATEST, BEFORE, BEST] {
            match fs::remove_file(self.dir.join(name)) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(e)
                        .with_context(|| format!("cannot remove {name} in {:?}", self.dir));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for what is being written.
    ///
    /// # Errors
    /// If that failed.
    fn wait(&mut self) -> Result<()> {
        match self.writing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(_)) => Err(anyhow!("the thread that writes checkpoints broke off")),
        }
    }

    /// Begins to save a state, and says whether it did: not while another is being written. With
    /// `last` it is saved when this returns, in any case.
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

    /// The state that was found, if one was: restores the variables.
    ///
    /// # Errors
    /// If it belongs to another run.
    pub fn restore(&mut self, variables: &[Variable]) -> Result<Option<State>> {
        let Some((weights, metadata)) = self.found.take() else {
            return Ok(None);
        };
        let count = |key: &str| metadata.get(key).and_then(|v| v.parse().ok());
        Ok(Some(State::restore(variables, &weights, count)?))
    }

    /// Keeps values for [`Checkpoints::best`].
    ///
    /// # Errors
    /// If they, or what was written before, could not be written.
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

    /// The best values kept so far, if there are any.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn best(&self) -> Result<Option<Best>> {
        let path = self.dir.join(BEST);
        if !path.exists() {
            return Ok(None);
        }
        let (values, metadata) = read_whole(&path)
            .map_err(|error| request(format!("{error:#}. Start over with --overwrite")))?;
        let top1 = metadata.get("top1").and_then(|v| v.parse().ok());
        Ok(top1.map(|top1| Best { top1, values }))
    }
}

/// What [`Checkpoints::find`] found.
pub struct Found {
    /// What the state says of its run.
    pub about: Metadata,
    /// What is wrong with the state after it, if there is one.
    pub broken: Option<String>,
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // Where training broke off, the last state is to be complete.
        let _ = self.wait();
    }
}

fn write_state(dir: &Path, weights: &Weights, metadata: Metadata, step: u64) -> Result<()> {
    let (latest, before) = (dir.join(LATEST), dir.join(BEFORE));
    if latest.exists() {
        let _ = fs::remove_file(&before);
        // A second name for it; a file system without those does without the state before.
        let _ = fs::hard_link(&latest, &before);
    }
    write_whole(&latest, weights, metadata).with_context(|| match latest.exists() {
        true => "the state before is kept; continue from it with --resume".to_owned(),
        false => format!("step {step} is lost: no state was saved"),
    })
}

/// Writes tensors under a checksum of all that is in the file.
fn write_whole(path: &Path, weights: &Weights, mut metadata: Metadata) -> Result<(), HubError> {
    metadata.insert(NAMES.into(), names_digest(weights));
    wave_hub::write_table(path, weights, &metadata)
}

/// Reads what [`write_whole`] wrote, if it is as it was written.
fn read_whole(path: &Path) -> Result<(Weights, Metadata), HubError> {
    let (weights, mut metadata) = wave_hub::read_table(path)?;
    match metadata.remove(NAMES) {
        Some(digest) if digest == names_digest(&weights) => Ok((weights, metadata)),
        _ => Err(HubError::Malformed {
            path: path.into(),
            found: "its tensors are not those that were written".into(),
            remedy: "the file is damaged".into(),
        }),
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
