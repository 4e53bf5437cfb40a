//! Weights prepared for inference: weight and bias pairs, with batch norms folded into the adjacent affine maps.
//!
//! A batch norm in evaluation mode is affine, `y = s x + t` with
//! `s = weight / sqrt(variance + eps)` and `t = bias - s mean`. Sums are computed in `f64`.

use crate::Weights;
use crate::check::batch_norm;
use candle_core::{D, DType, Result, Tensor};

/// A weight and its bias: of a norm, or of a map in the layout of [`crate::frozen`].
#[derive(Clone, Debug)]
pub struct Affine {
    /// A norm's weight (c), or a matrix: (in, out), or (out, in) as it is stored.
    pub weight: Tensor,
    /// (c), or (out).
    pub bias: Tensor,
}

impl Affine {
    /// `NAME.weight` and `NAME.bias` as they are stored.
    pub fn stored(weights: &Weights, name: &str) -> Result<Affine> {
        Ok(Affine {
            weight: get(weights, &format!("{name}.weight"))?.clone(),
            bias: get(weights, &format!("{name}.bias"))?.clone(),
        })
    }

    /// The linear map or convolution `NAME.weight` and `NAME.bias`, in the layout of [`crate::frozen`].
    pub fn map(weights: &Weights, name: &str) -> Result<Affine> {
        Affine::stored(weights, name)?.columns()
    }

    /// The map with its weight (out, ..) in the layout of [`crate::frozen`]: see [`as_columns`].
    pub fn columns(self) -> Result<Affine> {
        Ok(Affine {
            weight: as_columns(&self.weight)?,
            bias: self.bias,
        })
    }

    /// Stores weight and bias as `NAME.weight` and `NAME.bias`.
    pub fn store(self, weights: &mut Weights, name: &str) {
        weights.insert(format!("{name}.weight"), self.weight);
        weights.insert(format!("{name}.bias"), self.bias);
    }

    /// `x Wᵀ + bias` of a linear map as it is stored, with a weight (out, in).
    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        wave_ops::linear(x, &self.weight, &self.bias)
    }

    /// A layer norm over the last dimension.
    pub fn norm(&self, x: &Tensor, eps: f64) -> Result<Tensor> {
        wave_ops::layer_norm(x, &self.weight, &self.bias, eps)
    }
}

/// Scale and shift (c) of the batch norm `name`, as `f64`.
pub fn affine(weights: &Weights, name: &str, eps: f64) -> Result<(Tensor, Tensor)> {
    let part = |part: &str| get(weights, &format!("{name}.{part}"))?.to_dtype(DType::F64);
    let scale = (part("weight")? / (part("running_var")? + eps)?.sqrt()?)?;
    let shift = (part("bias")? - (&scale * part("running_mean")?)?)?;
    Ok((scale, shift))
}

/// The convolution or linear map `name` (out, ..), with its bias if it has one, followed by the batch norm `norm`:
/// in the stored layout, as `f32`.
pub fn into_outputs(weights: &Weights, name: &str, norm: &str, eps: f64) -> Result<Affine> {
    let (scale, shift) = affine(weights, norm, eps)?;
    let weight = get(weights, &format!("{name}.weight"))?.to_dtype(DType::F64)?;
    let mut column = vec![1; weight.rank()];
    column[0] = scale.elem_count();
    let folded = weight.broadcast_mul(&scale.reshape(column)?)?;
    let mut shift = shift.to_dtype(DType::F32)?;
    if let Some(bias) = weights.get(&format!("{name}.bias")) {
        let scaled = (bias.to_dtype(DType::F64)? * scale)?;
        shift = (scaled.to_dtype(DType::F32)? + shift)?;
    }
    Ok(Affine {
        weight: folded.to_dtype(DType::F32)?,
        bias: shift,
    })
}

/// A linear map or convolution without a bias, followed by a batch norm.
pub(crate) struct Normed {
    /// Name of the folded map.
    pub(crate) name: String,
    /// Name of the map in the file.
    pub(crate) stored: String,
    /// Name of the batch norm.
    pub(crate) norm: String,
    /// (outputs, inputs), or a convolution's (outputs, inputs, k, k); of a depthwise one (channels, 1, k, k).
    pub(crate) dims: Vec<usize>,
    pub(crate) depthwise: bool,
}

/// Names and shapes of the weights of these maps.
pub(crate) fn parameters(maps: &[Normed]) -> Vec<(String, Vec<usize>)> {
    let mut all = Vec::new();
    for map in maps {
        all.push((format!("{}.weight", map.stored), map.dims.clone()));
        all.extend(batch_norm(&map.norm, map.dims[0]));
    }
    all
}

/// These maps with their batch norms folded in, in the layout of [`crate::frozen`].
pub(crate) fn fused(weights: &Weights, maps: &[Normed], eps: f64) -> Result<Weights> {
    let mut all = Weights::new();
    for map in maps {
        let mut folded = into_outputs(weights, &map.stored, &map.norm, eps)?;
        folded.weight = match map.depthwise {
            true => folded.weight.flatten_from(1)?.t()?.contiguous()?, // (k k, channels)
            false => as_columns(&folded.weight)?,
        };
        folded.store(&mut all, &map.name);
    }
    Ok(all)
}

/// Scales the queries of the map `name`, the first `key` outputs of each of its `heads` heads.
pub(crate) fn scale_queries(
    fused: &mut Weights,
    name: &str,
    (heads, key): (usize, usize),
    scale: f32,
) -> Result<()> {
    for part in ["weight", "bias"] {
        let name = format!("{name}.{part}");
        let map = get(fused, &name)?; // (.., heads x outputs of a head)
        let outputs = map.dim(D::Minus1)?;
        let per_head = outputs / heads;
        let scale_of = |i: usize| if i % per_head < key { scale } else { 1.0 };
        let scales: Vec<f32> = (0..outputs).map(scale_of).collect();
        let scaled = map.broadcast_mul(&Tensor::from_vec(scales, outputs, map.device())?)?;
        fused.insert(name, scaled);
    }
    Ok(())
}

/// The classifier `NAME.linear` after its batch norm `NAME.bn`, as `f32` in the layout of [`crate::frozen`]:
/// `W (s x + t) + b = (W s) x + (W t + b)`.
pub fn classifier(weights: &Weights, name: &str, eps: f64) -> Result<Affine> {
    let (scale, shift) = affine(weights, &format!("{name}.bn"), eps)?;
    let weight = get(weights, &format!("{name}.linear.weight"))?.to_dtype(DType::F64)?;
    let bias = get(weights, &format!("{name}.linear.bias"))?.to_dtype(DType::F64)?;
    let bias = (bias + weight.matmul(&shift.unsqueeze(1)?)?.squeeze(1)?)?;
    let weight = as_columns(&weight.broadcast_mul(&scale)?)?;
    Ok(Affine {
        weight: weight.to_dtype(DType::F32)?,
        bias: bias.to_dtype(DType::F32)?,
    })
}

/// Attention biases (heads, queries, side^2) from those stored by distance, (heads, side^2): a query at every
/// `stride`-th of `side` x `side` tokens and a key use the entry for the absolute differences of their rows
/// and columns.
pub(crate) fn biases_by_distance(stored: &Tensor, side: usize, stride: usize) -> Result<Tensor> {
    let queries = (0..side).step_by(stride);
    let mut entries = Vec::new();
    for qy in queries.clone() {
        for qx in queries.clone() {
            for ky in 0..side {
                for kx in 0..side {
                    entries.push((qy.abs_diff(ky) * side + qx.abs_diff(kx)) as u32);
                }
            }
        }
    }
    let shape = (stored.dim(0)?, queries.len().pow(2), side * side);
    let entries = Tensor::from_vec(entries, shape.1 * shape.2, stored.device())?;
    stored
        .contiguous()?
        .index_select(&entries, 1)?
        .reshape(shape)
}

/// The tensor `name`.
pub fn get<'a>(weights: &'a Weights, name: &str) -> Result<&'a Tensor> {
    let found = weights.get(name);
    found.ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {name}")))
}

/// A weight (out, in), or a convolution's (out, in, k, k), as a matrix (k k in, out): see [`Affine::convolve`].
pub fn as_columns(weight: &Tensor) -> Result<Tensor> {
    match *weight.dims() {
        [out, c, k, l] => weight
            .permute((2, 3, 1, 0))?
            .contiguous()?
            .reshape((k * l * c, out)),
        _ => weight.t()?.contiguous(),
    }
}
