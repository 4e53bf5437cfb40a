//! Normalisation by the root mean square of the last dimension:
//! `y = w x^`, `x^ = x / sqrt(mean(x^2) + eps)`.

use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::simd::{dot, vectorised};
use crate::stock;
use crate::storage::with_slices;
use crate::threads::{share, split, sum_over, thread_ranges};
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// Divides the last dimension of `x` (.., d) by its root mean square, then multiplies by `weight` (d).
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let d = weight.elem_count();
    if weight.rank() != 1 || d == 0 || x.dims().last() != Some(&d) {
        candle_core::bail!(
            "rms norm of {:?} with weight {:?}; expected (.., d) and (d)",
            x.dims(),
            weight.dims()
        );
    }
    let op = RmsNorm { eps: eps as f32 };
    apply(op, [x, weight], || stock::rms_norm(x, weight, eps))
}

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
fn scale(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn forward(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    let d = w.len();
    for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
        let r = scale(x, eps);
        for i in 0..d {
            y[i] = x[i] * r * w[i];
        }
    }
}

/// `dx = r (g - x^ mean(g x^))` with `g = dy w`; adds `dw += dy x^`.
#[inline(always)]
fn backward(x: &[f32], w: &[f32], eps: f32, dy: &[f32], dx: &mut [f32], dw: &mut [f32]) {
    let d = w.len();
    let rows = x.chunks_exact(d).zip(dy.chunks_exact(d));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(d)) {
        let r = scale(x, eps);
        for i in 0..d {
            dx[i] = dy[i] * w[i];
            dw[i] = (dy[i] * r).mul_add(x[i], dw[i]);
        }
        let along = dot(dx, x) * r * r / d as f32;
        for i in 0..d {
            dx[i] = r * (dx[i] - x[i] * along);
        }
    }
}

struct RmsNorm {
    eps: f32,
}

impl Operator<2> for RmsNorm {
    const NAME: &'static str = "rms-norm";

    fn forward(&self, [x, w]: [&[f32]; 2], [lx, _]: [&Layout; 2]) -> Result<Output> {
        let mut y = vec![0.0; x.len()];
        let len = share(x.len() / w.len()) * w.len();
        let pairs = y.par_chunks_mut(len).zip(x.par_chunks(len));
        pairs.for_each(|(y, x)| {
            vectorised!(forward(x, w, self.eps, y));
        });
        Ok((y, lx.shape().clone()))
    }

    fn backward(&self, [x, w]: [&Tensor; 2], dy: &Tensor) -> Gradients<2> {
        let d = w.elem_count();
        let (dx, dw) = with_slices([x, w, dy], |[x, w, dy]| {
            let mut dx = vec![0.0; x.len()];
            let rows = x.len() / d;
            let ranges = thread_ranges(rows);
            let parts = split(&mut dx, rows, &ranges);
            let jobs = ranges.iter().zip(parts).collect();
            let dw = sum_over(d, jobs, |(range, dx), dw| {
                let range = range.start * d..range.end * d;
                let (x, dy) = (&x[range.clone()], &dy[range]);
                vectorised!(backward(x, w, self.eps, dy, dx, dw));
            });
            (dx, dw)
        })?;
        gradients([x, w], [Some(dx), Some(dw)])
    }
}
