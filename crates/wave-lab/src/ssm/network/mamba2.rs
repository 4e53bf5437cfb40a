//! The mixer of Mamba-2 (Dao and Gu 2024), with its state space layer in matrix form.
//!
//! ```text
//! [z | x | B | C | r] = W_1 u                      e, e, n, n and h rows
//! [x | B | C]  = silu(conv([x | B | C]))
//! step         = softplus(r + dt_bias)              one for each head and position
//! M_ij         = (C_i . B_j) step_j exp(sum_{k=j+1..i} A step_k)  for j <= i, else 0
//! y            = M x + D x                          each head of its own channels
//! out          = W_3 rms_norm(y * silu(z))
//! ```
//!
//! with `A = -exp(A_log)`, a number for each head. M is equation 3.34, whose printed mask `1{i <= j}` is transposed.

use super::{EPS, Layer, decays};
use crate::run::softplus;
use candle_core::{Result, Tensor};
use wave_ops::rms_norm;

/// The state space layer as a matrix for each head (equation 3.34), (b, h, t, t): row i holds the weights of the
/// positions up to i in the output at position i. `step` (b, t, h) is above 0, and `a` (h) is below 0.
/// `input` B and `output` C are (b, t, n).
pub fn matrix(step: &Tensor, a: &Tensor, input: &Tensor, output: &Tensor) -> Result<Tensor> {
    let products = output.matmul(&input.transpose(1, 2)?)?; // (b, t, t)
    let step = step.transpose(1, 2)?.contiguous()?; // (b, h, t)
    let decay = step.broadcast_mul(&a.unsqueeze(1)?)?;
    let kept = decays(&decay.cumsum(2)?)?; // (b, h, t, t)
    kept.broadcast_mul(&products.unsqueeze(1)?)?
        .broadcast_mul(&step.unsqueeze(2)?)
}

/// The layer's projections, before mixing.
pub(super) struct Pieces {
    gate: Tensor,              // (b, t, e)
    x: Tensor,                 // (b, h, t, e / h)
    pub(super) matrix: Tensor, // (b, h, t, t)
}

pub(super) fn pieces(layer: Layer, u: &Tensor) -> Result<Pieces> {
    let s = layer.shape;
    let (e, n, h) = (s.inner, s.state, s.heads);
    let (b, t, _) = u.dims3()?;
    let all = layer.project(u, "in_proj")?;
    let part = |from: usize, len: usize| all.narrow(2, from, len)?.contiguous();
    let mixed = e + 2 * n;
    let xbc = layer.convolve(&part(e, mixed)?)?;
    let piece = |from: usize, len: usize| xbc.narrow(2, from, len)?.contiguous();
    let step = softplus(&part(e + mixed, h)?.broadcast_add(layer.of_mixer("dt_bias")?)?)?;
    let a = layer.of_mixer("A_log")?.exp()?.neg()?;
    let matrix = matrix(&step, &a, &piece(e, n)?, &piece(e + n, n)?)?;
    let x = piece(0, e)?.reshape((b, t, h, e / h))?;
    Ok(Pieces {
        gate: part(0, e)?,
        x: x.transpose(1, 2)?.contiguous()?,
        matrix,
    })
}

/// The mixer: (b, t, d) to (b, t, d).
pub(super) fn forward(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let (e, h) = (layer.shape.inner, layer.shape.heads);
    let (b, t, _) = u.dims3()?;
    let Pieces { gate, x, matrix } = pieces(layer, u)?;
    let skip = layer.of_mixer("D")?.reshape((1, h, 1, 1))?;
    let y = (matrix.matmul(&x)? + x.broadcast_mul(&skip)?)?; // (b, h, t, e / h)
    let y = y.transpose(1, 2)?.reshape((b, t, e))?;
    let y = rms_norm(&(y * gate.silu()?)?, layer.of_mixer("norm.weight")?, EPS)?;
    layer.project(&y, "out_proj")
}
