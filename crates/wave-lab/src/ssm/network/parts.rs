//! Parts shared by several mixers.

use candle_core::{D, DType, Device, Result, Tensor};
use wave_ops::linear;

/// `x W^T`: `x` (.., in) and `w` (out, in) give (.., out).
pub(super) fn project(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let none = Tensor::zeros(w.dim(0)?, w.dtype(), w.device())?;
    linear(x, w, &none)
}

/// The sinusoidal positions of the original transformer (Vaswani et al. 2017, section 3.5), one row for each of `t`
/// positions: `sin(i w), cos(i w)` with `w = 10000^(-2j / d)`, all sines before all cosines.
///
/// # Shapes
/// (t, d), for an even d.
pub fn sinusoidal_positions(t: usize, d: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let angle = |i: usize, j: usize| i as f64 * 10_000f64.powf(-2.0 * j as f64 / d as f64);
    let entry = |at: usize| match (at / d, at % d) {
        (i, j) if j < d / 2 => angle(i, j).sin(),
        (i, j) => angle(i, j - d / 2).cos(),
    };
    let values: Vec<f64> = (0..t * d).map(entry).collect();
    Tensor::from_vec(values, (t, d), device)?.to_dtype(dtype)
}

/// `exp(log_i - log_j)` for each position i (row) and every one j up to it, else 0: (.., t) gives (.., t, t).
pub(super) fn decays(log: &Tensor) -> Result<Tensor> {
    let mask = causal_mask(log.dim(D::Minus1)?, log.dtype(), log.device())?;
    // The mask is applied first: above the diagonal the exponential would overflow.
    log.unsqueeze(D::Minus1)?
        .broadcast_sub(&log.unsqueeze(D::Minus2)?)?
        .broadcast_add(&mask)?
        .exp()
}

/// (t, t): 0 where a row may attend to a column, at its own position and before, else minus infinity.
pub(super) fn causal_mask(t: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let entry = |i: usize| match i % t <= i / t {
        true => 0.0,
        false => f32::NEG_INFINITY,
    };
    let values: Vec<f32> = (0..t * t).map(entry).collect();
    Tensor::from_vec(values, (t, t), device)?.to_dtype(dtype)
}
