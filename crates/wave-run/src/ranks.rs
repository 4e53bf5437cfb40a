//! The processes of a run: one, or several that `mpirun` or `srun` started, in builds with the feature
//! `mpi`. With the feature `nccl`, GPUs communicate over NCCL, and torchrun may start the processes.
//!
//! Every rank reads the same settings and files and runs the same stages. Each computes its share of
//! every batch, of the ancestor's outputs and of the test images (`wave_train::Ranks`). Work that
//! happens once, such as writing, is for the first rank while the others wait: [`on_first`]. A rank
//! that fails reports it and ends all others: [`World::fail`].

use crate::error::{describe, exit_code, request};
use crate::interrupt::INTERRUPTED;
use crate::terminal::tell;
use anyhow::Result;
use candle_core::{Device, Tensor};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wave_models::Weights;
use wave_train::{Alone, Ranks};

#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;

static RANKS: OnceLock<Box<dyn Ranks + Send>> = OnceLock::new();

/// Time that other ranks wait before they report an error. Most errors occur on all ranks; the first
/// then ends the others, and the user reads the reason once. mpirun kills the others a second after
/// that.
const AFTER_THE_FIRST: Duration = Duration::from_secs(3);

/// The ranks of this run.
pub fn ranks() -> &'static dyn Ranks {
    match RANKS.get() {
        Some(ranks) => &**ranks,
        None => &Alone,
    }
}

/// Whether this process writes and prints.
pub fn is_first() -> bool {
    ranks().rank() == 0
}

/// Refuses several ranks for `what`, such as `a population trains`.
///
/// # Errors
/// If several were started.
pub fn only_one(what: &str) -> Result<()> {
    match ranks().size() {
        1 => Ok(()),
        size => Err(request(format!(
            "{what} in one process, and {size} were started; leave out mpirun"
        ))),
    }
}

/// Does work once, on the first rank, while the others wait.
///
/// # Errors
/// Those of the work, on the first rank: its failure ends the others.
pub fn on_first(work: impl FnOnce() -> Result<()>) -> Result<()> {
    if is_first() {
        work()?;
    }
    ranks().wait();
    Ok(())
}

/// Does work on the first rank, then on the others, which find its results, such as a download.
///
/// # Errors
/// Those of the work.
pub fn first_then_others<T>(work: impl Fn() -> Result<T>) -> Result<T> {
    let done = is_first().then(&work).transpose()?;
    ranks().wait();
    done.map_or_else(work, Ok)
}

/// Means of weights over the ranks.
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

/// Whether any rank was interrupted, which then holds for all.
pub fn interrupted() -> bool {
    let stop = ranks().any(INTERRUPTED.load(Ordering::Relaxed));
    INTERRUPTED.fetch_or(stop, Ordering::Relaxed);
    stop
}

/// The connection to the other processes, for the life of this one.
#[derive(Default)]
pub struct World {
    #[cfg(feature = "mpi")]
    mpi: Option<mpi::Connection>,
    torchrun: Option<Torchrun>,
}

impl World {
    /// Joins the other processes, if a launcher started several.
    ///
    /// # Errors
    /// If there are several, and this build cannot join them.
    pub fn join() -> Result<World> {
        match launcher(|name| std::env::var(name).ok()) {
            Launcher::None => Ok(World::default()),
            Launcher::Mpi { size } => World::over_mpi(size),
            Launcher::Torchrun(torchrun) => World::over_nccl(torchrun),
        }
    }

    #[cfg(feature = "nccl")]
    fn over_nccl(torchrun: Torchrun) -> Result<World> {
        nccl::meet_at_master(|name| std::env::var(name).ok())?;
        Ok(World {
            torchrun: Some(torchrun),
            ..World::default()
        })
    }

    #[cfg(not(feature = "nccl"))]
    fn over_nccl(torchrun: Torchrun) -> Result<World> {
        Err(request(format!(
            "torchrun started {} processes, and this build's do not talk over NCCL: start them with \
             mpirun or srun, or build wave with --features nccl",
            torchrun.size
        )))
    }

    #[cfg(feature = "mpi")]
    fn over_mpi(_: usize) -> Result<World> {
        Ok(World {
            mpi: Some(mpi::Connection::open()?),
            torchrun: None,
        })
    }

    #[cfg(not(feature = "mpi"))]
    fn over_mpi(size: usize) -> Result<World> {
        match size {
            ..2 => Ok(World::default()),
            _ => Err(request(format!(
                "{size} processes were started, and this build trains in one; build wave with \
                 --features mpi, or start it without mpirun"
            ))),
        }
    }

    /// Number of this process on its machine, counted from 0, and of its GPU.
    pub fn local_rank(&self) -> usize {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return mpi.local_rank();
        }
        self.torchrun.as_ref().map_or(0, |torchrun| torchrun.local)
    }

    /// Connects the ranks, each with its device.
    ///
    /// # Errors
    /// If NCCL cannot start, or torchrun started ranks without GPUs.
    pub fn connect(&self, device: &Device) -> Result<()> {
        if let Some(ranks) = self.connection(device)? {
            let _ = RANKS.set(ranks); // nothing else sets it
        }
        Ok(())
    }

    #[cfg(feature = "nccl")]
    fn connection(&self, device: &Device) -> Result<Option<Box<dyn Ranks + Send>>> {
        match (device, &self.torchrun) {
            (Device::Cuda(device), Some(torchrun)) => {
                let ranks = nccl::Nccl::at_address(torchrun.rank, torchrun.size, device)?;
                Ok(Some(Box::new(ranks)))
            }
            (_, Some(Torchrun { size, .. })) => Err(request(format!(
                "torchrun started {size} processes, which talk over NCCL, from GPU to GPU: give \
                 --device cuda, or start them with mpirun or srun"
            ))),
            (Device::Cuda(device), None) => match self.mpi_ranks() {
                Some(mpi) if mpi.size() > 1 => {
                    Ok(Some(Box::new(nccl::Nccl::among(&*mpi, device)?)))
                }
                other => Ok(other),
            },
            (_, None) => Ok(self.mpi_ranks()),
        }
    }

    #[cfg(not(feature = "nccl"))]
    fn connection(&self, _: &Device) -> Result<Option<Box<dyn Ranks + Send>>> {
        Ok(self.mpi_ranks())
    }

    /// The ranks that MPI started.
    fn mpi_ranks(&self) -> Option<Box<dyn Ranks + Send>> {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return Some(Box::new(mpi.ranks()));
        }
        None
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
    pub fn fail(&self, error: &anyhow::Error) -> ExitCode {
        let (code, text) = (exit_code(error), describe(error));
        let ranks = ranks();
        match ranks.size() {
            1 => tell(&format!("wave: {text}")),
            _ if !is_first() && told_by_the_first() => return ExitCode::from(code),
            size => tell(&format!("wave: rank {} of {size}: {text}", ranks.rank())),
        }
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            mpi.abort(code);
        }
        ExitCode::from(code)
    }
}

/// Waits for the first rank, which may fail for the same reason and end this one.
fn told_by_the_first() -> bool {
    let stopping = INTERRUPTED.load(Ordering::Relaxed);
    let began = Instant::now();
    while began.elapsed() < AFTER_THE_FIRST {
        // SIGTERM from the first rank; a second one ends a rank that is already stopping.
        if !stopping && INTERRUPTED.load(Ordering::Relaxed) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// The launcher of this process.
#[derive(Debug, PartialEq)]
enum Launcher {
    /// None, or one that starts a single process.
    None,
    /// mpirun or srun, and the number of ranks in its environment variables.
    Mpi { size: usize },
    /// torchrun, with several ranks.
    Torchrun(Torchrun),
}

/// Place of a process among those of torchrun.
#[derive(Debug, PartialEq)]
struct Torchrun {
    rank: usize,
    size: usize,
    /// Number on the machine.
    local: usize,
}

fn launcher(variable: impl Fn(&str) -> Option<String>) -> Launcher {
    let number = |name| variable(name)?.parse::<usize>().ok();
    let largest = |names: &[&'static str]| names.iter().filter_map(|n| number(n)).max();
    // Open MPI's mpirun; srun --mpi=pmix; srun --mpi=pmi2 and MPICH's mpirun.
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    // Only launchers of ranks set these; a step of Slurm may also be separate tasks.
    let of_ranks = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
    let sizes = [of_ranks[0], of_ranks[1], "SLURM_STEP_NUM_TASKS"];
    if largest(&ranks).is_some() || largest(&of_ranks).is_some_and(|size| size > 1) {
        return Launcher::Mpi {
            size: largest(&sizes).unwrap_or(1),
        };
    }
    match (number("RANK"), number("WORLD_SIZE"), number("LOCAL_RANK")) {
        (Some(rank), Some(size @ 2..), Some(local)) if rank < size => {
            Launcher::Torchrun(Torchrun { rank, size, local })
        }
        _ => Launcher::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: Launcher) {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        let found = launcher(|name| find(name).map(|(_, value)| value.to_string()));
        assert_eq!(found, expected, "{variables:?}");
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        check(&[], Launcher::None);
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        check(&mpirun, Launcher::Mpi { size: 4 });
        let mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        check(&mpich, Launcher::Mpi { size: 2 });
        let srun = [("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")];
        check(&srun, Launcher::Mpi { size: 8 });
        check(&[("OMPI_COMM_WORLD_SIZE", "2")], Launcher::Mpi { size: 2 });
        check(&[("PMI_SIZE", "3")], Launcher::Mpi { size: 3 });
        check(&[("OMPI_COMM_WORLD_SIZE", "1")], Launcher::None);
        check(&[("PMI_SIZE", "many")], Launcher::None);
        // Eight tasks of a step need not be ranks.
        check(&[("SLURM_STEP_NUM_TASKS", "8")], Launcher::None);
        // A batch script of Slurm is not a step.
        check(
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")],
            Launcher::None,
        );
        let torchrun = |size| [("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", size)];
        let (rank, size, local) = (5, 8, 1);
        let place = Torchrun { rank, size, local };
        check(&torchrun("8"), Launcher::Torchrun(place));
        check(&torchrun("1"), Launcher::None);
        // Other programs set it too.
        check(&[("WORLD_SIZE", "8")], Launcher::None);
    }
}
