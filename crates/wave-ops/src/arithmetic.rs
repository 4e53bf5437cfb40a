//! The precision of matrix products.

use crate::cpu::Simd;
use crate::gemm::{Mat, StartValue, gemm, gemm_rounded};

/// Multiplications from which on a product in bf16 is faster, its factors' rounding included.
const WORTH_ROUNDING: usize = 1 << 16;

/// The type in which matrices of the blocks are multiplied. Sums, parameters and gradients are
/// `f32` in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Factors, and the MLP's activations kept for the backward pass, rounded to bf16: on a processor that
    /// multiplies them faster ([`Simd::has_bf16`](crate::Simd::has_bf16)), which otherwise computes
    /// as [`Precision::F32`], and on every other device. On a GPU all values inside a branch are.
    Bf16,
}

/// Instructions and precision of matrix products.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    pub(crate) simd: Simd,
    pub(crate) precision: Precision,
}

impl Arithmetic {
    /// With `f32` where the processor is not faster in bf16.
    pub(crate) fn new(simd: Simd, precision: Precision) -> Arithmetic {
        let precision = if simd.has_bf16() {
            precision
        } else {
            Precision::F32
        };
        Arithmetic { simd, precision }
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
        let multiply = match self.precision {
            Precision::Bf16 if m * n * k >= WORTH_ROUNDING => gemm_rounded,
            _ => gemm::<f32>,
        };
        multiply(self.simd, (m, n, k), a, b, start, c, c_stride);
    }
}
