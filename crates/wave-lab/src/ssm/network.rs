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
mod shape;

pub use shape::{KERNEL, Mixer, SequenceShape};

use candle_core::{D, DType, Device, Result, Tensor};
use wave_models::Weights;
use wave_models::fold::get;
use wave_ops::{gelu, linear, rms_norm};

/// Added to the mean square in norms.
const EPS: f64 = 1e-5;

/// Logits (b, m, vocabulary) of the next token at the `positions` (m) of `tokens` (b, t), both `u32`. The positions
/// are the same for every sequence.
pub fn logits_at(
    shape: &SequenceShape,
    weights: &Weights,
    tokens: &Tensor,
    positions: &Tensor,
) -> Result<Tensor> {
    let x = hidden(shape, weights, tokens, |_, _| Ok(()))?;
    let positions = positions.to_device(x.device())?;
    head(weights, &x.index_select(&positions, 1)?)
}

/// The attention maps (t, t) for one sequence, `tokens` (t), each with its layer (an MLP has none): the weight of each
/// position (column) for each position (row), averaged over channels or heads (section 3.3.1, "Mamba attention maps").
pub fn attention_maps(
    shape: &SequenceShape,
    weights: &Weights,
    tokens: &Tensor,
) -> Result<Vec<(usize, Tensor)>> {
    let mut maps = Vec::new();
    hidden(shape, weights, &tokens.unsqueeze(0)?, |layer, x| {
        let map = match layer.mixer() {
            Mixer::Mamba2 => mamba2::pieces(layer, x)?.matrix.mean(1)?,
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
        let normed = rms_norm(&x, layer.get("norm.weight")?, EPS)?;
        seen(layer, &normed)?;
        let mixed = match layer.mixer() {
            Mixer::Mamba2 => mamba2::forward(layer, &normed)?,
            Mixer::Mamba => mamba::forward(layer, &normed)?,
            Mixer::Attention => attention::softmax(layer, &normed)?,
            Mixer::LinearAttention => attention::linear(layer, &normed)?,
            // W_2 gelu(W_1 u), without biases.
            Mixer::Mlp => layer.project(&gelu(&layer.project(&normed, "fc1")?)?, "fc2")?,
        };
        x = (x + mixed)?;
    }
    Ok(x)
}

fn head(weights: &Weights, x: &Tensor) -> Result<Tensor> {
    let x = rms_norm(x, get(weights, "backbone.norm_f.weight")?, EPS)?;
    project(&x, get(weights, "lm_head.weight")?)
}

/// `x W^T`: `x` (.., in) and `w` (out, in) give (.., out).
fn project(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let none = Tensor::zeros(w.dim(0)?, w.dtype(), w.device())?;
    linear(x, w, &none)
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
        let w = self.of_mixer("conv1d.weight")?.squeeze(1)?;
        wave_ops::causal_convolution(x, &w, self.of_mixer("conv1d.bias")?)?.silu()
    }

    /// A linear map of the layer's mixer, without a bias: (.., in) to (.., out).
    fn project(self, x: &Tensor, name: &str) -> Result<Tensor> {
        project(x, self.of_mixer(&format!("{name}.weight"))?)
    }
}

/// The sinusoidal positions (t, d) of the original transformer (Vaswani et al. 2017, section 3.5), for an even d. Row
/// i is `sin(i w), cos(i w)` with `w = 10000^(-2j / d)`, all sines before all cosines.
fn sinusoidal_positions(t: usize, d: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let angle = |i: usize, j: usize| i as f64 * 10_000f64.powf(-2.0 * j as f64 / d as f64);
    let entry = |at: usize| match (at / d, at % d) {
        (i, j) if j < d / 2 => angle(i, j).sin(),
        (i, j) => angle(i, j - d / 2).cos(),
    };
    let values: Vec<f64> = (0..t * d).map(entry).collect();
    Tensor::from_vec(values, (t, d), device)?.to_dtype(dtype)
}

/// `exp(log_i - log_j)` for each position i (row) and every one j up to it, else 0: (.., t) gives (.., t, t).
fn decays(log: &Tensor) -> Result<Tensor> {
    let mask = causal_mask(log.dim(D::Minus1)?, log.dtype(), log.device())?;
    // The mask is applied first: above the diagonal the exponential would overflow.
    log.unsqueeze(D::Minus1)?
        .broadcast_sub(&log.unsqueeze(D::Minus2)?)?
        .broadcast_add(&mask)?
        .exp()
}

/// (t, t): 0 where a row may attend to a column, at its own position and before, else minus infinity.
fn causal_mask(t: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let entry = |i: usize| match i % t <= i / t {
        true => 0.0,
        false => f32::NEG_INFINITY,
    };
    let values: Vec<f32> = (0..t * t).map(entry).collect();
    Tensor::from_vec(values, (t, t), device)?.to_dtype(dtype)
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
