//! The processes of a run: one, or several that `mpirun` or `srun` started, in builds with the feature
//! `mpi`.
//!
//! A rank that fails reports it and ends all others: [`World::fail`].

use crate::error::{describe, exit_code};
use crate::interrupt::Interruption;
use crate::terminal::tell;
use anyhow::Result;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wave_models::refuse;
use wave_train::{Alone, Ranks};

#[cfg(feature = "mpi")]
mod mpi;

/// Time that other ranks wait before they report an error. Most errors occur on all ranks; the first
/// then ends the others, and the user reads the reason once. mpirun kills the others a second after
/// that.
const AFTER_THE_FIRST: Duration = Duration::from_secs(3);

/// The connection to the other processes, for the lifetime of this one.
#[derive(Default)]
pub struct World {
    #[cfg(feature = "mpi")]
    mpi: Option<mpi::Connection>,
}

impl World {
    /// Joins the other processes, if a launcher started several. Fails in a build that cannot join them.
    pub fn join() -> Result<World> {
        match started(|name| std::env::var(name).ok())? {
            None => Ok(World::default()),
            #[cfg(feature = "mpi")]
            Some(_) => Ok(World {
                mpi: Some(mpi::Connection::open()?),
            }),
            #[cfg(not(feature = "mpi"))]
            Some(..2) => Ok(World::default()),
            #[cfg(not(feature = "mpi"))]
            Some(size) => refuse!(
                "{size} processes were started, but this build trains in one; build wave with \
                 --features mpi, or start it without mpirun"
            ),
        }
    }

    /// Number of this process on its machine, counted from 0, and of its GPU.
    pub fn local_rank(&self) -> usize {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return mpi.local_rank();
        }
        0
    }

    /// The ranks that MPI started, or this process alone.
    pub fn ranks(&self) -> Box<dyn Ranks + Send> {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return Box::new(mpi.ranks());
        }
        Box::new(Alone)
    }

    /// Ends this process once all others have ended.
    pub fn leave(self) -> ExitCode {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = self.mpi {
            mpi.close();
        }
        ExitCode::SUCCESS
    }

    /// Reports why this process failed, and ends it and all others.
    pub fn fail(&self, error: &anyhow::Error, interruption: &Interruption) -> ExitCode {
        let (code, text) = (exit_code(error), describe(error));
        let ranks = self.ranks();
        match (ranks.rank(), ranks.size()) {
            (_, 1) => tell(&format!("wave: {text}")),
            (1.., _) if told_by_the_first(interruption) => return ExitCode::from(code),
            (rank, size) => tell(&format!("wave: rank {rank} of {size}: {text}")),
        }
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            mpi.abort(code);
        }
        ExitCode::from(code)
    }
}

/// Waits for the first rank, which may fail for the same reason and end this one.
fn told_by_the_first(interruption: &Interruption) -> bool {
    let stopping = interruption.requested();
    let began = Instant::now();
    while began.elapsed() < AFTER_THE_FIRST {
        // SIGTERM from the first rank; a second one ends a rank that is already stopping.
        if !stopping && interruption.requested() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// The number of ranks that MPI's launchers state in environment variables; `None` without such a launcher. Refuses
/// several processes of torchrun or Slurm, which cannot communicate.
fn started(variable: impl Fn(&str) -> Option<String>) -> Result<Option<usize>> {
    let number = |name| variable(name)?.parse::<usize>().ok();
    let largest = |names: &[&'static str]| names.iter().filter_map(|n| number(n)).max();
    // Open MPI's mpirun; srun --mpi=pmix; srun --mpi=pmi2 and MPICH's mpirun.
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    // Only launchers of ranks set these; a step of Slurm may also be separate tasks.
    let of_ranks = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
    let sizes = [of_ranks[0], of_ranks[1], "SLURM_STEP_NUM_TASKS"];
    if largest(&ranks).is_some() || largest(&of_ranks).is_some_and(|size| size > 1) {
        return Ok(Some(largest(&sizes).unwrap_or(1)));
    }
    // Other programs set WORLD_SIZE too.
    let torchrun = (number("RANK"), number("LOCAL_RANK"), number("WORLD_SIZE"));
    // A batch script of Slurm sees the number of tasks of its job, but is a single process that no step of srun
    // started.
    let in_step = number("SLURM_STEP_NUM_TASKS");
    let in_script =
        variable("SLURM_JOB_ID").is_some() && variable("SLURM_STEP_NUM_TASKS").is_none();
    let slurm = (number("SLURM_PROCID"), in_step.max(number("SLURM_NTASKS")));
    let (found, size, variable) = match (torchrun, slurm) {
        ((Some(_), Some(_), Some(size @ 2..)), _) => {
            (format!("torchrun started {size} processes"), size, "RANK")
        }
        (_, (Some(_), Some(size @ 2..))) if !in_script => {
            (format!("Slurm started {size} tasks"), size, "SLURM_PROCID")
        }
        _ => return Ok(None),
    };
    refuse!(
        "{found} that cannot communicate, so each would train alone: to train in {size} processes, \
         build wave with --features mpi and start it with mpirun or srun --mpi=pmix; for {size} \
         separate trainings, start each with env -u {variable}"
    )
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
mod tests;
