//! Causal attention. Softmax attention is the second layer of hybrids (section 3.3.2) and, followed by an
//! MLP, a layer of transformers (section 3.2.6). Linear attention is compared with state space layers
//! (section 3.3.3).
//!
//! ```text
//! q = W_q u,  k = W_k u,  v = W_v u
//! softmax:  out = W_o (softmax(q k^T / sqrt(d / h), past only) v)        in each of h heads
//! linear:   out = W_o rms_norm((q k^T, past only) v)                     in one head
//! ```
//!
//! The norm after linear attention is our reading. The sums grow with the position, as in Mamba-2,
//! which has a norm there.

use super::{EPS, Layer, causal_mask};
use candle_core::{Result, Tensor};
use wave_ops::{rms_norm, stock};

/// Softmax attention: (b, t, d) to (b, t, d).
pub(super) fn softmax(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let v = heads(layer, u, "v_proj")?; // (b, h, t, d / h)
    let mixed = softmax_matrix(layer, u)?.matmul(&v)?;
    let mixed = mixed.transpose(1, 2)?.flatten_from(2)?; // (b, t, d)
    layer.project(&mixed, "o_proj")
}

/// The attention matrix (b, h, t, t); every row sums to 1.
pub(super) fn softmax_matrix(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let q = heads(layer, u, "q_proj")?;
    let k = heads(layer, u, "k_proj")?;
    let scale = 1.0 / (q.dim(3)? as f64).sqrt();
    let scores = (q.matmul(&k.transpose(2, 3)?)? * scale)?;
    let mask = causal_mask(u.dim(1)?, u.dtype(), u.device())?;
    stock::softmax(&scores.broadcast_add(&mask)?)
}

/// A map (d, d) of (b, t, d), split into heads: (b, h, t, d / h).
fn heads(layer: Layer, u: &Tensor, map: &str) -> Result<Tensor> {
    let (d, h) = (layer.shape.width, layer.shape.attention_heads);
    let (b, t, _) = u.dims3()?;
    let x = layer.project(u, map)?;
    x.reshape((b, t, h, d / h))?.transpose(1, 2)?.contiguous()
}

/// Linear attention: (b, t, d) to (b, t, d).
pub(super) fn linear(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let v = layer.project(u, "v_proj")?;
    let mixed = linear_matrix(layer, u)?.matmul(&v)?;
    let mixed = rms_norm(&mixed, layer.of_mixer("norm.weight")?, EPS)?;
    layer.project(&mixed, "o_proj")
}

/// The attention matrix (b, t, t), with queries and keys of `state` channels.
pub(super) fn linear_matrix(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let (q, k) = (layer.project(u, "q_proj")?, layer.project(u, "k_proj")?);
    let mask = causal_mask(u.dim(1)?, u.dtype(), u.device())?.exp()?; // 1 and 0
    q.matmul(&k.transpose(1, 2)?)?.broadcast_mul(&mask)
}
