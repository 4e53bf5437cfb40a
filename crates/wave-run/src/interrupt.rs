//! Handling of Ctrl-C, and of trainings that save their state first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Set by Ctrl-C: every training saves and stops.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Number of trainings in progress that save their state when interrupted.
static SAVING: AtomicUsize = AtomicUsize::new(0);

/// While one is alive, a first Ctrl-C saves; otherwise it ends the process.
pub struct Saving;

impl Saving {
    /// Begins, until the value is dropped.
    pub fn begin() -> Saving {
        SAVING.fetch_add(1, Ordering::SeqCst);
        Saving
    }

    /// Whether one is alive.
    pub fn now() -> bool {
        SAVING.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        SAVING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Fails after Ctrl-C, for long work that saves no state.
pub fn check_interrupt() -> candle_core::Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        candle_core::bail!("interrupted");
    }
    Ok(())
}
