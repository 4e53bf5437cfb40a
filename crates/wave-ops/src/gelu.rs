//! The Gaussian error linear unit, exact form: `gelu(x) = x Phi(x)`,
//! `Phi(x) = (1 + erf(x / sqrt 2)) / 2`.

use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::simd::{erf_exp, vectorised};
use crate::storage::with_slice;
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// `x Phi(x)`, elementwise, any shape.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&[x])? {
        return crate::gpu::gelu(place, x);
    }
    apply(Gelu, [x], || x.gelu_erf())
}

/// `1 / sqrt(2 pi)`.
const NORMAL_PEAK: f32 = 0.398_942_3;
const CHUNK: usize = 1 << 14;

/// `x Phi(x)`, see [`gelu()`].
#[inline(always)]
pub fn value(x: f32) -> f32 {
    let (erf, _) = erf_exp(x);
    0.5 * x * (1.0 + erf)
}

/// `(gelu(x), gelu'(x))` with `gelu'(x) = Phi(x) + x phi(x)`.
#[inline(always)]
pub(crate) fn value_and_slope(x: f32) -> (f32, f32) {
    let (erf, e) = erf_exp(x);
    let phi = 0.5 * (1.0 + erf);
    (x * phi, (x * e).mul_add(NORMAL_PEAK, phi))
}

struct Gelu;

impl Operator<1> for Gelu {
    const NAME: &'static str = "gelu";

    fn forward(&self, [x]: [&[f32]; 1], [layout]: [&Layout; 1]) -> Result<Output> {
        let mut y = vec![0.0; x.len()];
        x.par_chunks(CHUNK)
            .zip(y.par_chunks_mut(CHUNK))
            .for_each(|(x, y)| {
                vectorised!({
                    for (x, y) in x.iter().zip(y) {
                        *y = value(*x);
                    }
                })
            });
        Ok((y, layout.shape().clone()))
    }

    /// `dx = dy gelu'(x)`.
    fn backward(&self, [x]: [&Tensor; 1], dy: &Tensor) -> Gradients<1> {
        let mut dx = with_slice(dy, <[f32]>::to_vec)?;
        with_slice(x, |x| {
            x.par_chunks(CHUNK)
                .zip(dx.par_chunks_mut(CHUNK))
                .for_each(|(x, dx)| {
                    vectorised!({
                        for (x, dx) in x.iter().zip(dx) {
                            *dx *= value_and_slope(*x).1;
                        }
                    })
                })
        })?;
        gradients([x], [Some(dx)])
    }
}
