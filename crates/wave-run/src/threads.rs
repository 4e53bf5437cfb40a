//! The threads of a command.

use crate::error::request;
use anyhow::{Context as _, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Largest accepted number of threads; more would be a mistake.
const MOST_THREADS: usize = 1024;

/// A pool of `given` threads; by default, as many as RAYON_NUM_THREADS, or one per core.
///
/// # Errors
/// If the number is 0 or too large, or the threads cannot be started.
pub fn pool(given: Option<usize>) -> Result<ThreadPool> {
    let mut pool = ThreadPoolBuilder::new();
    if let Some(threads) = number(given)? {
        pool = pool.num_threads(threads);
    }
    pool.build()
        .context("cannot start the threads; give fewer with --threads")
}

/// Number of threads from the flag or rayon's variable.
fn number(given: Option<usize>) -> Result<Option<usize>> {
    const VARIABLE: &str = "RAYON_NUM_THREADS";
    let (name, threads) = match given {
        Some(0) => return Err(request("--threads 0; expected at least 1")),
        Some(threads) => ("--threads", Some(threads)),
        // In rayon's variable, 0 means one per core.
        None => {
            let text = std::env::var(VARIABLE).ok();
            let number = text.and_then(|text| text.parse().ok());
            (VARIABLE, number.filter(|threads| *threads > 0))
        }
    };
    match threads {
        Some(threads) if threads > MOST_THREADS => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Err(request(format!(
                "{name} {threads}; expected 1 to {MOST_THREADS}, ideally one for each of the \
                 {cores} cores"
            )))
        }
        threads => Ok(threads),
    }
}
