//! A background thread that stays a few batches ahead.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use crate::{Batch, DataError};

/// Maximum number of batches that are ready in advance.
pub(crate) const PREFETCHED: usize = 4;

/// The batches that `make` returns for the steps `from..to`, computed ahead.
pub(crate) fn prefetch(
    from: u64,
    to: u64,
    make: impl Fn(u64) -> Result<Batch, DataError> + Send + 'static,
) -> Prefetch {
    let (sender, receiver) = sync_channel(PREFETCHED);
    let work = move || {
        for step in from..to {
            if sender.send(make(step)).is_err() {
                return; // nobody listens any more
            }
        }
    };
    let worker = thread::Builder::new().name("wave-data".to_owned());
    Prefetch {
        receiver: Some(receiver),
        worker: Some(worker.spawn(work)),
    }
}

/// The receiving end of a background thread.
pub(crate) struct Prefetch {
    receiver: Option<Receiver<Result<Batch, DataError>>>,
    /// An error if it could not start.
    worker: Option<io::Result<JoinHandle<()>>>,
}

impl Iterator for Prefetch {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(Ok(batch)) = self.receiver.as_ref().map(Receiver::recv) {
            return Some(batch);
        }
        self.receiver = None;
        let problem = match self.worker.take()? {
            Err(error) => error.to_string(),
            Ok(worker) => {
                worker.join().err()?;
                "it crashed before its work was done".to_owned()
            }
        };
        Some(Err(DataError::Worker(problem)))
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.receiver = None; // a thread that waits to send gives up
        if let Some(Ok(worker)) = self.worker.take() {
            // Its result no longer matters, panic or not.
            let _ = worker.join();
        }
    }
}
