//! The same operators in stock candle: for other devices and types, for second-order gradients, and
//! as the reference in tests of the fused operators.

use crate::arithmetic::Precision;
use crate::order::Kronecker;
use crate::shape::BlocksShape;
use candle_core::{D, DType, Result, Tensor};

/// See [`crate::linear()`].
pub fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    linear_in(Precision::F32, x, weight, bias)
}

/// `a b`, with factors rounded to a precision, in the type of `a`.
fn product(precision: Precision, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match precision {
        Precision::F32 => a.matmul(b),
        Precision::Bf16 => {
            let narrow = |t: &Tensor| t.to_dtype(DType::BF16);
            narrow(a)?.matmul(&narrow(b)?)?.to_dtype(a.dtype())
        }
    }
}

fn linear_in(precision: Precision, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (out, inner) = weight.dims2()?;
    let mut shape = x.dims().to_vec();
    shape.pop();
    let rows: usize = shape.iter().product();
    shape.push(out);
    product(precision, &x.reshape((rows, inner))?, &weight.t()?)?
        .broadcast_add(bias)?
        .reshape(shape)
}

/// See [`crate::embed`].
pub fn embed(patches: &Tensor, weight: &Tensor, table: &Tensor) -> Result<Tensor> {
    let ((b, n, _), (tokens, d)) = (patches.dims3()?, table.dims2()?);
    let zero = Tensor::zeros(d, patches.dtype(), patches.device())?;
    let mut x = linear(patches, weight, &zero)?;
    if tokens > n {
        let prefix = Tensor::zeros((b, tokens - n, d), patches.dtype(), patches.device())?;
        x = Tensor::cat(&[prefix, x], 1)?;
    }
    x.broadcast_add(table)
}

/// See [`crate::layer_norm()`].
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let var = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let x_hat = centred.broadcast_div(&(var + eps)?.sqrt()?)?;
    x_hat.broadcast_mul(weight)?.broadcast_add(bias)
}

/// Softmax over the last dimension.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    let x = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?;
    let e = x.exp()?;
    e.broadcast_div(&e.sum_keepdim(D::Minus1)?)
}

/// `x - log sum exp x` over the last dimension.
pub fn log_softmax(x: &Tensor) -> Result<Tensor> {
    let x = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?;
    x.broadcast_sub(&x.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

/// See [`crate::soft_cross_entropy`].
pub fn soft_cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    (targets * log_softmax(logits)?)?.sum(1)?.mean(0)?.neg()
}

/// Multi-head self-attention; `qkv` (b, n, 3 d) to (b, n, d).
pub fn attention(qkv: &Tensor, heads: usize) -> Result<Tensor> {
    attention_in(Precision::F32, qkv, heads)
}

fn attention_in(precision: Precision, qkv: &Tensor, heads: usize) -> Result<Tensor> {
    let (b, n, d3) = qkv.dims3()?;
    let (d, h) = (d3 / 3, d3 / 3 / heads);
    let qkv = qkv.reshape((b, n, 3, heads, h))?.permute((2, 0, 3, 1, 4))?; // (3, b, heads, n, h)
    let part = |i| qkv.get(i)?.contiguous();
    let scores = product(precision, &part(0)?, &part(1)?.t()?)?; // (b, heads, n, n)
    let shares = softmax(&(scores * (1.0 / (h as f64).sqrt()))?)?;
    product(precision, &shares, &part(2)?)?
        .transpose(1, 2)?
        .reshape((b, n, d))
}

/// See [`crate::blocks()`]: the factors of every product are rounded to a precision. The parameters are slabs (depth,
/// size) of any shape.
pub(crate) fn blocks(
    precision: Precision,
    x: &Tensor,
    parameters: &[Tensor; 12],
    shape: BlocksShape,
    drop_path: Option<&[f32]>,
) -> Result<Tensor> {
    let (b, d, depth) = (x.dim(0)?, shape.width, shape.depth);
    let mut x = x.clone();
    for l in 0..depth {
        let p = |i: usize| parameters[i].reshape((depth, ()))?.get(l);
        let norm = |x: &Tensor, i: usize| layer_norm(x, &p(i)?, &p(i + 1)?, shape.eps);
        let linear = |x: &Tensor, i: usize, out: usize| {
            linear_in(precision, x, &p(i)?.reshape((out, ()))?, &p(i + 1)?)
        };
        let scale = |branch: Tensor, i: usize| -> Result<Tensor> {
            let Some(scales) = drop_path else {
                return Ok(branch);
            };
            let start = (2 * l + i) * b;
            let scales = Tensor::new(&scales[start..start + b], x.device())?.reshape((b, 1, 1))?;
            branch.broadcast_mul(&scales.to_dtype(branch.dtype())?)
        };
        let qkv = linear(&norm(&x, 0)?, 2, 3 * d)?;
        let attended = linear(&attention_in(precision, &qkv, shape.heads)?, 4, d)?;
        let u = (&x + scale(attended, 0)?)?;
        let h = linear(&norm(&u, 6)?, 8, shape.hidden)?;
        let mlp = linear(&h.gelu_erf()?, 10, d)?;
        x = (&u + scale(mlp, 1)?)?;
    }
    Ok(x)
}

/// See [`crate::kronecker_sum`].
pub fn kronecker_sum(templates: &Tensor, scalers: &Tensor, order: Kronecker) -> Result<Tensor> {
    let ((n, t, _), (l, _, r, c)) = (templates.dims3()?, scalers.dims4()?);
    let scalers = scalers.permute((0, 2, 3, 1))?.reshape((l * r * c, n))?;
    let blocks = scalers
        .matmul(&templates.reshape((n, t * t))?)?
        .reshape((l, r, c, t, t))?;
    let blocks = match order {
        Kronecker::Tile => blocks.permute((0, 1, 3, 2, 4))?, // (l, r, t, c, t)
        Kronecker::Interleave => blocks.permute((0, 3, 1, 4, 2))?, // (l, t, r, t, c)
    };
    blocks.reshape((l, r * t, c * t))
}

/// See [`crate::rms_norm()`].
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + eps)?.sqrt()?)?
        .broadcast_mul(weight)
}

/// See [`crate::causal_convolution()`].
pub fn causal_convolution(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (t, taps) = (x.dim(1)?, weight.dim(1)?);
    let padded = x.pad_with_zeros(1, taps - 1, 0)?;
    let mut y = x.zeros_like()?;
    for tap in 0..taps {
        let kernel = weight.narrow(1, tap, 1)?.flatten_all()?; // (c)
        y = (y + padded.narrow(1, tap, t)?.broadcast_mul(&kernel)?)?;
    }
    y.broadcast_add(bias)
}

/// See [`crate::selective_scan()`].
pub fn selective_scan(
    x: &Tensor,
    step: &Tensor,
    a: &Tensor,
    input: &Tensor,
    output: &Tensor,
) -> Result<Tensor> {
    let ((b, t, e), n) = (x.dims3()?, a.dim(1)?);
    let mut state = Tensor::zeros((b, e, n), x.dtype(), x.device())?;
    let mut y = Vec::with_capacity(t);
    for i in 0..t {
        let column = |m: &Tensor| m.narrow(1, i, 1)?.transpose(1, 2); // (b, e, 1)
        let row = |m: &Tensor| m.narrow(1, i, 1); // (b, 1, n)
        let step = column(step)?;
        let decay = step.broadcast_mul(&a.unsqueeze(0)?)?.exp()?; // (b, e, n)
        let gain = (column(x)? * step)?.broadcast_mul(&row(input)?)?;
        state = ((decay * state)? + gain)?;
        y.push(state.broadcast_mul(&row(output)?)?.sum(D::Minus1)?); // (b, e)
    }
    Tensor::stack(&y, 1)
}
