//! Causal depthwise convolution over the positions of sequences:
//! `y[t, c] = bias[c] + sum over k of weight[c, k] x[t - (taps - 1) + k, c]`, with x zero before the
//! first position. The last tap is at the current position.

use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::shape::misfit;
use crate::simd::{add_column_sums, vectorised};
use crate::stock;
use crate::storage::with_slices;
use crate::threads::{split, sum_over, thread_ranges};
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// Convolves every channel with its own taps.
///
/// # Shapes
/// `x` (b, t, c), `weight` (c, taps), `bias` (c); the result is (b, t, c).
///
/// # Errors
/// If the shapes disagree, or there are no taps.
pub fn causal_convolution(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let ((_, _, c), (channels, taps)) = (x.dims3()?, weight.dims2()?);
    if channels != c || bias.dims() != [c] || taps == 0 || c == 0 {
        let expected = "; expected (b, t, c), (c, taps) and (c)";
        let found = [x, weight, bias].map(Tensor::dims);
        return misfit("causal convolution", found, expected);
    }
    // Layout (taps, c), so that neighbouring channels are computed together.
    let turned = weight.t()?;
    apply(CausalConvolution, [x, &turned, bias], || {
        stock::causal_convolution(x, weight, bias)
    })
}

/// One sequence, `x` to `y` (t, c); `weight` (taps, c).
#[inline(always)]
fn forward(x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    let c = bias.len();
    let taps = weight.len() / c;
    for (t, y) in y.chunks_exact_mut(c).enumerate() {
        y.copy_from_slice(bias);
        for back in 0..taps.min(t + 1) {
            let w = &weight[(taps - 1 - back) * c..][..c];
            let x = &x[(t - back) * c..][..c];
            for i in 0..c {
                y[i] = w[i].mul_add(x[i], y[i]);
            }
        }
    }
}

/// Adds the gradients of one sequence: `dx[t - back] += w dy[t]`, `dw += x[t - back] dy[t]`,
/// `db += dy[t]`.
#[inline(always)]
fn backward(x: &[f32], weight: &[f32], dy: &[f32], dx: &mut [f32], dw: &mut [f32], db: &mut [f32]) {
    let c = db.len();
    let taps = weight.len() / c;
    for (t, dy) in dy.chunks_exact(c).enumerate() {
        for back in 0..taps.min(t + 1) {
            let tap = (taps - 1 - back) * c;
            let (w, dw) = (&weight[tap..][..c], &mut dw[tap..][..c]);
            let at = (t - back) * c;
            let (x, dx) = (&x[at..][..c], &mut dx[at..][..c]);
            for i in 0..c {
                dx[i] = w[i].mul_add(dy[i], dx[i]);
                dw[i] = x[i].mul_add(dy[i], dw[i]);
            }
        }
    }
    add_column_sums(dy, db);
}

struct CausalConvolution;

impl Operator<3> for CausalConvolution {
    const NAME: &'static str = "causal-convolution";

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, ..]: [&Layout; 3]) -> Result<Output> {
        let (_, t, c) = lx.shape().dims3()?;
        let mut y = vec![0.0; x.len()];
        let len = (t * c).max(1);
        let pairs = y.par_chunks_mut(len).zip(x.par_chunks(len));
        pairs.for_each(|(y, x)| {
            vectorised!(forward(x, w, b, y));
        });
        Ok((y, lx.shape().clone()))
    }

    fn backward(&self, [x, w, b]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let ((n, t, c), (taps, _)) = (x.dims3()?, w.dims2()?);
        let len = t * c;
        let (dx, mut dw) = with_slices([x, w, dy], |[x, w, dy]| {
            let mut dx = vec![0.0; x.len()];
            let ranges = thread_ranges(n);
            let parts = split(&mut dx, n, &ranges);
            let jobs = ranges.iter().cloned().zip(parts).collect();
            let grads = sum_over(taps * c + c, jobs, |(range, dx), grads| {
                let (dw, db) = grads.split_at_mut(taps * c);
                for (i, dx) in range.zip(dx.chunks_mut(len.max(1))) {
                    let at = i * len..(i + 1) * len;
                    let (x, dy) = (&x[at.clone()], &dy[at]);
                    vectorised!(backward(x, w, dy, dx, dw, db));
                }
            });
            (dx, grads)
        })?;
        let db = dw.split_off(taps * c);
        gradients([x, w, b], [Some(dx), Some(dw), Some(db)])
    }
}
