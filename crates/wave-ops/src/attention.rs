//! Multi-head self-attention of one sample over plain slices:
//! `o = softmax(q k^T / sqrt(h)) v` per head of width `h`.
//!
//! `qkv` holds one row per token: all queries, then all keys, then all values, heads side by side:
//! (n, 3 heads h).

use crate::arithmetic::Precision;
use crate::gemm::{StartValue, rows, transposed};
use crate::simd::{LANES, dot, fill_up, softmax, vectorised};

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

    /// Tokens padded to whole registers, so that no row of scores has a remainder.
    fn row(&self) -> usize {
        self.tokens.next_multiple_of(LANES)
    }

    /// Values in the scores of one head.
    pub(crate) fn scores(&self) -> usize {
        self.tokens * self.row()
    }

    /// The scale of the scores: `1 / sqrt(h)`.
    fn scale(&self) -> f32 {
        1.0 / (self.head_width as f32).sqrt()
    }
}

/// Writes the outputs to `o` (n, heads h).
pub(crate) fn forward(
    precision: Precision,
    shape: AttentionShape,
    qkv: &[f32],
    o: &mut [f32],
    p: &mut [f32], // scratch for the scores of one head
) {
    let (n, h, d) = (shape.tokens, shape.head_width, shape.width());
    for head in 0..shape.heads {
        probabilities(precision, shape, qkv, head, p);
        let (p, v) = (rows(p, shape.row()), rows(&qkv[2 * d + head * h..], 3 * d));
        precision.product((n, h, n), p, v, StartValue::Zero, &mut o[head * h..], d);
    }
}

/// `p = softmax(q k^T / sqrt(h))` of one head, (n, n), rows padded with zeros.
fn probabilities(
    precision: Precision,
    shape: AttentionShape,
    qkv: &[f32],
    head: usize,
    p: &mut [f32],
) {
    let (n, h, d) = (shape.tokens, shape.head_width, shape.width());
    let part = |i: usize| &qkv[i * d + head * h..]; // q, k, v
    let (q, k_t) = (rows(part(0), 3 * d), transposed(part(1), 3 * d));
    precision.product((n, n, h), q, k_t, StartValue::Zero, p, shape.row());
    vectorised!({
        for row in p.chunks_exact_mut(shape.row()) {
            fill_up(row, n, f32::NEG_INFINITY);
            softmax(row, shape.scale());
            fill_up(row, n, 0.0);
        }
    });
}

/// Writes `d qkv` given `d o` and the saved `qkv`; the probabilities are recomputed, which costs
/// less than storing and loading them.
///
/// ```text
/// dv = p^T do    dp = do v^T    ds = p (dp - sum(dp p)) / sqrt(h)    dq = ds k    dk = ds^T q
/// ```
pub(crate) fn backward(
    precision: Precision,
    shape: AttentionShape,
    qkv: &[f32],
    d_o: &[f32],
    d_qkv: &mut [f32],
    p: &mut [f32],  // scratch for the scores of one head
    ds: &mut [f32], // the same
) {
    let (n, h, d) = (shape.tokens, shape.head_width, shape.width());
    let row = shape.row();
    let scale = shape.scale();
    for head in 0..shape.heads {
        probabilities(precision, shape, qkv, head, p);
        let at = |i: usize| i * d + head * h; // q, k, v
        let part = |i: usize| &qkv[at(i)..];
        let d_o = rows(&d_o[head * h..], d);
        let (p_t, d_v) = (transposed(p, row), &mut d_qkv[at(2)..]);
        precision.product((n, h, n), p_t, d_o, StartValue::Zero, d_v, 3 * d);
        let v_t = transposed(part(2), 3 * d);
        precision.product((n, n, h), d_o, v_t, StartValue::Zero, ds, row);
        vectorised!({
            for (ds, p) in ds.chunks_exact_mut(row).zip(p.chunks_exact(row)) {
                fill_up(ds, n, 0.0);
                let mean = dot(ds, p);
                for (ds, p) in ds.iter_mut().zip(p) {
                    *ds = p * (*ds - mean) * scale;
                }
            }
        });
        let (k, d_q) = (rows(part(1), 3 * d), &mut d_qkv[at(0)..]);
        precision.product((n, h, n), rows(ds, row), k, StartValue::Zero, d_q, 3 * d);
        let (ds_t, q) = (transposed(ds, row), rows(part(0), 3 * d));
        let d_k = &mut d_qkv[at(1)..];
        precision.product((n, h, n), ds_t, q, StartValue::Zero, d_k, 3 * d);
    }
}
