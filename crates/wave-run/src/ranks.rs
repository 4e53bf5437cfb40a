//! The processes of a run: one, or as many as `mpirun` or `srun` started, in builds with the feature
//! `mpi`. In builds with `nccl`, those that compute on GPUs talk over NCCL, and torchrun may start them.
//!
//! Every rank reads the same settings and files and goes through the same stages. In training each
//! makes its share of every batch, and of the ancestor's outputs, and tests its share of the test
//! images (`wave_train::Ranks`). What must happen once, such as writing, happens on the first rank
//! while the others wait: [`on_first`]. A rank that fails says so and ends all of them: [`World::fail`].

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

/// What a rank other than the first waits before it tells why it failed. Most failures are those of
/// all ranks; the first one has then ended the others, and the user reads the reason once. mpirun kills
/// a second after it said so.
const AFTER_THE_FIRST: Duration = Duration::from_secs(3);

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

/// Refuses several ranks for `what`, such as `a population trains`, in one process.
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

/// What started this process together with others, for as long as it lives.
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
    /// If it did, and this build cannot join them.
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

    /// The number of this process among those of its machine, counted from 0: that of its GPU.
    pub fn local_rank(&self) -> usize {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return mpi.local_rank();
        }
        self.torchrun.as_ref().map_or(0, |torchrun| torchrun.local)
    }

    /// Lets the ranks, each with its device, talk.
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

/// Waits whether the first rank ends this one, having failed too: then there is nothing to add.
fn told_by_the_first() -> bool {
    let stopping = INTERRUPTED.load(Ordering::Relaxed);
    let began = Instant::now();
    while began.elapsed() < AFTER_THE_FIRST {
        // It comes as SIGTERM; to a rank that is stopping anyway, as what nobody survives.
        if !stopping && INTERRUPTED.load(Ordering::Relaxed) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// What started this process.
#[derive(Debug, PartialEq)]
enum Launcher {
    /// Nothing that starts several.
    None,
    /// mpirun or srun, and how many it started as far as its variables say.
    Mpi { size: usize },
    /// torchrun, several.
    Torchrun(Torchrun),
}

/// The place of a process among those that torchrun started.
#[derive(Debug, PartialEq)]
struct Torchrun {
    rank: usize,
    size: usize,
    /// Among those of the machine.
    local: usize,
}

fn launcher(variable: impl Fn(&str) -> Option<String>) -> Launcher {
    let number = |name| variable(name)?.parse::<usize>().ok();
    let largest = |names: &[&'static str]| names.iter().filter_map(|n| number(n)).max();
    // Open MPI's mpirun; srun --mpi=pmix; srun --mpi=pmi2 and MPICH's mpirun.
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    // Only those who start ranks set these; a step of Slurm's may also be so many separate tasks.
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
        // A script of Slurm's is no step.
        check(
            &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")],
            Launcher::None,
        );
        let torchrun = |size| [("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", size)];
        let (rank, size, local) = (5, 8, 1);
        let place = Torchrun { rank, size, local };
        check(&torchrun("8"), Launcher::Torchrun(place));
        check(&torchrun("1"), Launcher::None);
        // Many set it for other reasons.
        check(&[("WORLD_SIZE", "8")], Launcher::None);
    }
}
