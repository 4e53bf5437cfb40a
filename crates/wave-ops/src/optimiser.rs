//! AdamW, in place.

use crate::storage::{slice, with_slice};
use candle_core::{CpuStorage, Device, InplaceOp2, Layout, Result, Tensor, Var};
use rayon::prelude::*;
use std::sync::Mutex;

const CHUNK: usize = 1 << 14;

/// Hyper-parameters of AdamW (Loshchilov and Hutter, algorithm 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay rate of the first moment.
    pub beta1: f32,
    /// Decay rate of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
        }
    }
}

/// One step for one variable.
///
/// ```text
/// m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
/// p = p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
/// ```
///
/// `learning_rates` has one value, or one for each row of the leading dimension. The gradient is
/// multiplied by `gradient_scale` first (clipping). `step` is t, counted from 1.
pub fn adamw_step(
    var: &Var,
    gradient: &Tensor,
    moments: (&mut [f32], &mut [f32]),
    config: AdamW,
    learning_rates: &[f32],
    weight_decay: f32,
    gradient_scale: f32,
    step: u64,
) -> Result<()> {
    let n = var.elem_count();
    if learning_rates.is_empty() || !n.is_multiple_of(learning_rates.len()) || moments.0.len() != n
    {
        candle_core::bail!(
            "AdamW: {n} values, {} moments, {} learning rates",
            moments.0.len(),
            learning_rates.len()
        );
    }
    let t = i32::try_from(step).unwrap_or(i32::MAX);
    let update = Update {
        config,
        moments: Mutex::new(moments),
        learning_rates,
        weight_decay,
        gradient_scale,
        correction: (
            1.0 / (1.0 - config.beta1.powi(t)),
            1.0 / (1.0 - config.beta2.powi(t)),
        ),
    };
    if var.device().is_cpu() {
        return var.inplace_op2(&gradient.contiguous()?, &update);
    }
    // Elsewhere the arithmetic runs on the host: correct on every device, fast on none.
    let host = Var::from_tensor(&var.to_device(&Device::Cpu)?)?;
    host.inplace_op2(&gradient.to_device(&Device::Cpu)?.contiguous()?, &update)?;
    var.set(&host.to_device(var.device())?)
}

/// `average = decay average + (1 - decay) var`.
pub fn ema_update(average: &mut [f32], var: &Tensor, decay: f32) -> Result<()> {
    with_slice(&var.to_device(&Device::Cpu)?, |p| {
        average
            .par_chunks_mut(CHUNK)
            .zip(p.par_chunks(CHUNK))
            .for_each(|(a, p)| {
                for (a, p) in a.iter_mut().zip(p) {
                    *a += (1.0 - decay) * (p - *a);
                }
            })
    })
}

/// Sum of squares, accumulated in `f64` in a fixed order.
pub fn squared_norm(t: &Tensor) -> Result<f64> {
    with_slice(&t.to_device(&Device::Cpu)?, |x| {
        let parts: Vec<f64> = x
            .par_chunks(CHUNK)
            .map(|x| {
                f64::from(crate::simd::dispatch(
                    #[inline(always)]
                    || crate::simd::dot(x, x),
                ))
            })
            .collect();
        parts.iter().sum()
    })
}

struct Update<'a> {
    config: AdamW,
    moments: Mutex<(&'a mut [f32], &'a mut [f32])>,
    learning_rates: &'a [f32],
    weight_decay: f32,
    gradient_scale: f32,
    correction: (f32, f32),
}

impl InplaceOp2 for Update<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(&self, p: &mut CpuStorage, lp: &Layout, g: &CpuStorage, lg: &Layout) -> Result<()> {
        let (Some((start, end)), CpuStorage::F32(p)) = (lp.contiguous_offsets(), p) else {
            candle_core::bail!("AdamW needs a contiguous f32 variable");
        };
        let (p, g) = (&mut p[start..end], slice(g, lg)?);
        let mut moments = self.moments.lock().expect("AdamW does not panic");
        let (m, v) = &mut *moments;
        let AdamW { beta1, beta2, eps } = self.config;
        let (c1, c2) = self.correction;
        let scale = self.gradient_scale;
        let row = p.len() / self.learning_rates.len();
        for (r, lr) in self.learning_rates.iter().enumerate() {
            let at = r * row..(r + 1) * row;
            let decay = 1.0 - lr * self.weight_decay;
            p[at.clone()]
                .par_chunks_mut(CHUNK)
                .zip(g[at.clone()].par_chunks(CHUNK))
                .zip(m[at.clone()].par_chunks_mut(CHUNK))
                .zip(v[at].par_chunks_mut(CHUNK))
                .for_each(|(((p, g), m), v)| {
                    crate::simd::dispatch(
                        #[inline(always)]
                        || {
                            for i in 0..p.len() {
                                let g = g[i] * scale;
                                m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                                p[i] = p[i] * decay - lr * (m[i] * c1) / ((v[i] * c2).sqrt() + eps);
                            }
                        },
                    )
                });
        }
        Ok(())
    }
}
