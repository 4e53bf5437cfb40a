//! The precision of matrix products.

use crate::cpu::current;
use crate::gemm::{Mat, StartValue, gemm, gemm_rounded};

/// Number of multiplications above which a product in bf16 is faster, including the rounding of its factors.
const WORTH_ROUNDING: usize = 1 << 16;

/// The type in which the matrices of the blocks are multiplied. Sums, parameters and gradients are
/// `f32` in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Factors, and the MLP's activations kept for the backward pass, are rounded to bf16. A CPU that
    /// is not faster in bf16 ([`Simd::has_bf16`](crate::Simd::has_bf16)) computes as [`Precision::F32`]
    /// instead. On a GPU all values inside a branch are bf16.
    Bf16,
}

impl Precision {
    /// Falls back to `f32` if the CPU is not faster in bf16.
    pub(crate) fn usable(self) -> Precision {
        match current().has_bf16() {
            true => self,
            false => Precision::F32,
        }
    }

    /// `C = start + A B`: `a` (m, k), `b` (k, n), `c` (m, n) with rows `c_stride` apart. Small
    /// products are computed in `f32` at any precision.
    pub(crate) fn product(
        self,
        (m, n, k): (usize, usize, usize),
        a: Mat<f32>,
        b: Mat<f32>,
        start: StartValue,
        c: &mut [f32],
        c_stride: usize,
    ) {
        let multiply = match self {
            Precision::Bf16 if m * n * k >= WORTH_ROUNDING => gemm_rounded,
            _ => gemm::<f32>,
        };
        multiply(current(), (m, n, k), a, b, start, c, c_stride);
    }
}
