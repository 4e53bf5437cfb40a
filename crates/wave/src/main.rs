//! The `wave` command. Everything it does is in the library of the same name.

use std::process::ExitCode;

/// Training allocates the same large tensors at every step. The system's allocator returns them
/// to the kernel each time, which zeroes the pages again; this one keeps them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // candle's own elementwise operators spin on a second set of threads, one per core, beside
    // ours; the fused operators have taken over all large ones.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    wave::cli::main()
}
