//! Layer normalisation over the last dimension:
//! `y = w x^ + b`, `x^ = (x - mean) / sqrt(var + eps)`.

use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::shape::misfit;
use crate::simd::{LANES, dot, reduce_sum, sum, vectorised};
use crate::stock;
use crate::storage::{with_slice, with_slices};
use crate::threads::{share, split, sum_over, thread_ranges};
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// Normalises the last dimension of `x` (.., d) to mean 0 and variance 1, then applies the
/// elementwise `weight` (d) and `bias` (d).
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let d = weight.elem_count();
    if d == 0 || x.dims().last() != Some(&d) || bias.elem_count() != d {
        return misfit("layer norm", [x, weight, bias].map(Tensor::dims), "");
    }
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&[x, weight, bias])?
        && crate::gpu::fits_norm(d)
    {
        return crate::gpu::layer_norm(place, x, weight, bias, eps);
    }
    let op = LayerNorm { eps: eps as f32 };
    apply(op, [x, weight, bias], || {
        stock::layer_norm(x, weight, bias, eps)
    })
}

/// Mean and `1 / sqrt(var + eps)` of one row.
#[inline(always)]
fn statistics(x: &[f32], eps: f32) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = sum(x) / n;
    let mut acc = [0.0; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (a, v) in acc.iter_mut().zip(chunk) {
            let c = v - mean;
            *a = c.mul_add(c, *a);
        }
    }
    let tail: f32 = tail.iter().map(|v| (v - mean) * (v - mean)).sum();
    let var = (reduce_sum(acc) + tail) / n;
    (mean, 1.0 / (var + eps).sqrt())
}

/// Rows of `x` (.., d) to rows of `y`.
#[inline(always)]
pub(crate) fn forward(x: &[f32], w: &[f32], b: &[f32], eps: f32, y: &mut [f32]) {
    let d = w.len();
    let b = &b[..d];
    for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
        let (mean, r) = statistics(x, eps);
        for i in 0..d {
            y[i] = ((x[i] - mean) * r).mul_add(w[i], b[i]);
        }
    }
}

/// Adds the gradients of [`forward`] to `dx`, `dw` and `db`:
/// `dx += r (g - mean(g) - x^ mean(g x^))` with `g = dy w`; `dw += dy x^`; `db += dy`.
/// The row statistics are recomputed, which is cheaper than storing them. `dy` is overwritten.
#[inline(always)]
pub(crate) fn backward(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &mut [f32],
    dx: &mut [f32],
    dw: &mut [f32],
    db: &mut [f32],
    x_hat: &mut [f32], // scratch, (d)
) {
    let d = w.len();
    let (dw, db, x_hat) = (&mut dw[..d], &mut db[..d], &mut x_hat[..d]);
    for ((x, g), dx) in x
        .chunks_exact(d)
        .zip(dy.chunks_exact_mut(d))
        .zip(dx.chunks_exact_mut(d))
    {
        let (mean, r) = statistics(x, eps);
        for i in 0..d {
            let h = (x[i] - mean) * r;
            x_hat[i] = h;
            dw[i] = g[i].mul_add(h, dw[i]);
            db[i] += g[i];
            g[i] *= w[i];
        }
        let g_mean = sum(g) / d as f32;
        let gx_mean = dot(g, x_hat) / d as f32;
        for i in 0..d {
            dx[i] += r * (g[i] - g_mean - x_hat[i] * gx_mean);
        }
    }
}

struct LayerNorm {
    eps: f32,
}

impl Operator<3> for LayerNorm {
    const NAME: &'static str = "layer-norm";

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, ..]: [&Layout; 3]) -> Result<Output> {
        let mut y = vec![0.0; x.len()];
        let len = share(x.len() / w.len()) * w.len();
        let pairs = y.par_chunks_mut(len).zip(x.par_chunks(len));
        pairs.for_each(|(y, x)| {
            vectorised!(forward(x, w, b, self.eps, y));
        });
        Ok((y, lx.shape().clone()))
    }

    fn backward(&self, [x, w, b]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let d = w.elem_count();
        let mut dy = with_slice(dy, <[f32]>::to_vec)?;
        let mut dx = vec![0.0; dy.len()];
        let mut dw = with_slices([x, w], |[x, w]| {
            let rows = x.len() / d;
            let ranges = thread_ranges(rows);
            let parts = split(&mut dy, rows, &ranges).zip(split(&mut dx, rows, &ranges));
            let jobs = ranges.iter().zip(parts).collect();
            sum_over(2 * d, jobs, |(range, (dy, dx)), sums| {
                let x = &x[range.start * d..range.end * d];
                let (dw, db) = sums.split_at_mut(d);
                let scratch = &mut vec![0.0; d];
                vectorised!(backward(x, w, self.eps, dy, dx, dw, db, scratch));
            })
        })?;
        let db = dw.split_off(d);
        gradients([x, w, b], [Some(dx), Some(dw), Some(db)])
    }
}
