//! Multi-head self-attention of one sample over plain slices:
//! `o = softmax(q k^T / sqrt(h)) v` per head of width `h`.
//!
//! `qkv` holds one row per token: all queries, then all keys, then all values, heads side by side:
//! (n, 3 heads h). Scores are (heads, n, n).

use crate::gemm::{Into, gemm, rows, transposed};
use crate::simd::{dot, softmax};

/// Numbers of tokens, heads, and channels of a head.
#[derive(Clone, Copy)]
pub(crate) struct AttentionShape {
    pub(crate) tokens: usize,
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
}

impl AttentionShape {
    fn width(&self) -> usize {
        self.heads * self.head_width
    }
}

/// Writes the outputs to `o` (n, heads h) and the softmax to `p` (heads, n, n).
#[inline(always)]
pub(crate) fn forward(shape: AttentionShape, qkv: &[f32], o: &mut [f32], p: &mut [f32]) {
    let (n, h, d) = (shape.tokens, shape.head_width, shape.width());
    let scale = 1.0 / (h as f32).sqrt();
    for (head, p) in p.chunks_exact_mut(n * n).enumerate() {
        let q = rows(&qkv[head * h..], 3 * d);
        let k_t = transposed(&qkv[d + head * h..], 3 * d);
        let v = rows(&qkv[2 * d + head * h..], 3 * d);
        gemm((n, n, h), scale, q, k_t, Into::Overwrite, p, n);
        for row in p.chunks_exact_mut(n) {
            softmax(row);
        }
        gemm(
            (n, h, n),
            1.0,
            rows(p, n),
            v,
            Into::Overwrite,
            &mut o[head * h..],
            d,
        );
    }
}

/// Writes `d qkv` given `d o`, the saved `qkv` and softmax `p`:
/// `dv = p^T do`, `dp = do v^T`, `ds = p (dp - sum(dp p)) / sqrt(h)`, `dq = ds k`, `dk = ds^T q`.
#[inline(always)]
pub(crate) fn backward(
    shape: AttentionShape,
    qkv: &[f32],
    p: &[f32],
    d_o: &[f32],
    d_qkv: &mut [f32],
    ds: &mut [f32], // scratch, (n, n)
) {
    let (n, h, d) = (shape.tokens, shape.head_width, shape.width());
    let scale = 1.0 / (h as f32).sqrt();
    for (head, p) in p.chunks_exact(n * n).enumerate() {
        let (q, k, v) = (head * h, d + head * h, 2 * d + head * h);
        let d_o = rows(&d_o[head * h..], d);
        gemm(
            (n, h, n),
            1.0,
            transposed(p, n),
            d_o,
            Into::Overwrite,
            &mut d_qkv[v..],
            3 * d,
        );
        gemm(
            (n, n, h),
            1.0,
            d_o,
            transposed(&qkv[v..], 3 * d),
            Into::Overwrite,
            ds,
            n,
        );
        for (ds, p) in ds.chunks_exact_mut(n).zip(p.chunks_exact(n)) {
            let mean = dot(ds, p);
            for (ds, p) in ds.iter_mut().zip(p) {
                *ds = p * (*ds - mean) * scale;
            }
        }
        let k_rows = rows(&qkv[k..], 3 * d);
        let q_rows = rows(&qkv[q..], 3 * d);
        gemm(
            (n, h, n),
            1.0,
            rows(ds, n),
            k_rows,
            Into::Overwrite,
            &mut d_qkv[q..],
            3 * d,
        );
        gemm(
            (n, h, n),
            1.0,
            transposed(ds, n),
            q_rows,
            Into::Overwrite,
            &mut d_qkv[k..],
            3 * d,
        );
    }
}
