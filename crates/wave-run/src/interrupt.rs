//! Handling of Ctrl-C, and of trainings that save their state before they stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A request to stop, and the number of trainings that save their state then; clones share both.
#[derive(Clone, Default)]
pub struct Interruption(Arc<State>);

#[derive(Default)]
struct State {
    requested: AtomicBool,
    /// Number of trainings in progress that save their state when interrupted.
    saving: AtomicUsize,
}

impl Interruption {
    /// Requests every training to save and stop. Returns true if that was requested before.
    pub fn request(&self) -> bool {
        self.0.requested.swap(true, Ordering::SeqCst)
    }

    /// True if it was requested.
    pub fn requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }

    /// Fails after a request, for long work that saves no state.
    pub fn check(&self) -> candle_core::Result<()> {
        if self.requested() {
            return Err(candle_core::Error::Msg("interrupted".into()));
        }
        Ok(())
    }

    /// Begins work that saves its state when interrupted, until the value is dropped.
    pub fn saving(&self) -> Saving {
        self.0.saving.fetch_add(1, Ordering::SeqCst);
        Saving(self.clone())
    }

    /// True if such work is in progress; otherwise a request ends the process.
    pub fn saves(&self) -> bool {
        self.0.saving.load(Ordering::SeqCst) > 0
    }
}

/// Work in progress that saves its state when interrupted.
pub struct Saving(Interruption);

impl Drop for Saving {
    fn drop(&mut self) {
        self.0.0.saving.fetch_sub(1, Ordering::SeqCst);
    }
}
