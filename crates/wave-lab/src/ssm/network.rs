//! Networks of token sequences: state space models (Mamba and Mamba-2), causal attention, hybrids of
//! them, and transformers.
//!
//! ```text
//! x   = embedding[token]           (+ positions, of a transformer)
//! x'  = x + mixer(rms_norm(x))     for each layer: one of `Mixer`
//! out = head(rms_norm(x))          for each position
//! ```
//!
//! Weights have transformers' names. Letters in shape comments: `b` sequences, `t` positions, `d` width, `e`
//! inner channels, `n` state, `h` heads, `v` vocabulary.

mod attention;
mod mamba;
pub mod mamba2;
mod parts;
mod shape;

pub use shape::{Mixer, SequenceShape};

use candle_core::{Result, Tensor};
use parts::{project, sinusoidal_positions};
use wave_models::Weights;
use wave_models::fold::get;
use wave_ops::rms_norm;

/// Logits of the next token at some positions, the same for every sequence.
///
/// # Shapes
/// `tokens` (b, t) and `positions` (m) of `u32` give (b, m, vocabulary).
pub fn logits_at(
    shape: &SequenceShape,
    weights: &Weights,
    tokens: &Tensor,
    positions: &Tensor,
) -> Result<Tensor> {
    let x = hidden(shape, weights, tokens, |_, _| Ok(()))?;
    let positions = positions.to_device(x.device())?;
    head(shape, weights, &x.index_select(&positions, 1)?)
}

/// The attention maps for one sequence, each with its layer (an MLP has none): the weight of each position (column)
/// for each position (row), averaged over channels or heads (section 3.3.1, "Mamba attention maps").
///
/// # Shapes
/// `tokens` (t) gives a matrix (t, t) for each layer that mixes positions.
pub fn attention_maps(
    shape: &SequenceShape,
    weights: &Weights,
    tokens: &Tensor,
) -> Result<Vec<(usize, Tensor)>> {
    let mut maps = Vec::new();
    hidden(shape, weights, &tokens.unsqueeze(0)?, |layer, x| {
        let map = match layer.mixer() {
            Mixer::Mamba2 => mamba2::matrix_of(layer, x)?.mean(1)?,
            Mixer::Mamba => mamba::mean_matrix(layer, x)?,
            Mixer::Attention => attention::softmax_matrix(layer, x)?.mean(1)?,
            Mixer::LinearAttention => attention::linear_matrix(layer, x)?,
            Mixer::Mlp => return Ok(()),
        };
        maps.push((layer.layer, map.squeeze(0)?));
        Ok(())
    })?;
    Ok(maps)
}

/// The output of the layers, (b, t, d). `seen` is called with the input of each mixer.
fn hidden(
    shape: &SequenceShape,
    weights: &Weights,
    tokens: &Tensor,
    mut seen: impl FnMut(Layer, &Tensor) -> Result<()>,
) -> Result<Tensor> {
    let (b, t) = tokens.dims2()?;
    let table = get(weights, "backbone.embeddings.weight")?;
    let tokens = tokens.to_device(table.device())?.flatten_all()?;
    let mut x = table.index_select(&tokens, 0)?.reshape((b, t, ()))?; // (b, t, d)
    if shape.positions {
        let p = sinusoidal_positions(t, shape.width, x.dtype(), x.device())?;
        x = x.broadcast_add(&p)?;
    }
    for layer in 0..shape.depth() {
        let layer = Layer {
            shape,
            weights,
            layer,
        };
        let scale = layer.get("norm.weight")?;
        let normed = rms_norm(&x, scale, shape.norm_eps)?;
        seen(layer, &normed)?;
        let mixed = match layer.mixer() {
            Mixer::Mamba2 => mamba2::forward(layer, &normed)?,
            Mixer::Mamba => mamba::forward(layer, &normed)?,
            Mixer::Attention => attention::softmax(layer, &normed)?,
            Mixer::LinearAttention => attention::linear(layer, &normed)?,
            Mixer::Mlp => mlp(layer, &normed)?,
        };
        x = (x + mixed)?;
    }
    Ok(x)
}

/// A transformer's MLP, `W_2 gelu(W_1 u)` without biases: (b, t, d) to (b, t, d).
fn mlp(layer: Layer, u: &Tensor) -> Result<Tensor> {
    let inner = layer.project(u, "fc1")?;
    layer.project(&wave_ops::gelu(&inner)?, "fc2")
}

fn head(shape: &SequenceShape, weights: &Weights, x: &Tensor) -> Result<Tensor> {
    let scale = get(weights, "backbone.norm_f.weight")?;
    project(
        &rms_norm(x, scale, shape.norm_eps)?,
        get(weights, "lm_head.weight")?,
    )
}

/// One layer's weights, and the network that they belong to.
#[derive(Clone, Copy)]
struct Layer<'a> {
    shape: &'a SequenceShape,
    weights: &'a Weights,
    layer: usize,
}

impl<'a> Layer<'a> {
    fn mixer(self) -> Mixer {
        self.shape.mixers[self.layer]
    }

    fn get(self, name: &str) -> Result<&'a Tensor> {
        get(self.weights, &shape::name(self.layer, name))
    }

    /// A weight of the layer's mixer.
    fn of_mixer(self, name: &str) -> Result<&'a Tensor> {
        self.get(&format!("mixer.{name}"))
    }

    /// The mixer's causal depthwise convolution over positions, whose last tap applies to the position itself, and
    /// SiLU: (b, t, channels) to the same.
    fn convolve(self, x: &Tensor) -> Result<Tensor> {
        let (w, bias) = (
            self.of_mixer("conv1d.weight")?,
            self.of_mixer("conv1d.bias")?,
        );
        wave_ops::causal_convolution(x, &w.squeeze(1)?, bias)?.silu()
    }

    /// A linear map of the layer's mixer, without a bias: (.., in) to (.., out).
    fn project(self, x: &Tensor, name: &str) -> Result<Tensor> {
        project(x, self.of_mixer(&format!("{name}.weight"))?)
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
