//! Building blocks of the operators over plain slices, on the calling thread. Inference-only
//! networks fuse and split them in their own ways.
//!
//! All functions use the instructions given by [`crate::simd()`].

use crate::cpu::current;
use crate::gemm;

pub use crate::gelu::value as gelu;
pub use crate::gemm::{Mat, StartValue, rows, transposed};
pub use crate::storage::with_slices;

/// The right side of several products, in the layout that they read.
pub struct Right(gemm::Packed<f32>);

impl Right {
    /// Copies `b` (k, n).
    ///
    /// # Panics
    /// If `b` is smaller.
    pub fn new(size: (usize, usize), b: Mat) -> Right {
        Right(gemm::Packed::new(current(), size, b))
    }
}

/// `C = start + A B`: `A` (m, k), `B` (k, n), `C` (m, n) with rows `c_stride` apart.
///
/// # Panics
/// If an operand is smaller than the size `(m, n, k)` says.
pub fn multiply(
    size: (usize, usize, usize),
    a: Mat,
    b: Mat,
    start: StartValue,
    c: &mut [f32],
    c_stride: usize,
) {
    gemm::gemm(current(), size, a, b, start, c, c_stride);
}

/// True if [`multiply`] reads contiguous `B` in place, in products of at most this size `(m, n, k)`; otherwise it copies
/// `B` each time.
pub fn reads_in_place((m, n, k): (usize, usize, usize)) -> bool {
    gemm::reads_in_place::<f32>(current(), (m, n, k), n)
}

/// [`multiply`] with a right side that was copied in advance, and `m` rows.
///
/// # Panics
/// If an operand is smaller than `m` and the size of the right side require.
pub fn multiply_copied(
    m: usize,
    a: Mat,
    b: &Right,
    start: StartValue,
    c: &mut [f32],
    c_stride: usize,
) {
    gemm::gemm_packed(m, a, &b.0, start, c, c_stride);
}

/// Replaces every `n` values by their softmax.
///
/// # Panics
/// If `n` is 0.
pub fn softmax(x: &mut [f32], n: usize) {
    crate::simd::vectorised!({
        for row in x.chunks_exact_mut(n) {
            crate::simd::softmax(row, 1.0);
        }
    });
}

/// Runs a loop compiled for the current instruction set. `f`, and all functions that it calls, must
/// be `#[inline(always)]`.
#[inline(always)]
pub fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    current().arch().dispatch(f)
}
