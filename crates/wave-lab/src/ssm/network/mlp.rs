//! A transformer's MLP: `out = W_2 gelu(W_1 u)`, position by position. As all maps of sequence networks
//! it has no biases.

use super::Layer;
use super::parts::project;
use candle_core::{Result, Tensor};

/// (b, t, d) to (b, t, d).
pub(super) fn forward(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let (d, hidden) = (layer.shape.width, layer.shape.hidden);
    let inner = project(u, layer.of_mixer("fc1.weight", &[hidden, d])?)?;
    let inner = wave_ops::gelu(&inner)?;
    project(&inner, layer.of_mixer("fc2.weight", &[d, hidden])?)
}
