//! Second-order gradients with stock candle.
//!
//! candle detaches the graph of a gradient, unless [`VARIABLE`] is 1 in the environment when a thread takes its
//! first gradient; the thread never checks again. The program sets it for this command alone, since these graphs
//! cost memory.

use candle_core::{Device, Result, Tensor, Var};

/// The environment variable that candle reads.
pub const VARIABLE: &str = "CANDLE_GRAD_DO_NOT_DETACH";

/// Stack size of the thread. candle walks graphs recursively, and the graph of a second-order gradient is
/// thousands of operators deep; only the used part of the stack takes memory.
const STACK: usize = 1 << 30;

/// Runs `work` on a thread on which gradients are differentiable: [`VARIABLE`] must be 1.
///
/// The operators of the loss have to be candle's own, or [`wave_ops::stock`]: the fused ones (`f32` on
/// the CPU) have only first derivatives; differentiating these gives errors or zero.
///
/// Fails if the thread cannot be started, or if candle detaches gradients anyway.
///
/// # Panics
/// If `work` does.
pub fn second_order<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("second-order".into())
            .stack_size(STACK)
            .spawn_scoped(scope, || check().map(|()| work()));
        match thread.map_err(candle_core::Error::wrap)?.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Checks that gradients are differentiable on this thread: x³ has a second derivative.
fn check() -> Result<()> {
    let x = Var::new(2f64, &Device::Cpu)?;
    let gradient = |y: &Tensor| -> Result<_> { Ok(y.backward()?.remove(x.as_tensor())) };
    let first = gradient(&(x.sqr()? * x.as_tensor())?)?;
    match first.map(|first| gradient(&first)).transpose()?.flatten() {
        Some(_) => Ok(()),
        None => candle_core::bail!("gradients have no gradients on this thread; set {VARIABLE}=1"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Once;

    /// For tests, which are threads of one process.
    pub(crate) fn second_order<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
        static SET: Once = Once::new();
        // SAFETY: tests here read the environment only through `std::env`, and the C library does not read it for them.
        SET.call_once(|| unsafe { std::env::set_var(VARIABLE, "1") });
        super::second_order(work)
    }

    #[test]
    fn a_panic_of_the_work_is_the_callers() {
        let panicked = std::panic::catch_unwind(|| second_order(|| panic!("of the work")));
        assert!(panicked.is_err());
    }
}
