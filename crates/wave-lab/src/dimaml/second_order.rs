//! Second-order gradients with stock candle.
//!
//! candle detaches the graph of a gradient, unless `CANDLE_GRAD_DO_NOT_DETACH=1` is set in the environment
//! when a thread takes its first gradient; the thread never checks again. This file is the only place that
//! sets it, for a single thread, before the program starts others: they continue without these
//! graphs, which cost memory.

use candle_core::{Device, Result, Tensor, Var};

/// The variable that candle reads.
const VARIABLE: &str = "CANDLE_GRAD_DO_NOT_DETACH";

/// Stack size of the thread. candle walks graphs recursively, and the graph of a second-order gradient is
/// thousands of operators deep; only the used part of the stack takes memory.
const STACK: usize = 1 << 30;

/// Runs `work` on a thread on which gradients are differentiable.
///
/// The operators of the loss have to be candle's own, or [`wave_ops::stock`]: the fused ones (`f32` on
/// the CPU) have only first derivatives; differentiating these gives errors or zero.
///
/// # Errors
/// If the thread cannot be started, or candle detaches gradients anyway.
///
/// # Panics
/// If `work` does.
///
/// # Safety
/// Until `work` begins, no other thread of the process may read or write the environment, except through
/// [`mod@std::env`]. A program ensures this by calling this first, before it starts any thread.
pub unsafe fn second_order<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    let (first, taken) = std::sync::mpsc::sync_channel(1);
    let before = std::env::var_os(VARIABLE);
    std::thread::scope(|scope| {
        let (begin, may_begin) = std::sync::mpsc::sync_channel(1);
        let on_thread = move || -> Result<T> {
            let checked = check();
            let _ = first.send(());
            // From here on, the environment is restored.
            let _ = may_begin.recv();
            checked?;
            Ok(work())
        };
        // SAFETY: by this function's own safety condition.
        unsafe { std::env::set_var(VARIABLE, "1") };
        let thread = std::thread::Builder::new()
            .name("second-order".into())
            .stack_size(STACK)
            .spawn_scoped(scope, on_thread);
        // If there is no thread, or it panics, its end of the channel is closed.
        let _ = taken.recv();
        match before {
            // SAFETY: as above; the new thread waits.
            Some(value) => unsafe { std::env::set_var(VARIABLE, value) },
            // SAFETY: as above.
            None => unsafe { std::env::remove_var(VARIABLE) },
        }
        let _ = begin.send(());
        match thread.map_err(candle_core::Error::wrap)?.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Checks that gradients are differentiable on this thread: the second derivative of x³ at 2 is 12.
pub(crate) fn check() -> Result<()> {
    let x = Var::new(2f64, &Device::Cpu)?;
    let gradient =
        |y: &Tensor| -> Result<Option<Tensor>> { Ok(y.backward()?.remove(x.as_tensor())) };
    let first = gradient(&(x.sqr()? * x.as_tensor())?)?;
    let second = first.map(|first| gradient(&first)).transpose()?.flatten();
    match second.map(|t| t.to_scalar::<f64>()).transpose()? {
        Some(12.0) => Ok(()),
        _ => candle_core::bail!(
            "gradients have no gradients on this thread; call this inside second_order"
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// While it is held, no other test changes the environment variables that candle reads: for tests that
    /// take the first gradient on their thread and never differentiate it.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For tests, which are threads of one process.
    pub(crate) fn second_order<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
        let _one = alone();
        // SAFETY: tests here read the environment only through `std::env`, and the C library does not read it for them.
        unsafe { super::second_order(work) }
    }

    #[test]
    fn gradients_have_gradients_on_its_thread_alone() {
        let _one = alone();
        let before = std::env::var_os(VARIABLE);
        // SAFETY: as in `tests::second_order`.
        let outside = unsafe {
            super::second_order(|| {
                check().unwrap();
                std::thread::spawn(check).join().unwrap()
            })
        };
        assert!(outside.unwrap().is_err());
        assert_eq!(std::env::var_os(VARIABLE), before);
    }

    #[test]
    fn a_panic_of_the_work_is_the_callers() {
        let panicked = std::panic::catch_unwind(|| second_order(|| panic!("of the work")));
        assert!(panicked.is_err());
    }
}
