//! Batch normalisation over all but the last dimension:
//! `y = weight x^ + bias`, `x^ = (u - mean) / sqrt(var + eps)`, where `u` is `x` or `gelu(x)`.
//!
//! Statistics are computed in chunks that fit the L1 cache, each in two passes around its own mean,
//! and merged in `f64` (Chan, Golub and LeVeque 1979). So `x` is read once, there is no
//! cancellation, and the number of threads does not change the result.

use crate::fused::{Gradients, Operator, Output, apply, call, gradients};
use crate::gelu::{value as gelu, value_and_slope as gelu_and_slope};
use crate::simd::{add_column_sums, vectorised};
use crate::storage::{fused, tensor, with_slice, with_slices};
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// Normalises each channel of `x` with the statistics of this batch. Gradients flow through the
/// statistics.
///
/// # Shapes
/// `x` (.., c), `weight` (c), `bias` (c); the result is `(y, mean, var)` of shapes (.., c), (c)
/// and (c). `var` divides by the count, not by one less; `mean` and `var` carry no gradient.
///
/// # Errors
/// When the shapes disagree or `x` is empty.
pub fn batch_norm_train(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    train::<false>(x, weight, bias, eps)
}

/// [`batch_norm_train`] of `gelu(x)` (exact form); `mean` and `var` describe `gelu(x)`.
pub fn gelu_batch_norm_train(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    train::<true>(x, weight, bias, eps)
}

/// Normalises each channel of `x` with given statistics: an affine map per channel.
///
/// # Shapes
/// `x` (.., c), all others (c); the result is (.., c).
pub fn batch_norm_eval(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    mean: &Tensor,
    var: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let c = check_channels(x, [weight, bias, mean, var])?;
    let scale = (weight / (var + eps)?.sqrt()?)?;
    let shift = (bias - (mean * &scale)?)?;
    // With a mean of 0 and a variance of 1.
    let op = BatchNorm::<false> {
        mean: vec![0.0; c],
        inverse_std: vec![1.0; c],
        of_batch: false,
    };
    apply(op, [x, &scale, &shift], || {
        x.broadcast_mul(&scale)?.broadcast_add(&shift)
    })
}

fn check_channels<const N: usize>(x: &Tensor, parameters: [&Tensor; N]) -> Result<usize> {
    let (dims, parameters) = (x.dims(), parameters.map(Tensor::dims));
    match dims.last() {
        Some(&c) if c > 0 && parameters.iter().all(|dims| *dims == [c]) => Ok(c),
        _ => candle_core::bail!(
            "batch norm of {dims:?} with parameters {parameters:?}; expected (.., c) and (c) for each"
        ),
    }
}

fn train<const GELU: bool>(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor, Tensor)> {
    let c = check_channels(x, [weight, bias])?;
    if x.elem_count() == 0 {
        let dims = x.dims();
        candle_core::bail!("batch norm of an empty batch {dims:?}: it has no statistics");
    }
    if !fused(&[x, weight, bias])? {
        let u = x.reshape(((), c))?; // (n, c)
        let u = if GELU { u.gelu_erf()? } else { u };
        let mean = u.mean(0)?; // (c)
        let centred = u.broadcast_sub(&mean)?;
        let var = centred.sqr()?.mean(0)?;
        let x_hat = centred.broadcast_div(&(&var + eps)?.sqrt()?)?;
        let y = x_hat.broadcast_mul(weight)?.broadcast_add(bias)?;
        return Ok((y.reshape(x.shape())?, mean.detach(), var.detach()));
    }
    let x = x.contiguous()?;
    let (mean, var) = with_slice(&x, |x| statistics::<GELU>(x, c))?;
    let inverse_std = |v: &f32| (1.0 / (*v as f64 + eps).sqrt()) as f32;
    let op = BatchNorm::<GELU> {
        mean: mean.clone(),
        inverse_std: var.iter().map(inverse_std).collect(),
        of_batch: true,
    };
    let y = call(op, [&x, weight, bias])?;
    Ok((y, tensor(mean, c)?, tensor(var, c)?))
}

/// Values per chunk of whole rows: half of a small L1 cache.
fn chunk(c: usize) -> usize {
    ((1 << 12) / c).max(1) * c
}

/// Mean and biased variance of each channel of `u` (n, c).
fn statistics<const GELU: bool>(x: &[f32], c: usize) -> (Vec<f32>, Vec<f32>) {
    let parts: Vec<(Vec<f32>, Vec<f32>)> = x
        .par_chunks(chunk(c))
        .map_init(Vec::new, |u, x| {
            vectorised!(chunk_statistics::<GELU>(x, c, u))
        })
        .collect();
    let (mut n, mut mean, mut m2) = (0.0, vec![0.0; c], vec![0.0; c]); // f64
    for ((part_mean, part_m2), x) in parts.iter().zip(x.chunks(chunk(c))) {
        let rows = (x.len() / c) as f64;
        let total = n + rows;
        for i in 0..c {
            let delta = part_mean[i] as f64 - mean[i];
            mean[i] += delta * rows / total;
            m2[i] += part_m2[i] as f64 + delta * delta * n * rows / total;
        }
        n = total;
    }
    let var = m2.iter().map(|m2| (m2 / n) as f32).collect();
    (mean.iter().map(|m| *m as f32).collect(), var)
}

/// Mean and summed squared deviation of each channel of a few rows; `u` is scratch.
#[inline(always)]
fn chunk_statistics<const GELU: bool>(
    x: &[f32],
    c: usize,
    u: &mut Vec<f32>,
) -> (Vec<f32>, Vec<f32>) {
    let (mut mean, mut m2) = (vec![0.0; c], vec![0.0; c]);
    let u = if GELU {
        u.resize(x.len(), 0.0);
        for (u, x) in u.iter_mut().zip(x) {
            *u = gelu(*x);
        }
        &u[..]
    } else {
        x
    };
    add_column_sums(u, &mut mean);
    let scale = c as f32 / x.len() as f32;
    for m in &mut mean {
        *m *= scale;
    }
    for u in u.chunks_exact(c) {
        for ((m2, m), u) in m2.iter_mut().zip(&mean).zip(u) {
            *m2 = (u - m).mul_add(u - m, *m2);
        }
    }
    (mean, m2)
}

struct BatchNorm<const GELU: bool> {
    mean: Vec<f32>,
    inverse_std: Vec<f32>,
    /// True if the statistics are the batch's, so that gradients flow through them.
    of_batch: bool,
}

impl<const GELU: bool> BatchNorm<GELU> {
    /// `weight / std`.
    fn scale(&self, weight: &[f32]) -> Vec<f32> {
        let pairs = weight.iter().zip(&self.inverse_std);
        pairs.map(|(w, r)| w * r).collect()
    }

    /// `(sum dy, sum dy x^)` of each channel, one after the other: per chunk, then added in order.
    fn gradient_sums(&self, x: &[f32], dy: &[f32]) -> Vec<f64> {
        let c = self.mean.len();
        let parts = x.par_chunks(chunk(c)).zip(dy.par_chunks(chunk(c)));
        let part = |(x, dy): (&[f32], &[f32])| {
            vectorised!({
                let c = self.mean.len(); // a copy: stores cannot change it
                let (mean, inverse_std) = (&self.mean[..c], &self.inverse_std[..c]);
                let mut sums = vec![0_f32; 2 * c];
                let (s, sx) = sums.split_at_mut(c);
                for (x, dy) in x.chunks_exact(c).zip(dy.chunks_exact(c)) {
                    for i in 0..c {
                        let u = if GELU { gelu(x[i]) } else { x[i] };
                        s[i] += dy[i];
                        sx[i] = dy[i].mul_add(u - mean[i], sx[i]);
                    }
                }
                for i in 0..c {
                    sx[i] *= inverse_std[i];
                }
                sums
            })
        };
        let parts: Vec<Vec<f32>> = parts.map(part).collect();
        let mut total = vec![0.0; 2 * c];
        for part in parts {
            for (t, p) in total.iter_mut().zip(part) {
                *t += p as f64;
            }
        }
        total
    }
}

impl<const GELU: bool> Operator<3> for BatchNorm<GELU> {
    const NAME: &'static str = if GELU {
        "gelu-batch-norm"
    } else {
        "batch-norm"
    };

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, ..]: [&Layout; 3]) -> Result<Output> {
        let y = affine::<GELU>(x, &self.scale(w), &self.mean, b);
        Ok((y, lx.shape().clone()))
    }

    /// `dx = weight / std (dy - mean(dy) - x^ mean(dy x^))`, times `gelu'(x)` if applicable.
    fn backward(&self, [x, w, b]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let c = self.mean.len();
        let (chunk, n) = (chunk(c), (x.elem_count() / c) as f64);
        let (dx, sums) = with_slices([x, w, dy], |[x, w, dy]| {
            let (scale, sums) = (self.scale(w), self.gradient_sums(x, dy));
            if !self.of_batch {
                let zero = vec![0.0; c];
                return (affine::<false>(dy, &scale, &zero, &zero), sums);
            }
            let mean = |s: &f64| (s / n) as f32;
            let dy_mean: Vec<f32> = sums[..c].iter().map(mean).collect();
            let dyx_mean = sums[c..].iter().zip(&self.inverse_std);
            let dyx_mean: Vec<f32> = dyx_mean.map(|(s, r)| mean(s) * r).collect(); // mean(dy x^) / std
            let mut dx = vec![0.0; x.len()];
            let chunks = x.par_chunks(chunk).zip(dy.par_chunks(chunk));
            let chunks = chunks.zip(dx.par_chunks_mut(chunk));
            chunks.for_each(|((x, dy), dx)| {
                vectorised!({
                    let c = self.mean.len(); // a copy: stores cannot change it
                    let (mean, scale) = (&self.mean[..c], &scale[..c]);
                    let (dy_mean, dyx_mean) = (&dy_mean[..c], &dyx_mean[..c]);
                    let rows = x.chunks_exact(c).zip(dy.chunks_exact(c));
                    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(c)) {
                        for i in 0..c {
                            let (u, slope) = if GELU {
                                gelu_and_slope(x[i])
                            } else {
                                (x[i], 1.0)
                            };
                            let centred = dy[i] - dy_mean[i];
                            dx[i] = (mean[i] - u).mul_add(dyx_mean[i], centred) * scale[i] * slope;
                        }
                    }
                })
            });
            (dx, sums)
        })?;
        let mut db: Vec<f32> = sums.iter().map(|s| *s as f32).collect();
        let dw = db.split_off(c);
        gradients([x, w, b], [Some(dx), Some(dw), Some(db)])
    }
}

/// `scale (u - centre) + shift` for each row of `x` (n, c).
fn affine<const GELU: bool>(x: &[f32], scale: &[f32], centre: &[f32], shift: &[f32]) -> Vec<f32> {
    let c = scale.len();
    let mut y = vec![0.0; x.len()];
    x.par_chunks(chunk(c))
        .zip(y.par_chunks_mut(chunk(c)))
        .for_each(|(x, y)| {
            vectorised!({
                let (scale, centre, shift) = (&scale[..c], &centre[..c], &shift[..c]);
                for (x, y) in x.chunks_exact(c).zip(y.chunks_exact_mut(c)) {
                    for i in 0..c {
                        let u = if GELU { gelu(x[i]) } else { x[i] };
                        y[i] = (u - centre[i]).mul_add(scale[i], shift[i]);
                    }
                }
            })
        });
    y
}
