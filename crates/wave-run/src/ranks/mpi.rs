//! Ranks that communicate over MPI.

use anyhow::{Context, Result, bail};
use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Equivalence, Root};
use std::mem::ManuallyDrop;
use wave_train::Ranks;

/// Values per message, which bounds the scratch memory of sums.
const MESSAGE: usize = 1 << 22;

/// MPI, from initialisation to finalisation. Finalising waits for all ranks, so a process that fails or
/// panics must not do it: hence `ManuallyDrop`.
pub(super) struct Connection(ManuallyDrop<Universe>);

impl Connection {
    pub(super) fn open() -> Result<Connection> {
        // One thread at a time, though not always the same: stages run on a thread pool.
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .context("MPI is already initialised")?;
        if threading < Threading::Serialized {
            bail!("this MPI library supports only one thread ({threading:?}); use another");
        }
        Ok(Connection(ManuallyDrop::new(universe)))
    }

    pub(super) fn ranks(&self) -> Mpi {
        let world = self.0.world();
        Mpi {
            rank: world.rank() as usize,
            size: world.size() as usize,
        }
    }

    pub(super) fn local_rank(&self) -> usize {
        let world = self.0.world();
        world.split_shared(world.rank()).rank() as usize
    }

    pub(super) fn close(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }

    pub(super) fn abort(&self, code: u8) -> ! {
        self.0.world().abort(code.into())
    }
}

/// The world communicator. MPI ends the job when a call fails, so no call returns an error.
pub(super) struct Mpi {
    rank: usize,
    size: usize,
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn sum(&self, values: &mut [f32]) {
        sum(values);
    }

    fn sum_f64(&self, values: &mut [f64]) {
        sum(values);
    }

    fn broadcast(&self, values: &mut [f32]) {
        for message in values.chunks_mut(MESSAGE) {
            let world = SimpleCommunicator::world();
            world.process_at_rank(0).broadcast_into(message);
        }
    }
}

fn sum<T: Equivalence + Copy>(values: &mut [T]) {
    for message in values.chunks_mut(MESSAGE) {
        let own = message.to_vec();
        let world = SimpleCommunicator::world();
        world.all_reduce_into(&own[..], message, SystemOperation::sum());
    }
}
