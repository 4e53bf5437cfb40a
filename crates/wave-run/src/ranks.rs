//! The processes of a run: one, or several that `mpirun` or `srun` started, in builds with the feature
//! `mpi`. With the feature `nccl`, GPUs communicate over NCCL, and torchrun may start the processes.
//!
//! A rank that fails reports it and ends all others: [`World::fail`].

use crate::error::{describe, exit_code, request};
use crate::interrupt::Interruption;
use crate::terminal::tell;
use anyhow::Result;
use candle_core::Device;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wave_train::{Alone, Ranks};

#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;

/// Time that other ranks wait before they report an error. Most errors occur on all ranks; the first
/// then ends the others, and the user reads the reason once. mpirun kills the others a second after
/// that.
const AFTER_THE_FIRST: Duration = Duration::from_secs(3);

/// The connection to the other processes, for the lifetime of this one.
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
            Launcher::Tasks { size } => Err(request(format!(
                "Slurm started {size} tasks that cannot communicate, so each would train alone: to \
                 train in {size} processes, build wave with --features mpi and start it with srun \
                 --mpi=pmix or mpirun, or with --features nccl and start it with torchrun; for \
                 {size} separate trainings, start each with env -u SLURM_PROCID"
            ))),
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
            "torchrun started {} processes, but this build has no NCCL: start them with mpirun or \
             srun, or build wave with --features nccl",
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
                "{size} processes were started, but this build trains in one; build wave with \
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

    /// The ranks, each with its device.
    ///
    /// # Errors
    /// If NCCL cannot start, or torchrun started ranks without GPUs.
    #[cfg(feature = "nccl")]
    pub fn connect(&self, device: &Device) -> Result<Box<dyn Ranks + Send>> {
        match (device, &self.torchrun) {
            (Device::Cuda(device), Some(torchrun)) => {
                let ranks = nccl::Nccl::at_address(torchrun.rank, torchrun.size, device)?;
                Ok(Box::new(ranks))
            }
            (_, Some(Torchrun { size, .. })) => Err(request(format!(
                "torchrun started {size} processes, which communicate over NCCL between GPUs: give \
                 --device cuda, or start them with mpirun or srun"
            ))),
            (Device::Cuda(device), None) => match self.ranks_of_host() {
                mpi if mpi.size() > 1 => Ok(Box::new(nccl::Nccl::among(&*mpi, device)?)),
                alone => Ok(alone),
            },
            (_, None) => Ok(self.ranks_of_host()),
        }
    }

    /// The ranks; they communicate through the host.
    #[cfg(not(feature = "nccl"))]
    pub fn connect(&self, _: &Device) -> Result<Box<dyn Ranks + Send>> {
        Ok(self.ranks_of_host())
    }

    /// The ranks that MPI started, or this process alone.
    fn ranks_of_host(&self) -> Box<dyn Ranks + Send> {
        #[cfg(feature = "mpi")]
        if let Some(mpi) = &self.mpi {
            return Box::new(mpi.ranks());
        }
        Box::new(Alone)
    }

    /// The rank of this process, and the number of ranks.
    fn place(&self) -> (usize, usize) {
        if let Some(torchrun) = &self.torchrun {
            return (torchrun.rank, torchrun.size);
        }
        let ranks = self.ranks_of_host();
        (ranks.rank(), ranks.size())
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
        match self.place() {
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

/// The launcher of this process.
#[derive(Debug, PartialEq)]
enum Launcher {
    /// None, or one that starts a single process.
    None,
    /// mpirun or srun, and the number of ranks in its environment variables.
    Mpi { size: usize },
    /// torchrun, with several ranks.
    Torchrun(Torchrun),
    /// srun, with several tasks that cannot communicate.
    Tasks { size: usize },
}

/// Place of a process that torchrun started.
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
    let place = (number("RANK"), number("WORLD_SIZE"), number("LOCAL_RANK"));
    if let (Some(rank), Some(size @ 2..), Some(local)) = place
        && rank < size
    {
        return Launcher::Torchrun(Torchrun { rank, size, local });
    }
    // A batch script of Slurm sees the number of tasks of its job, but is a single process that no step of srun
    // started.
    let in_step = number("SLURM_STEP_NUM_TASKS");
    let in_script =
        variable("SLURM_JOB_ID").is_some() && variable("SLURM_STEP_NUM_TASKS").is_none();
    match (number("SLURM_PROCID"), in_step.max(number("SLURM_NTASKS"))) {
        (Some(_), Some(size @ 2..)) if !in_script => Launcher::Tasks { size },
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
        // Tasks that cannot communicate, in a step by itself and within a job.
        let step = [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8")];
        check(&step, Launcher::Tasks { size: 8 });
        let job = [("SLURM_JOB_ID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        check(&[&step[..], &job].concat(), Launcher::Tasks { size: 8 });
        check(
            &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")],
            Launcher::None,
        );
        // A batch script of Slurm is not a step, nor is the shell of an allocation.
        let script = [
            ("SLURM_JOB_ID", "1"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "8"),
        ];
        check(&script, Launcher::None);
        check(&[("SLURM_NTASKS", "8")], Launcher::None);
        let torchrun = |size| [("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", size)];
        let (rank, size, local) = (5, 8, 1);
        let place = Torchrun { rank, size, local };
        check(&torchrun("8"), Launcher::Torchrun(place));
        check(&torchrun("1"), Launcher::None);
        // Other programs set it too.
        check(&[("WORLD_SIZE", "8")], Launcher::None);
    }
}
