//! Papers related to WAVE, with a command of `wave-lab` ([`cli`]) and a folder for each.
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
