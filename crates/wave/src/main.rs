//! The `wave` command. Everything it does is in the library of the same name.

use std::ffi::{c_int, c_long};
use std::process::ExitCode;

/// Training allocates the same large tensors at every step. The system's allocator returns them
/// to the kernel each time, which zeroes the pages again; this one can keep them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's `mi_option_purge_delay`: milliseconds after which free memory goes back to the kernel.
const PURGE_DELAY: c_int = 15;

// SAFETY: the declaration is that of mimalloc's header, and the allocator above links it.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

fn main() -> ExitCode {
    // Never: a step of a large model takes longer than any delay, and would start from zeroed pages.
    // SAFETY: a plain store in a table of options; no other thread runs yet.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
    // candle's own elementwise operators spin on a second set of threads, one per core, beside
    // ours; the fused operators have taken over all large ones.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    // SAFETY: no other thread runs yet.
    unsafe { wave::cli::main() }
}
