//! Folding of batch norms into the affine maps beside them.
//!
//! A batch norm in evaluation mode is itself affine, `y = s x + t` with
//! `s = weight / sqrt(variance + eps)` and `t = bias - s mean`. Sums are formed in `f64`.

use crate::Weights;
use candle_core::{DType, Result, Tensor};

/// Scale and shift (c) of the batch norm `name`, in `f64`.
pub fn affine(weights: &Weights, name: &str, eps: f64) -> Result<(Tensor, Tensor)> {
    let part = |part: &str| get(weights, &format!("{name}.{part}"))?.to_dtype(DType::F64);
    let scale = (part("weight")? / (part("running_var")? + eps)?.sqrt()?)?;
    let shift = (part("bias")? - (&scale * part("running_mean")?)?)?;
    Ok((scale, shift))
}

/// Weight and bias (`f32`) of the convolution or linear map `weight` (out, ..), without a bias,
/// followed by the batch norm `norm`.
pub fn into_outputs(
    weights: &Weights,
    weight: &str,
    norm: &str,
    eps: f64,
) -> Result<(Tensor, Tensor)> {
    let (scale, shift) = affine(weights, norm, eps)?;
    let weight = get(weights, weight)?.to_dtype(DType::F64)?;
    let mut column = vec![1; weight.rank()];
    column[0] = scale.elem_count();
    let folded = weight.broadcast_mul(&scale.reshape(column)?)?;
    Ok((folded.to_dtype(DType::F32)?, shift.to_dtype(DType::F32)?))
}

/// The tensor `name`.
pub fn get<'a>(weights: &'a Weights, name: &str) -> Result<&'a Tensor> {
    weights
        .get(name)
        .ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {name}")))
}

/// A weight (out, in), or a convolution's (out, in, k, k), as a matrix (k k in, out): see
/// [`crate::frozen::linear`] and [`crate::frozen::convolve`].
pub fn as_columns(weight: &Tensor) -> Result<Tensor> {
    match *weight.dims() {
        [out, c, k, l] => weight
            .permute((2, 3, 1, 0))?
            .contiguous()?
            .reshape((k * l * c, out)),
        _ => weight.t()?.contiguous(),
    }
}
