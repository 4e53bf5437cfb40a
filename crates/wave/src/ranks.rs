//! The processes of a run: one, or as many as `mpirun` or `srun` started, in builds with the feature
//! `mpi`.
//!
//! Every rank reads the same settings and files and goes through the same stages. In training each
//! makes its share of every batch, and of the ancestor's outputs, and tests its share of the test
//! images (`wave_train::Ranks`). What must happen once, such as writing, happens on the first rank
//! while the others wait: [`on_first`]. A rank that fails says so and ends all of them: [`World::fail`].

use crate::error::request;
use crate::train::INTERRUPTED;
use anyhow::Result;
use candle_core::Tensor;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wave_models::Weights;
use wave_train::{Alone, Ranks};

#[cfg(feature = "mpi")]
mod mpi;

static RANKS: OnceLock<Box<dyn Ranks + Send>> = OnceLock::new();

/// What a rank other than the first waits before it tells why it failed. Most failures are those of
/// all ranks; the first one has then ended the others, and the user reads the reason once.
const AFTER_THE_FIRST: Duration = Duration::from_millis(500);

/// This run's processes, as this one sees them.
pub fn ranks() -> &'static dyn Ranks {
    match RANKS.get() {
        Some(ranks) => &**ranks,
        None => &Alone,
    }
}

/// Whether this process is the one that writes and prints.
pub fn is_first() -> bool {
    ranks().rank() == 0
}

/// Does what happens once, on the first rank; the others wait until it is done.
///
/// # Errors
/// On the first rank, those of the work: its failure ends the others.
pub fn on_first(work: impl FnOnce() -> Result<()>) -> Result<()> {
    if is_first() {
        work()?;
    }
    ranks().wait();
    Ok(())
}

/// Does the work on the first rank, and then on the others: for what the first one leaves behind for
/// them, such as a download.
///
/// # Errors
/// Those of the work.
pub fn first_then_others<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    let done = is_first().then(&work).transpose()?;
    ranks().wait();
    done.map_or_else(work, Ok)
}

/// The means of weights over the ranks.
///
/// # Errors
/// Those of copying.
pub fn mean(weights: Weights) -> candle_core::Result<Weights> {
    if ranks().size() == 1 {
        return Ok(weights);
    }
    let own: Vec<&Tensor> = weights.values().collect();
    let sums = wave_train::sum_over(ranks(), &own)?;
    let names = weights.keys().cloned();
    names
        .zip(sums)
        .map(|(name, sum)| Ok((name, (sum / ranks().size() as f64)?)))
        .collect()
}

/// Whether any rank was interrupted, which all then are.
pub fn interrupted() -> bool {
    let stop = ranks().any(INTERRUPTED.load(Ordering::Relaxed));
    INTERRUPTED.fetch_or(stop, Ordering::Relaxed);
    stop
}

/// The connection between the ranks, for as long as the process lives.
pub struct World {
    #[cfg(feature = "mpi")]
    mpi: Option<mpi::Connection>,
}

impl World {
    /// Joins the other processes, if a launcher started several.
    ///
    /// # Errors
    /// If it did, and this build cannot join them.
    pub fn join() -> Result<World> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
        if number("WORLD_SIZE") > Some(1) && number("LOCAL_RANK").is_some() && !by_mpi() {
            return Err(request(format!(
                "torchrun started {} processes; wave's talk over MPI: start them with mpirun or srun",
                number("WORLD_SIZE").unwrap_or_default()
            )));
        }
        Self::of_launcher()
    }

    #[cfg(feature = "mpi")]
    fn of_launcher() -> Result<World> {
        let mpi = by_mpi().then(mpi::Connection::open).transpose()?;
        if let Some(mpi) = &mpi {
            // Nothing else sets it.
            let _ = RANKS.set(Box::new(mpi.ranks()));
        }
        Ok(World { mpi })
    }

    #[cfg(not(feature = "mpi"))]
    fn of_launcher() -> Result<World> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
        let started = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"].map(number);
        match started.into_iter().flatten().max() {
            Some(n @ 2..) => Err(request(format!(
                "{n} processes were started, and this build trains in one; build wave with \
                 --features mpi, or start it without mpirun"
            ))),
            _ => Ok(World {}),
        }
    }

    /// The number of this process among those of its machine, counted from 0: that of its GPU.
    pub fn local_rank(&self) -> usize {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return mpi.local_rank();
        }
        0
    }

    /// Ends this process when all others have ended as well.
    pub fn leave(self) -> ExitCode {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = self.mpi {
            mpi.close();
        }
        ExitCode::SUCCESS
    }

    /// Prints why this process failed, and ends it and all others.
    pub fn fail(&self, error: &anyhow::Error) -> ExitCode {
        let code = crate::error::exit_code(error);
        let ranks = ranks();
        if ranks.size() == 1 {
            eprintln!("wave: {error:#}");
            return ExitCode::from(code);
        }
        if !is_first() {
            std::thread::sleep(AFTER_THE_FIRST);
        }
        eprintln!("wave: rank {} of {}: {error:#}", ranks.rank(), ranks.size());
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            mpi.abort(code);
        }
        ExitCode::from(code)
    }
}

/// Whether a launcher of MPI programs started this process.
fn by_mpi() -> bool {
    // Open MPI's mpirun; srun --mpi=pmix; srun --mpi=pmi2 and MPICH's mpirun.
    ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}
