//! The threads of a command.

use anyhow::{Context as _, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};
use wave_models::refuse;

/// Largest accepted number of threads; more would be a mistake.
const MOST_THREADS: usize = 1024;

/// A pool of `given` threads; by default, as many as RAYON_NUM_THREADS, or one per core.
pub fn pool(given: Option<usize>) -> Result<ThreadPool> {
    const VARIABLE: &str = "RAYON_NUM_THREADS";
    let in_variable = || std::env::var(VARIABLE).ok()?.parse().ok();
    let (name, threads) = match given {
        Some(0) => refuse!("--threads 0; expected at least 1"),
        Some(threads) => ("--threads", threads),
        None => (VARIABLE, in_variable().unwrap_or(0)), // for rayon, 0 is one per core
    };
    if threads > MOST_THREADS {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        refuse!(
            "{name} {threads}; expected 1 to {MOST_THREADS}, ideally one for each of the {cores} \
             cores"
        );
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.context("cannot start the threads; give fewer with --threads")
}
