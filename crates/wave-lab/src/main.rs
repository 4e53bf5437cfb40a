//! Papers related to WAVE, with a command of `wave-lab` and a folder for each:
//!
//! 1. [`ssm`]: networks of token sequences (thesis, section 3.3): Mamba, Mamba-2, linear attention,
//!    transformers and hybrids, on synthetic tasks and on text.
//! 2. [`population`]: many small networks trained in parallel, and the statistics of their
//!    weights (thesis, section 3.4).
//! 3. [`attention`]: transformers with positions in the attention, GPSA and convolutions (thesis, section
//!    3.2.4).
//! 4. [`dimaml`]: distributions of initial weights, learned through whole training runs (DIMAML).
//!
//! A command takes its settings from a recipe under `recipes/papers`; flags override the recipe's keys. It
//! initialises a network, trains and measures it in one run, and writes `result.json`, the weights and pictures to
//! `--out`. The training loop, the data and the log are `wave`'s. A run takes minutes and cannot be resumed.

#![allow(
    unreachable_pub,
    reason = "a program, whose modules are each other's only users"
)]

mod attention;
mod cli;
mod dimaml;
mod images;
mod population;
mod run;
mod ssm;
#[cfg(test)]
mod testing;

/// As in `wave`: training allocates the same large tensors at every step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // SAFETY: no other thread runs yet.
    unsafe { cli::main() }
}
