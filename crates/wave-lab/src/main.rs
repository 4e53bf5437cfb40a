//! The papers beside WAVE, a command of `wave-lab` and a folder for each:
//!
//! 1. [`ssm`]: networks of token sequences (thesis, section 3.3): Mamba, Mamba-2, linear attention,
//!    transformers and hybrids, on synthetic tasks and on text.
//! 2. [`population`]: many small networks that are trained side by side, and the statistics of their
//!    weights (thesis, section 3.4).
//! 3. [`attention`]: transformers with positions in the attention, GPSA and convolutions (thesis, section
//!    3.2.4).
//! 4. [`dimaml`]: distributions of first weights, learned through whole trainings (DIMAML).
//!
//! A command takes its settings from a recipe under `recipes/papers`, flags before the recipe's keys. It
//! starts a network, trains and measures it in one run, and writes `result.json`, the weights and pictures to
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

/// As in `wave`: a training allocates the same large tensors at every step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // SAFETY: no other thread runs yet.
    unsafe { cli::main() }
}
