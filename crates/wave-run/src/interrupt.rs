//! Ctrl-C: what it sets, and whether a training has something to save.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Set by Ctrl-C: every training saves and stops.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Trainings under way whose state is saved when they are interrupted.
static SAVING: AtomicUsize = AtomicUsize::new(0);

/// As long as one lives, a first Ctrl-C saves; else there is nothing to save, and it ends the process.
pub struct Saving;

impl Saving {
    /// From now on, until the value is dropped.
    pub fn begin() -> Saving {
        SAVING.fetch_add(1, Ordering::SeqCst);
        Saving
    }

    /// Whether one lives.
    pub fn now() -> bool {
        SAVING.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        SAVING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Fails after Ctrl-C: for work of a while that saves nothing.
pub fn check_interrupt() -> candle_core::Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        candle_core::bail!("interrupted");
    }
    Ok(())
}
