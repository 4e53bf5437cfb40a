//! Gradients of gradients from stock candle.
//!
//! candle cuts the graph of a gradient off, unless the environment says `CANDLE_GRAD_DO_NOT_DETACH=1`
//! when a thread takes its first gradient; the thread never looks again. This file is the one place
//! that says so, to threads of its own: every other thread of the program goes on without the graphs,
//! which cost memory.

use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Result, Tensor, Var};

/// What candle asks the environment for.
const VARIABLE: &str = "CANDLE_GRAD_DO_NOT_DETACH";

/// Stack of the thread. candle walks graphs by recursion, and the graph of a gradient's gradient is
/// thousands of operators deep; of the stack only what is used takes memory.
const STACK: usize = 1 << 30;

/// Held while the variable is set.
static SETTING: Mutex<()> = Mutex::new(());

/// Runs `work` on a thread on which gradients have gradients, with as many threads to share work
/// with as the caller's.
///
/// The operators of the loss have to be candle's own, or [`wave_ops::stock`]: the fused ones (`f32` on
/// the CPU) have one derivative, and gradients of that are errors or zero.
///
/// # Errors
/// If the thread cannot be started, or candle cuts gradients off all the same.
///
/// # Panics
/// If `work` does.
pub fn second_order<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    let threads = rayon::current_num_threads();
    let on_thread = move || -> Result<T> {
        first_gradient()?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .use_current_thread()
            .build();
        let _pool = pool.map_err(candle_core::Error::wrap)?;
        Ok(work())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("second-order".into())
            .stack_size(STACK)
            .spawn_scoped(scope, on_thread)
            .map_err(candle_core::Error::wrap)?;
        match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Lets this thread, which has taken no gradient yet, read the variable.
fn first_gradient() -> Result<()> {
    let _alone = SETTING.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::env::var_os(VARIABLE);
    // SAFETY: Rust's own readers take turns with this, and the C libraries here read the environment
    // when they are loaded. A thread whose first gradient falls into the moment only keeps graphs.
    unsafe { std::env::set_var(VARIABLE, "1") };
    let checked = check();
    // SAFETY: as above.
    match before {
        Some(value) => unsafe { std::env::set_var(VARIABLE, value) },
        None => unsafe { std::env::remove_var(VARIABLE) },
    }
    checked
}

/// Checks that gradients have gradients on this thread: the second derivative of x³ at 2 is 12.
///
/// # Errors
/// If they have not.
pub(crate) fn check() -> Result<()> {
    let x = Var::new(2f64, &Device::Cpu)?;
    let gradient =
        |y: &Tensor| -> Result<Option<Tensor>> { Ok(y.backward()?.remove(x.as_tensor())) };
    let second = match gradient(&(x.sqr()? * x.as_tensor())?)? {
        Some(first) => gradient(&first)?,
        None => None,
    };
    match second.map(|t| t.to_scalar::<f64>()).transpose()? {
        Some(12.0) => Ok(()),
        _ => candle_core::bail!(
            "gradients have no gradients on this thread; call this inside wave_train::second_order"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_have_gradients_on_its_thread_alone() {
        let other = || std::thread::spawn(check).join().unwrap();
        assert!(other().is_err());
        assert!(second_order(check).unwrap().is_ok());
        assert!(
            second_order(|| second_order(check))
                .unwrap()
                .unwrap()
                .is_ok()
        );
        assert!(other().is_err());
    }

    #[test]
    fn work_is_shared_as_it_was_before() {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .build()
            .unwrap();
        let found = pool.install(|| second_order(rayon::current_num_threads).unwrap());
        assert_eq!(found, 3);
    }
}
