//! Detection of usable AMX tiles.

use std::arch::asm;
use std::sync::LazyLock;

/// True if the CPU has bf16 tiles and the system lets this process use them.
pub(super) fn available() -> bool {
    static AVAILABLE: LazyLock<bool> = LazyLock::new(|| has_tiles() && permitted());
    *AVAILABLE
}

fn has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    __cpuid(0).eax >= 7 && {
        let features = __cpuid_count(7, 0).edx;
        features & AMX_BF16 != 0 && features & AMX_TILE != 0
    }
}

/// Requests permission for tile state from Linux, once for all threads.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: the system call takes two numbers and changes nothing but a permission.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}
