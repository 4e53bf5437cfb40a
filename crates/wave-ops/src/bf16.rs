//! Rounding to bf16, the upper half of an `f32`, in the layouts that matrix products read.
//!
//! bf16 products take two neighbours along the summed dimension at once, so both operands are
//! stored as [`Pair`]s: the left side pairs neighbours in a row, the right side neighbours in a
//! column. A missing last partner is zero.

use crate::buffer::Buffer;
use pulp::bytemuck::{self, Pod, Zeroable};

/// Two bf16 values, the first in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Pair(pub(crate) u32);

// SAFETY: a transparent wrapper of `u32`.
unsafe impl Zeroable for Pair {}
unsafe impl Pod for Pair {}

/// The bits of the nearest bf16 in the upper half, ties to even; the lower half is arbitrary.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let up = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // Rounding a NaN might carry into its sign bit, so set a mantissa bit and keep it a NaN.
    if x.is_nan() { bits | 0x40_0000 } else { up }
}

/// The pairs in a buffer of `f32`.
pub(crate) fn pairs(buffer: &Buffer) -> &[Pair] {
    bytemuck::cast_slice(buffer)
}

/// The nearest bf16 value.
#[inline(always)]
pub(crate) fn narrowed(x: f32) -> u16 {
    (rounded(x) >> 16) as u16
}

/// A bf16 value as `f32`.
#[inline(always)]
pub(crate) fn widened(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Pairs neighbours of each row of a matrix (rows, k), whose rows are `stride` apart in `x`: (rows,
/// width), with zeros after the first ceil(k / 2).
pub(crate) fn pair_columns(
    x: &[f32],
    (rows, k): (usize, usize),
    stride: usize,
    width: usize,
) -> Buffer {
    let mut out = Buffer::stale(rows * width);
    let halves: &mut [u16] = bytemuck::cast_slice_mut(&mut out);
    crate::simd::vectorised!({
        if 2 * width == k && stride == k {
            for (h, x) in halves.iter_mut().zip(x) {
                *h = narrowed(*x);
            }
        } else if width > 0 {
            for (i, h) in halves.chunks_exact_mut(2 * width).enumerate() {
                for (h, x) in h.iter_mut().zip(&x[i * stride..][..k]) {
                    *h = narrowed(*x);
                }
                h[k..].fill(0);
            }
        }
    });
    out
}

/// Pairs neighbours of each column of a matrix (rows, n), whose rows are `stride` apart in `x`:
/// (height, n), with zeros after the first ceil(rows / 2).
pub(crate) fn pair_rows(
    x: &[f32],
    (rows, n): (usize, usize),
    stride: usize,
    height: usize,
) -> Buffer {
    let mut out = Buffer::stale(height * n);
    let pairs: &mut [u32] = bytemuck::cast_slice_mut(&mut out);
    crate::simd::vectorised!({
        for (i, pairs) in pairs.chunks_exact_mut(n.max(1)).enumerate() {
            let row = |i: usize| (i < rows).then(|| &x[i * stride..][..n]);
            match (row(2 * i), row(2 * i + 1)) {
                (Some(first), Some(second)) => {
                    for ((p, a), b) in pairs.iter_mut().zip(first).zip(second) {
                        *p = rounded(*a) >> 16 | rounded(*b) & 0xffff_0000;
                    }
                }
                (Some(first), None) => {
                    for (p, a) in pairs.iter_mut().zip(first) {
                        *p = rounded(*a) >> 16;
                    }
                }
                (None, _) => pairs.fill(0),
            }
        }
    });
    out
}
