//! Profile of the time of a training, on request.
//!
//! A training runs on one thread, which distributes work to others. That thread's clock always runs
//! for one kind of work, so that the times of all kinds add up to the total. Inside the fused blocks,
//! every thread measures its products, attention and the rest; averaged over the threads, these divide
//! the time of the blocks, and the remainder is waiting and packing.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Kinds of work of the training thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Work without a kind of its own: operators outside the blocks, gradients between them.
    Other,
    /// Waiting for a batch.
    Loading,
    /// Outputs of an ancestor, computed or read from a cache.
    Ancestor,
    /// Composing weights from templates and scalers, and its gradient.
    Composition,
    /// The transformer's blocks, forward and backward.
    Blocks,
    /// Gradient norms, optimiser steps, weight averages.
    Optimiser,
    /// Evaluation.
    Tests,
    /// Log and checkpoints.
    Checkpoints,
}

const WORK: usize = Work::Checkpoints as usize + 1;

/// Kinds of work inside the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Matrix products with parameters, and their gradients.
    Products,
    /// Attention between queries, keys and values.
    Attention,
    /// Norms, GELU, biases and residuals.
    Elementwise,
}

const PARTS: usize = Part::Elementwise as usize + 1;

/// True if parts are measured. The blocks run on other threads than the training, so this is shared.
static INSIDE: AtomicBool = AtomicBool::new(false);
/// Nanoseconds of each part, summed over the threads.
static SPENT: [AtomicU64; PARTS] = [const { AtomicU64::new(0) }; PARTS];

thread_local! {
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// The clock of a training's thread.
struct Clock {
    since: Instant,
    now: Work,
    spent: [Duration; WORK],
}

impl Clock {
    /// Switches to another kind of work; returns the previous one.
    fn turn(&mut self, work: Work) -> Work {
        let now = Instant::now();
        self.spent[self.now as usize] += now - self.since;
        self.since = now;
        INSIDE.store(work == Work::Blocks, Relaxed);
        std::mem::replace(&mut self.now, work)
    }
}

/// Time of a training, by kind of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The total.
    pub total: Duration,
    /// Name and time of each kind; they add up to the total.
    pub parts: Vec<(&'static str, Duration)>,
}

/// Starts measuring this thread's work.
pub fn begin() {
    for spent in &SPENT {
        spent.store(0, Relaxed);
    }
    CLOCK.set(Some(Clock {
        since: Instant::now(),
        now: Work::Other,
        spent: [Duration::ZERO; WORK],
    }));
}

/// Stops measuring; `None` if this thread did not begin.
pub fn end() -> Option<Profile> {
    let mut clock = CLOCK.take()?;
    clock.turn(Work::Other);
    let of = |work: Work| clock.spent[work as usize];
    let threads = rayon::current_num_threads().max(1) as u32;
    let inside = |part: Part| Duration::from_nanos(SPENT[part as usize].load(Relaxed)) / threads;
    let blocks = of(Work::Blocks);
    let parts = [Part::Products, Part::Attention, Part::Elementwise].map(inside);
    let sum: Duration = parts.iter().sum();
    // Threads interrupted inside parts may count more than the blocks took.
    let share = (blocks.as_secs_f64() / sum.as_secs_f64().max(1e-9)).min(1.0);
    let [products, attention, elementwise] = parts.map(|part| part.mul_f64(share));
    let waiting = blocks.saturating_sub(products + attention + elementwise);
    Some(Profile {
        total: clock.spent.iter().sum(),
        parts: vec![
            ("products", products),
            ("attention", attention),
            ("norms and activations", elementwise),
            ("packing, and threads waiting", waiting),
            ("composition", of(Work::Composition)),
            ("other operators", of(Work::Other)),
            ("optimiser", of(Work::Optimiser)),
            ("ancestor", of(Work::Ancestor)),
            ("waiting for images", of(Work::Loading)),
            ("tests", of(Work::Tests)),
            ("log and checkpoints", of(Work::Checkpoints)),
        ],
    })
}

/// Counts the time until it is dropped as one kind of work.
#[must_use]
pub struct Doing(Option<Work>);

/// Starts a kind of work, if this thread is measured. Work inside an ancestor or a test counts as theirs.
pub fn doing(work: Work) -> Doing {
    CLOCK.with_borrow_mut(|clock| match clock {
        Some(clock) if !matches!(clock.now, Work::Ancestor | Work::Tests) => {
            Doing(Some(clock.turn(work)))
        }
        _ => Doing(None),
    })
}

impl Drop for Doing {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            CLOCK.with_borrow_mut(|clock| clock.as_mut().map(|clock| clock.turn(before)));
        }
    }
}

/// Counts the time until it is dropped as a part of the blocks.
pub(crate) struct Measured(Option<(Part, Instant)>);

/// Starts a part of the blocks, if these are measured.
#[inline]
pub(crate) fn part(part: Part) -> Measured {
    Measured(INSIDE.load(Relaxed).then(|| (part, Instant::now())))
}

impl Drop for Measured {
    #[inline]
    fn drop(&mut self) {
        if let Some((part, since)) = self.0 {
            let nanoseconds = since.elapsed().as_nanos() as u64;
            SPENT[part as usize].fetch_add(nanoseconds, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
