//! The `wave` command. All of its code is in the library of the same name.

use std::ffi::{c_int, c_long};
use std::process::ExitCode;

/// Training allocates the same large tensors at every step. The system's allocator returns them
/// to the kernel each time, so that the pages are zeroed again; this one can keep them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's `mi_option_purge_delay`: milliseconds after which free memory goes back to the kernel.
const PURGE_DELAY: c_int = 15;

// SAFETY: the declaration matches mimalloc's header, and the allocator above links it.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

fn main() -> ExitCode {
    // Never purge: a step of a large model takes longer than any delay, and would start with zeroed pages.
    // SAFETY: a plain store to a table of options; no other thread runs yet.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
    // candle's own elementwise operators spin on a second set of threads, one per core, next to
    // ours; the fused operators have replaced all large ones.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    // SAFETY: no other thread runs yet.
    unsafe { wave::cli::main() }
}
