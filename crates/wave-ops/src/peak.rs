//! Peak rate of multiply-adds, over all threads.

use crate::arithmetic::Precision;
use crate::bf16::Pair;
use crate::cpu::current;
use crate::gemm::rate;

/// Floating-point operations per second of all threads of the pool, counting a multiply-add as two;
/// measured for a fifth of a second. For bf16, the rate of `f32` if the CPU is not faster in bf16.
pub fn peak(precision: Precision) -> f64 {
    let simd = current();
    let rates = rayon::broadcast(|_| match precision.usable() {
        Precision::F32 => rate(simd, 0.5_f32, 1),
        Precision::Bf16 => rate(simd, Pair(0x3f00_3f00), 2), // 0.5 and 0.5
    });
    rates.into_iter().sum()
}
