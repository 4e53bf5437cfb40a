//! The frozen operators in stock candle: for other devices and dtypes, and as the reference in tests.

use super::{Columns, Window};
use crate::Activation;
use crate::fold::Affine;
use candle_core::{Result, Tensor};

/// See [`Affine::linear`].
pub(super) fn linear(
    x: &Tensor,
    map: &Affine,
    residual: Option<&Tensor>,
    activation: Activation,
) -> Result<Tensor> {
    let y = x.broadcast_matmul(&map.weight)?.broadcast_add(&map.bias)?;
    finish(y, residual, activation)
}

/// `activation(y [+ residual])`.
fn finish(y: Tensor, residual: Option<&Tensor>, activation: Activation) -> Result<Tensor> {
    match residual {
        Some(residual) => activate(activation, &(y + residual)?),
        None => activate(activation, &y),
    }
}

/// See [`Affine::convolve`].
pub(super) fn convolve(
    x: &Tensor,
    Affine { weight, bias }: &Affine,
    window: Window,
    residual: Option<&Tensor>,
    activation: Activation,
) -> Result<Tensor> {
    let (_, _, _, c) = x.dims4()?;
    let k = window.kernel;
    let weight = weight
        .reshape((k, k, c, weight.dim(1)?))?
        .permute((3, 2, 0, 1))? // (out, c, k, k)
        .contiguous()?;
    let y = convolution(x, &weight, bias, window, 1)?;
    finish(y, residual, activation)
}

/// See [`Affine::depthwise`].
pub(super) fn depthwise(
    x: &Tensor,
    Affine { weight, bias }: &Affine,
    window: Window,
    activation: Activation,
) -> Result<Tensor> {
    let (_, _, _, c) = x.dims4()?;
    let k = window.kernel;
    let weight = weight.t()?.contiguous()?.reshape((c, 1, k, k))?;
    activate(activation, &convolution(x, &weight, bias, window, c)?)
}

fn convolution(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    window: Window,
    groups: usize,
) -> Result<Tensor> {
    padded(x, window)?
        .conv2d(weight, 0, window.stride, 1, groups)?
        .permute((0, 2, 3, 1))? // (b, s', s', out)
        .contiguous()?
        .broadcast_add(bias)
}

/// See [`super::max_pool`].
pub(super) fn max_pool(x: &Tensor, window: Window) -> Result<Tensor> {
    padded(x, window)?
        .max_pool2d_with_stride(window.kernel, window.stride)?
        .permute((0, 2, 3, 1))? // (b, s', s', c)
        .contiguous()
}

/// Images (b, s, s, c) as (b, c, ., .), with zero padding as far as the windows reach.
fn padded(x: &Tensor, window: Window) -> Result<Tensor> {
    let reach = (window.out - 1) * window.stride + window.kernel;
    let after = reach.saturating_sub(x.dim(1)? + window.before);
    x.permute((0, 3, 1, 2))?
        .pad_with_zeros(2, window.before, after)?
        .pad_with_zeros(3, window.before, after)?
        .contiguous()
}

/// See [`super::attention`].
pub(super) fn attention(
    query: Columns,
    key: Columns,
    value: Columns,
    bias: &Tensor,
    (width, value_width): (usize, usize),
    activation: Activation,
) -> Result<Tensor> {
    let heads = bias.dim(0)?;
    let part = |columns: Columns, width: usize| -> Result<Tensor> {
        let (b, n, _) = columns.tokens.dims3()?;
        columns
            .tokens
            .reshape((b, n, heads, columns.per_head))?
            .narrow(3, columns.offset, width)?
            .transpose(1, 2)? // (b, heads, n, width)
            .contiguous()
    };
    let (q, k) = (part(query, width)?, part(key, width)?);
    let scores = q.matmul(&k.t()?.contiguous()?)?.broadcast_add(bias)?; // (b, heads, n, m)
    let shares = wave_ops::stock::softmax(&scores)?;
    let (b, _, n, _) = shares.dims4()?;
    let out = shares
        .matmul(&part(value, value_width)?)? // (b, heads, n, value_width)
        .transpose(1, 2)?
        .contiguous()?
        .reshape((b, n, heads * value_width))?;
    activate(activation, &out)
}

/// An activation in stock operators.
pub(super) fn activate(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Identity => Ok(x.clone()),
        Activation::Gelu => x.gelu_erf(),
        Activation::Relu => x.relu(),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::HardSwish => x * ((x + 3.0)?.clamp(0.0, 6.0)? / 6.0)?,
        Activation::Silu => x.silu(),
    }
}
