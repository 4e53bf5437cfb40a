//! AdamW, in place, and Muon.

use crate::cpu::current;
use crate::storage::{fused, in_place, with_slice};
use candle_core::{Device, Result, Tensor, Var};
use rayon::prelude::*;

pub(crate) mod muon;

const CHUNK: usize = 1 << 14;

/// Decay rate of AdamW's first moment (Loshchilov and Hutter, algorithm 2).
pub(crate) const BETA1: f32 = 0.9;
/// Decay rate of AdamW's second moment.
pub(crate) const BETA2: f32 = 0.999;
/// Epsilon, added to the square root of the second moment.
pub(crate) const EPS: f32 = 1e-8;

/// Running means of a variable's gradient and, for AdamW, of its square: on the host for a variable on the
/// CPU, else on its device.
#[derive(Debug)]
pub struct Moments(MomentStorage);

#[derive(Debug)]
enum MomentStorage {
    Host(Vec<f32>, Vec<f32>),
    /// Not shared with any other tensor, since kernels change them in place.
    Device(Tensor, Tensor),
}

/// True if moments are plain values: the variable is on the CPU and is not updated by a kernel.
fn on_host(var: &Var) -> Result<bool> {
    #[cfg(gpu)]
    if crate::gpu::place(&[var])?.is_some() {
        return Ok(false);
    }
    Ok(var.device().is_cpu())
}

impl Moments {
    /// Zero moments for AdamW.
    pub fn new(var: &Var) -> Result<Moments> {
        let zeros = var.as_detached_tensor().zeros_like()?;
        Moments::restore(var, [&zeros, &zeros])
    }

    /// A zero moment for Muon, which has no second moment.
    pub fn momentum(var: &Var) -> Result<Moments> {
        Moments::restore_momentum(var, &var.as_detached_tensor().zeros_like()?)
    }

    /// From the tensors of [`Moments::to_tensors`], for a variable of the same size; the second may be empty.
    pub fn restore(var: &Var, tensors: [&Tensor; 2]) -> Result<Moments> {
        if on_host(var)? {
            let [first, second] = tensors.map(|t| t.flatten_all()?.to_vec1::<f32>());
            return Ok(Moments(MomentStorage::Host(first?, second?)));
        }
        let [first, second] = tensors.map(|t| match t.elem_count() {
            0 => t.to_device(var.device()),
            _ => t.reshape(var.shape())?.to_device(var.device())?.copy(),
        });
        Ok(Moments(MomentStorage::Device(first?, second?)))
    }

    /// From the first tensor of [`Moments::to_tensors`], for a variable of the same size.
    pub fn restore_momentum(var: &Var, first: &Tensor) -> Result<Moments> {
        let none = Tensor::zeros(0, first.dtype(), &Device::Cpu)?;
        Moments::restore(var, [first, &none])
    }

    /// Number of values of the first and of the second moment.
    fn len(&self) -> (usize, usize) {
        match &self.0 {
            MomentStorage::Host(first, second) => (first.len(), second.len()),
            MomentStorage::Device(first, second) => (first.elem_count(), second.elem_count()),
        }
    }

    /// First and second moment, flat, on the host; the second is empty where there is none.
    pub fn to_tensors(&self) -> Result<[Tensor; 2]> {
        let [first, second] = match &self.0 {
            MomentStorage::Host(first, second) => {
                [first, second].map(|v| Tensor::from_slice(v, v.len(), &Device::Cpu))
            }
            MomentStorage::Device(first, second) => {
                [first, second].map(|t| t.flatten_all()?.to_device(&Device::Cpu))
            }
        };
        Ok([first?, second?])
    }
}

/// One variable's update in a step.
pub struct Move<'a> {
    /// The variable.
    pub var: &'a Var,
    /// Its gradient, of the variable's shape.
    pub gradient: &'a Tensor,
    /// Its running means.
    pub moments: &'a mut Moments,
    /// Size of the step.
    pub learning_rate: f32,
    /// Weight decay, multiplied by the learning rate.
    pub weight_decay: f32,
}

/// One step for all variables; in one launch on a GPU.
///
/// ```text
/// m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
/// p = p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
/// ```
///
/// Gradients are multiplied by `gradient_scale` first (clipping). `step` is t, counted from 1.
///
/// # Errors
/// If sizes contradict each other; no variable is updated in that case.
pub fn adamw_steps(moves: &mut [Move], gradient_scale: f32, step: u64) -> Result<()> {
    for moved in moves.iter() {
        moved.check()?;
        if moved.moments.len().1 != moved.var.elem_count() {
            candle_core::bail!("AdamW: the second moments are missing");
        }
    }
    let t = i32::try_from(step).unwrap_or(i32::MAX);
    let correction = (1.0 / (1.0 - BETA1.powi(t)), 1.0 / (1.0 - BETA2.powi(t)));
    #[cfg(gpu)]
    if by_kernel(moves, correction, gradient_scale)? {
        return Ok(());
    }
    for moved in moves {
        let MomentStorage::Host(m, v) = &mut moved.moments.0 else {
            candle_core::bail!("AdamW: no kernel for device {:?}", moved.var.device());
        };
        let (rate, decay) = (moved.learning_rate, moved.weight_decay);
        in_place("AdamW", moved.var, moved.gradient, |p, g| {
            adamw_on_host([p, m, v], g, correction, rate, decay, gradient_scale);
        })?;
    }
    Ok(())
}

/// Takes the step on a GPU that holds all tensors; else returns false.
#[cfg(gpu)]
fn by_kernel(moves: &[Move], correction: (f32, f32), gradient_scale: f32) -> Result<bool> {
    let (mut tensors, mut all) = (Vec::new(), Vec::new());
    for moved in moves {
        let MomentStorage::Device(first, second) = &moved.moments.0 else {
            return Ok(false);
        };
        tensors.extend([moved.var.as_tensor(), moved.gradient, first, second]);
        all.push((moved, [first, second]));
    }
    let Some(place) = crate::gpu::place(&tensors)? else {
        return Ok(false);
    };
    crate::gpu::adamw(&place, &all, correction, gradient_scale)?;
    Ok(true)
}

impl Move<'_> {
    fn check(&self) -> Result<()> {
        let n = self.var.elem_count();
        let held = self.moments.len().0;
        let of_gradient = self.gradient.elem_count();
        if held != n || of_gradient != n {
            candle_core::bail!(
                "optimiser step: sizes do not match: {n} values, a gradient of {of_gradient}, \
                 {held} moments"
            );
        }
        Ok(())
    }

    /// `p = p (1 - lr wd) - lr change`, by candle's operators.
    fn change_by(&self, change: &Tensor) -> Result<()> {
        let kept = f64::from(1.0 - self.learning_rate * self.weight_decay);
        let change = (change.reshape(self.var.shape())? * f64::from(self.learning_rate))?;
        self.var
            .set(&((self.var.as_detached_tensor() * kept)? - change)?)
    }
}

/// `average = decay average + (1 - decay) var`, on the device of both.
pub fn ema_update(average: &Var, var: &Var, decay: f32) -> Result<()> {
    if !fused(&[average.as_tensor(), var.as_tensor()])? {
        let [a, p] = [average, var].map(Var::as_detached_tensor);
        let change = ((p - &a)? * f64::from(1.0 - decay))?;
        return average.set(&(a + change)?);
    }
    in_place("EMA", average, var, |a, p| {
        a.par_chunks_mut(CHUNK)
            .zip(p.par_chunks(CHUNK))
            .for_each(|(a, p)| {
                crate::simd::dispatch_on(
                    current(),
                    #[inline(always)]
                    move || {
                        for (a, p) in a.iter_mut().zip(p) {
                            *a += (1.0 - decay) * (p - *a);
                        }
                    },
                )
            });
    })
}

/// Sum of squares of all tensors, accumulated in `f64` in a fixed order; on a GPU, in one launch
/// with a single wait.
pub fn squared_norms(tensors: &[&Tensor]) -> Result<f64> {
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(tensors)? {
        return crate::gpu::squared_norm(&place, tensors);
    }
    tensors.iter().try_fold(0.0, |sum, t| {
        let parts: Vec<f64> = with_slice(t, |x| {
            x.par_chunks(CHUNK)
                .map(|x| f64::from(crate::simd::vectorised!(crate::simd::dot(x, x))))
                .collect()
        })?;
        Ok(sum + parts.iter().sum::<f64>())
    })
}

/// A step of AdamW, see [`adamw_steps`], for values `p` with gradients `g` and moments `m` and `v`.
fn adamw_on_host(
    [p, m, v]: [&mut [f32]; 3],
    g: &[f32],
    (c1, c2): (f32, f32), // corrections of the moments
    learning_rate: f32,
    weight_decay: f32,
    scale: f32,
) {
    let decay = 1.0 - learning_rate * weight_decay;
    p.par_chunks_mut(CHUNK)
        .zip(g.par_chunks(CHUNK))
        .zip(m.par_chunks_mut(CHUNK))
        .zip(v.par_chunks_mut(CHUNK))
        .for_each(|(((p, g), m), v)| {
            crate::simd::dispatch_on(
                current(),
                // Moved by value: through references, each store might change a constant.
                #[inline(always)]
                move || {
                    let moments = m.iter_mut().zip(v.iter_mut());
                    for ((p, g), (m, v)) in p.iter_mut().zip(g).zip(moments) {
                        let g = g * scale;
                        *m = BETA1 * *m + (1.0 - BETA1) * g;
                        *v = BETA2 * *v + (1.0 - BETA2) * g * g;
                        *p = *p * decay - learning_rate * (*m * c1) / ((*v * c2).sqrt() + EPS);
                    }
                },
            )
        });
}

#[cfg(test)]
#[path = "optimiser_tests.rs"]
mod tests;
