//! The `wave-lab` command.

use std::process::ExitCode;

/// As in `wave`: a training allocates the same large tensors at every step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // SAFETY: no other thread runs yet.
    unsafe { wave_lab::main() }
}
