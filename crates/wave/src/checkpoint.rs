//! What of a training is on disk while it runs: its latest state, the one before, the best values.
//!
//! They are written by a thread of their own, from a copy, so that no step waits for the disk. The
//! latest state is replaced when the new one is safely there; the one before stands in for it if it
//! cannot be read.

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

/// The checkpoints in a run's directory.
pub(crate) struct Checkpoints {
    dir: PathBuf,
    writing: Option<JoinHandle<Result<()>>>,
}

/// Values that tested better than those of other epochs.
pub(crate) struct Best {
    /// Their accuracy, 0 to 1.
    pub(crate) top1: f64,
    /// By the variables' names.
    pub(crate) values: Weights,
}

impl Best {
    /// A copy of values, which training goes on to change.
    pub(crate) fn copy(values: &Weights, top1: f64) -> Result<Best> {
        let copy =
            |(name, t): (&String, &Tensor)| Ok((name.clone(), t.copy()?.to_device(&Device::Cpu)?));
        let values = values.iter().map(copy).collect::<Result<_>>()?;
        Ok(Best { top1, values })
    }

    /// The first rank's on every rank.
    pub(crate) fn of_first(best: Option<Best>, variables: &[Variable]) -> Result<Option<Best>> {
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
    /// Those in `dir`.
    pub(crate) fn new(dir: &Path) -> Checkpoints {
        Checkpoints {
            dir: dir.to_path_buf(),
            writing: None,
        }
    }

    /// Removes them all.
    ///
    /// # Errors
    /// If the system does not let it.
    pub(crate) fn remove(&mut self) -> Result<()> {
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
    pub(crate) fn save(
        &mut self,
        state: &State,
        variables: &[Variable],
        last: bool,
    ) -> Result<bool> {
        if !last && self.writing.as_ref().is_some_and(|w| !w.is_finished()) {
            return Ok(false);
        }
        self.wait()?;
        let counts = state.counts().into_iter();
        let metadata = counts.map(|(key, n)| (key.to_string(), n.to_string()));
        let (metadata, weights) = (metadata.collect(), state.to_weights(variables)?);
        let (dir, step) = (self.dir.clone(), state.step);
        self.writing = Some(std::thread::spawn(move || {
            write_state(&dir, &weights, &metadata, step)
        }));
        if last {
            self.wait()?;
        }
        Ok(true)
    }

    /// The saved state that is to be continued, if there is one: restores the variables.
    ///
    /// # Errors
    /// If there are states and none can be read, or it belongs to another run.
    pub(crate) fn restore(&self, variables: &[Variable]) -> Result<Option<State>> {
        let mut broken: Option<HubError> = None;
        for path in [LATEST, BEFORE].map(|name| self.dir.join(name)) {
            if !path.exists() {
                continue;
            }
            match wave_hub::read_tensors(&path) {
                Ok((weights, metadata)) => {
                    let count = |key: &str| metadata.get(key).and_then(|v| v.parse().ok());
                    let weights: Weights = weights;
                    return Ok(Some(State::restore(variables, &weights, count)?));
                }
                Err(error) => {
                    broken.get_or_insert(error);
                }
            }
        }
        match broken {
            None => Ok(None),
            Some(error) => Err(request(format!("{error:#}; remove it to start over"))),
        }
    }

    /// Keeps values for [`Checkpoints::best`].
    ///
    /// # Errors
    /// If they, or what was written before, could not be written.
    pub(crate) fn keep_best(&mut self, best: &Best) -> Result<()> {
        self.wait()?;
        let metadata = BTreeMap::from([("top1".to_string(), best.top1.to_string())]);
        let path = self.dir.join(BEST);
        let values = best.values.clone(); // nothing changes them
        self.writing = Some(std::thread::spawn(move || {
            Ok(wave_hub::write_tensors(&path, &values, &metadata)?)
        }));
        Ok(())
    }

    /// The best values kept so far, if there are any that can be read.
    pub(crate) fn best(&self) -> Option<Best> {
        let (values, metadata): (Weights, BTreeMap<String, String>) =
            wave_hub::read_tensors(&self.dir.join(BEST)).ok()?;
        let top1 = metadata.get("top1")?.parse().ok()?;
        Some(Best { top1, values })
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // Where training broke off, the last state is to be complete.
        let _ = self.wait();
    }
}

fn write_state(
    dir: &Path,
    weights: &Weights,
    metadata: &BTreeMap<String, String>,
    step: u64,
) -> Result<()> {
    let (latest, before) = (dir.join(LATEST), dir.join(BEFORE));
    if latest.exists() {
        let _ = fs::remove_file(&before);
        // A second name for it; a file system without those does without the state before.
        let _ = fs::hard_link(&latest, &before);
    }
    wave_hub::write_tensors(&latest, weights, metadata).with_context(|| match latest.exists() {
        true => "the state before is kept; continue from it with --resume".to_owned(),
        false => format!("step {step} is lost: no state was saved"),
    })
}
