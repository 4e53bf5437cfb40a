//! Normalisation by the root mean square of the last dimension:
//! `y = w x^`, `x^ = x / sqrt(mean(x^2) + eps)`.

use crate::simd::{dot, vectorised};
use crate::stock;
use crate::storage::{fused, slice, tensor, with_slices};
use crate::threads::{split, sum_over, thread_ranges};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// Divides the last dimension of `x` (.., d) by its root mean square, then multiplies by `weight` (d).
///
/// # Errors
/// When the shapes disagree.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let d = weight.elem_count();
    if weight.rank() != 1 || d == 0 || x.dims().last() != Some(&d) {
        candle_core::bail!("rms norm of {:?} with weight {:?}", x.dims(), weight.dims());
    }
    if fused(&[x, weight])? {
        let op = RmsNorm { eps: eps as f32 };
        x.contiguous()?.apply_op2(&weight.contiguous()?, op)
    } else {
        stock::rms_norm(x, weight, eps)
    }
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

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        w: &CpuStorage,
        lw: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, w) = (slice(x, lx)?, slice(w, lw)?);
        let mut y = vec![0.0; x.len()];
        let rows = (x.len() / w.len()).div_ceil(rayon::current_num_threads());
        let len = rows.max(1) * w.len();
        let pairs = y.par_chunks_mut(len).zip(x.par_chunks(len));
        pairs.for_each(|(y, x)| {
            vectorised!(forward(x, w, self.eps, y));
        });
        Ok((CpuStorage::F32(y), lx.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        _y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
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
        Ok((Some(tensor(dx, x.shape())?), Some(tensor(dw, w.shape())?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_slopes, difference, random};

    #[test]
    fn equals_stock_candle_and_its_gradients_are_slopes() {
        let norm = |x: &Tensor, w: &Tensor, b: &Tensor| {
            stock::rms_norm(x, w, 1e-3)?.broadcast_add(b) // for a third argument
        };
        let case = [
            random(0, (2, 5, 19)),
            random(1, 19),
            random(2, 19),
            random(3, (2, 5, 19)),
        ];
        let y = rms_norm(&case[0], &case[1], 1e-3).unwrap();
        let expected = stock::rms_norm(&case[0], &case[1], 1e-3).unwrap();
        assert!(difference(&y, &expected) < 1e-6);
        let y = y.broadcast_add(case[2].as_tensor()).unwrap();
        let loss = (y * case[3].as_tensor()).unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        let of = |i: usize| gradients.get(&case[i]).unwrap().clone();
        check_slopes(norm, &case, &[of(0), of(1), of(2)], 1e-4);
    }

    #[test]
    fn shapes_that_disagree_are_refused() {
        assert!(rms_norm(&random(0, (2, 4)), &random(1, 3), 1e-5).is_err());
        assert!(rms_norm(&random(0, (2, 4)), &random(1, (2, 4)), 1e-5).is_err());
    }
}
