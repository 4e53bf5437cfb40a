//! The context of a run: its device, its ranks, and its interruption.
//!
//! Artefacts are read and written on the host. Weights move to the device before a network runs
//! ([`Context::place`]) or trains (`train::variable`); images follow the weights, targets the logits.
//!
//! Every rank reads the same settings and files and runs the same stages. Each computes its part of every batch, of
//! the ancestor's outputs and of the test images (`wave_train::Ranks`). Work to be done once, such as writing, is
//! done by the first rank while the others wait: [`Context::on_first`].

use crate::interrupt::Interruption;
use anyhow::Result;
use candle_core::{Device, Tensor};
use std::fmt;
use std::sync::Arc;
use wave_models::{Weights, refuse};
use wave_train::{Alone, Ranks};

/// Everything that the stages of a run share; clones are the same context.
#[derive(Clone)]
pub struct Context {
    device: Device,
    ranks: Arc<dyn Ranks + Send>,
    interruption: Interruption,
}

impl Default for Context {
    /// The CPU, in a single process that nothing interrupts.
    fn default() -> Context {
        Context::new(Device::Cpu, Box::new(Alone), Interruption::default())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        write!(f, "rank {rank} of {size} on {:?}", self.device)
    }
}

impl Context {
    /// Creates a context from its parts.
    pub fn new(
        device: Device,
        ranks: Box<dyn Ranks + Send>,
        interruption: Interruption,
    ) -> Context {
        Context {
            device,
            ranks: ranks.into(),
            interruption,
        }
    }

    /// The device that networks run and train on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The processes of the run.
    pub fn ranks(&self) -> &dyn Ranks {
        &*self.ranks
    }

    /// The interruption of this process alone.
    pub fn interruption(&self) -> &Interruption {
        &self.interruption
    }

    /// Weights on the device.
    pub fn place(&self, weights: &Weights) -> candle_core::Result<Weights> {
        let placed = |(name, t): (&String, &Tensor)| Ok((name.clone(), t.to_device(&self.device)?));
        weights.iter().map(placed).collect()
    }

    /// True on all ranks if any rank was interrupted.
    pub fn interrupted(&self) -> bool {
        let stop = self.ranks().any(self.interruption().requested());
        if stop {
            self.interruption().request();
        }
        stop
    }

    /// True if this process writes and prints.
    pub fn is_first(&self) -> bool {
        self.ranks().rank() == 0
    }

    /// Refuses several ranks for `what`, such as `a population trains`.
    pub fn only_one(&self, what: &str) -> Result<()> {
        match self.ranks().size() {
            1 => Ok(()),
            size => {
                refuse!("{what} in one process, but {size} were started; start it without mpirun")
            }
        }
    }

    /// Does work once, on the first rank, while the others wait. Its failure there ends the others.
    pub fn on_first(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_first() {
            work()?;
        }
        self.ranks().wait();
        Ok(())
    }

    /// Does work on the first rank, then on the others, which reuse its results, such as a download.
    pub fn first_then_others<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let done = self.is_first().then(&work).transpose()?;
        self.ranks().wait();
        done.map_or_else(work, Ok)
    }

    /// Averages weights over the ranks.
    pub fn mean(&self, weights: Weights) -> candle_core::Result<Weights> {
        let ranks = self.ranks();
        if ranks.size() == 1 {
            return Ok(weights);
        }
        let own: Vec<&Tensor> = weights.values().collect();
        let sums = wave_train::sum_over(ranks, &own)?;
        let mean = |(name, sum): (String, Tensor)| Ok((name, (sum / ranks.size() as f64)?));
        weights.into_keys().zip(sums).map(mean).collect()
    }
}
