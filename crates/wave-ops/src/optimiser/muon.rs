//! Muon (Jordan et al. 2024): momentum SGD whose update matrices are orthogonalised before each step.

use super::{MomentStorage, Move};
use crate::storage::{in_place, with_slice};
use candle_core::{DType, Device, Result, Tensor};
use rayon::prelude::*;

mod host;
#[cfg(test)]
mod tests;

/// Decay rate of the (Nesterov) momentum.
pub(crate) const MOMENTUM: f32 = 0.95;

/// Root mean square of an update at learning rate 1. With 0.2, updates are as large as AdamW's (Liu et al. 2025,
/// section 2.2), so that one learning rate and weight decay suit both.
pub(crate) const STEP_SIZE: f32 = 0.2;

/// The interpretation of a tensor as matrices for Muon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Number of leading axes that count matrices: 1 for weights (L, out, in) of L layers, 0 for one matrix.
    pub stacked: usize,
    /// The axis of the rows. All other axes together form the columns.
    pub rows: usize,
}

impl Matrices {
    /// `t` as (matrices, rows, columns).
    fn of(self, t: &Tensor) -> Result<Tensor> {
        let t = t.transpose(self.stacked, self.rows)?.contiguous()?;
        let dims = t.dims();
        let count: usize = dims[..self.stacked].iter().product();
        t.reshape((count, dims[self.stacked], ()))
    }

    /// The inverse of [`Matrices::of`], for a tensor of dimensions `dims`.
    fn back(self, matrices: &Tensor, dims: &[usize]) -> Result<Tensor> {
        let mut dims = dims.to_vec();
        dims.swap(self.stacked, self.rows);
        let t = matrices.reshape(dims)?;
        t.transpose(self.stacked, self.rows)?.contiguous()
    }
}

/// One step of Muon for one variable, whose second moment is not used.
///
/// ```text
/// m = b m + (1 - b) g      u = b m + (1 - b) g
/// p = p (1 - lr wd) - lr s sqrt(max(rows, columns)) orthogonal(u)
/// ```
///
/// `orthogonal` replaces the singular values of each matrix with about 1, so that all directions of the gradient are
/// learned at the same speed. `b` is 0.95 and `s` 0.2; gradients are multiplied by `gradient_scale` first (clipping).
///
/// A matrix without any gradient, such as a layer that a step does not use, keeps its momentum, and only weight decay
/// changes it: orthogonalised, the remains of an old gradient would be as large as a new one.
///
/// # Errors
/// If sizes contradict each other, or the tensor has fewer axes than `matrices` needs; nothing is updated then.
pub fn muon_step(moved: &mut Move, matrices: Matrices, gradient_scale: f32) -> Result<()> {
    moved.check()?;
    let var = moved.var;
    let Matrices { stacked, rows } = matrices;
    if rows < stacked || rows >= var.rank() {
        candle_core::bail!(
            "Muon: axis {rows} of shape {:?} cannot be the rows",
            var.dims()
        );
    }
    if let (true, MomentStorage::Host(first, _)) = (rows == stacked, &mut moved.moments.0) {
        let dims = var.dims();
        let columns = dims[rows + 1..].iter().product();
        let step = host::Step {
            size: (dims[rows], columns),
            learning_rate: moved.learning_rate,
            weight_decay: moved.weight_decay,
            gradient_scale,
            simd: crate::cpu::simd().map_err(candle_core::Error::wrap)?,
        };
        let gradient = moved.gradient.detach();
        return in_place("Muon", var, &gradient, |p, g| step.all(p, g, first));
    }
    #[cfg(gpu)]
    if rows == stacked && by_kernel(moved, matrices, gradient_scale)? {
        return Ok(());
    }
    let gradient = matrices.of(&moved.gradient.detach())?;
    let (count, r, c) = gradient.dims3()?;
    let used = used(&gradient)?;
    let used = Tensor::new(used, var.device())?;
    let all = used.dim(0)? == count;
    let of_used = |t: &Tensor| match all {
        true => Ok(t.clone()),
        false => t.index_select(&used, 0),
    };
    // All matrices: the updated ones from `part`, the others from `rest`.
    let in_place = |rest: Tensor, part: &Tensor| match all {
        true => Ok(part.clone()),
        false => rest.index_add(&used, &(part - of_used(&rest)?)?, 0),
    };
    let b = f64::from(MOMENTUM);
    let g = (of_used(&gradient)? * (f64::from(gradient_scale) * (1.0 - b)))?;
    let momentum = matrices.of(&moved.moments.first(var.dims())?.to_device(var.device())?)?;
    let m = ((of_used(&momentum)? * b)? + &g)?;
    let u = ((&m * b)? + g)?;
    let momentum = matrices.back(&in_place(momentum, &m)?, var.dims())?;
    moved.moments.set_first(&momentum)?;

    let size = f64::from(STEP_SIZE) * (r.max(c) as f64).sqrt();
    let change = in_place(gradient.zeros_like()?, &(orthogonal(&u)? * size)?)?;
    moved.change_by(&matrices.back(&change, var.dims())?)
}

/// Takes the step on a GPU that holds all tensors; else returns false.
#[cfg(gpu)]
fn by_kernel(moved: &Move, matrices: Matrices, scale: f32) -> Result<bool> {
    let MomentStorage::Device(momentum, _) = &moved.moments.0 else {
        return Ok(false);
    };
    let tensors = [moved.var.as_tensor(), moved.gradient, momentum];
    let Some(place) = crate::gpu::place(&tensors)? else {
        return Ok(false);
    };
    let dims = moved.var.dims();
    let product = |dims: &[usize]| dims.iter().product();
    let (stacked, rows) = dims.split_at(matrices.stacked);
    let size = (product(stacked), rows[0], product(&rows[1..]));
    crate::gpu::muon(&place, moved, momentum, size, scale)?;
    Ok(true)
}

/// The indices of the matrices (b, r, c) that are not zero.
fn used(matrices: &Tensor) -> Result<Vec<u32>> {
    let norms: Vec<f32> = matrices.sqr()?.sum((1, 2))?.to_vec1()?;
    let used = (0u32..).zip(norms).filter(|(_, norm)| *norm != 0.0);
    Ok(used.map(|(at, _)| at).collect())
}

/// Coefficients of a step of [`orthogonal`], chosen for speed: singular values end between 0.7 and 1.2.
pub(crate) const QUINTIC: [f64; 3] = [3.4445, -4.775, 2.0315];

/// Number of Newton-Schulz steps of [`orthogonal`].
pub(crate) const STEPS: usize = 5;

/// Matrices (b, r, c) with singular values of about 1 and the same singular vectors: Newton-Schulz iteration,
/// `X = a X + b (X Xᵀ) X + c (X Xᵀ)² X`.
fn orthogonal(matrices: &Tensor) -> Result<Tensor> {
    let (_, r, c) = matrices.dims3()?;
    if matrices.device().is_cpu() && matrices.dtype() == DType::F32 {
        let simd = crate::cpu::simd().map_err(candle_core::Error::wrap)?;
        let mut values = vec![0.0; matrices.elem_count()];
        with_slice(matrices, |u| {
            let all = values
                .par_chunks_exact_mut(r * c)
                .zip(u.par_chunks_exact(r * c));
            all.for_each(|(out, u)| host::orthogonal(simd, u, (r, c), out));
        })?;
        return Tensor::from_vec(values, matrices.dims(), &Device::Cpu);
    }
    let flip = |t: &Tensor| t.transpose(1, 2)?.contiguous();
    let x = if r > c {
        flip(matrices)?
    } else {
        matrices.clone()
    };
    let norm = (x.sqr()?.sum_keepdim((1, 2))?.sqrt()? + 1e-12)?;
    let mut x = x.broadcast_div(&norm)?;
    let [a, b, c2] = QUINTIC;
    for _ in 0..STEPS {
        let s = x.matmul(&flip(&x)?)?;
        let s = ((&s * b)? + (s.matmul(&s)? * c2)?)?;
        x = ((&x * a)? + s.matmul(&x)?)?;
    }
    if r > c { flip(&x) } else { Ok(x) }
}

impl super::Moments {
    /// The first moment, on its device.
    fn first(&self, dims: &[usize]) -> Result<Tensor> {
        match &self.0 {
            MomentStorage::Host(first, _) => Tensor::from_slice(first, dims, &Device::Cpu),
            MomentStorage::Device(first, _) => first.reshape(dims),
        }
    }

    fn set_first(&mut self, value: &Tensor) -> Result<()> {
        match &mut self.0 {
            MomentStorage::Host(first, _) => *first = value.flatten_all()?.to_vec1()?,
            MomentStorage::Device(first, _) => *first = value.clone(),
        }
        Ok(())
    }
}
