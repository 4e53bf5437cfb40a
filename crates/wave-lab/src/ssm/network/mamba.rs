//! The mixer of Mamba (Gu and Dao 2023).
//!
//! ```text
//! [x | z] = W_in u                               e and e rows
//! x       = silu(conv(x))
//! [r | B | C] = W_x x                            rank, n and n rows
//! step    = softplus(W_dt r + b_dt)              one for each channel and position
//! h_t     = exp(A step_t) h_{t-1} + step_t B_t x_t,   y_t = C_t . h_t + D x_t
//! out     = W_3 (y * silu(z))
//! ```
//!
//! with `A = -exp(A_log)`, a number for each channel and entry of its state (equations 3.30 to 3.35).

use super::{Layer, decays};
use crate::run::softplus;
use candle_core::{Result, Tensor};
use wave_ops::selective_scan;

/// The layer's projections, before mixing.
pub(super) struct Pieces {
    gate: Tensor,              // (b, t, e)
    pub(super) x: Tensor,      // (b, t, e)
    pub(super) step: Tensor,   // (b, t, e)
    pub(super) a: Tensor,      // (e, n)
    pub(super) input: Tensor,  // (b, t, n)
    pub(super) output: Tensor, // (b, t, n)
}

pub(super) fn pieces(layer: Layer, u: &Tensor) -> Result<Pieces> {
    let s = layer.shape;
    let (e, n, r) = (s.inner, s.state, s.step_rank);
    let both = layer.project(u, "in_proj")?;
    let x = layer.convolve(&both.narrow(2, 0, e)?)?;
    let all = layer.project(&x, "x_proj")?;
    let part = |from: usize, len: usize| all.narrow(2, from, len)?.contiguous();
    let step = layer.project(&part(0, r)?, "dt_proj")?;
    let step = step.broadcast_add(layer.of_mixer("dt_proj.bias")?)?;
    Ok(Pieces {
        gate: both.narrow(2, e, e)?.contiguous()?,
        x,
        step: softplus(&step)?,
        a: layer.of_mixer("A_log")?.exp()?.neg()?,
        input: part(r, n)?,
        output: part(r + n, n)?,
    })
}

/// The mixer: (b, t, d) to (b, t, d).
pub(super) fn forward(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let p = pieces(layer, u)?;
    let y = selective_scan(&p.x, &p.step, &p.a, &p.input, &p.output)?;
    let y = (y + p.x.broadcast_mul(layer.of_mixer("D")?)?)?;
    layer.project(&(y * p.gate.silu()?)?, "out_proj")
}

/// The mean of the channels' matrices (equation 3.34), (b, t, t).
pub(super) fn mean_matrix(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let p = pieces(layer, u)?;
    let (e, n) = p.a.dims2()?;
    let log = p.step.transpose(1, 2)?.cumsum(2)?; // (b, e, t)
    let part = |k: usize| {
        let a = p.a.narrow(1, k, 1)?; // (e, 1)
        let kept = decays(&log.broadcast_mul(&a)?)?; // (b, e, t, t)
        let step = p.step.transpose(1, 2)?.unsqueeze(2)?; // (b, e, 1, t)
        let kept = (kept.broadcast_mul(&step)?.sum(1)? / e as f64)?; // (b, t, t)
        let (input, output) = (p.input.narrow(2, k, 1)?, p.output.narrow(2, k, 1)?);
        output.matmul(&input.transpose(1, 2)?)? * kept
    };
    (1..n).try_fold(part(0)?, |sum, k| sum + part(k)?)
}
