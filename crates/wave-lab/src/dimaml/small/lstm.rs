//! A character-level language model: an embedding, LSTM layers, an affine map to logits (DIMAML, section
//! 3.3 and appendix B.3; Hochreiter and Schmidhuber 1997).
//!
//! ```text
//! i, f, o = sigmoid(W x + U h + b)     g = tanh(W x + U h + b)       each with matrices of its own
//! c = f c + i g                        h = o tanh(c)
//! ```
//!
//! Every gate has its own tensors, and therefore its own distributions.

use super::{Parameter, Parameters, Usual};
use candle_core::{Result, Tensor};
use serde::Serialize;
use wave_models::check::sizes;
use wave_models::fold::get;
use wave_models::{ShapeError, Weights};
use wave_ops::stock;

/// Names of the gates: input, forget, cell, output.
const GATES: [&str; 4] = ["i", "f", "g", "o"];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LstmShape {
    pub vocabulary: usize,
    /// Channels of a token.
    pub embedding: usize,
    /// Channels of a layer.
    pub width: usize,
    pub layers: usize,
}

impl LstmShape {
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        sizes(&[("width", self.width), ("layers", self.layers)])
    }

    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = Parameters::default();
        let w = self.width;
        let embedding = [self.vocabulary, self.embedding];
        all.add("embedding.weight", &embedding, Usual::Normal(1.0));
        for l in 0..self.layers {
            let inputs = if l == 0 { self.embedding } else { w };
            for gate in GATES {
                let at = |name: &str| format!("layers.{l}.{gate}.{name}");
                let usual = Usual::of_inputs(w); // of all three, in PyTorch
                all.add(at("input"), &[w, inputs], usual);
                all.add(at("hidden"), &[w, w], usual);
                all.add(at("bias"), &[w], usual);
            }
        }
        all.map("logits", self.vocabulary, w);
        all.0
    }
}

/// Logits (b · positions, vocabulary) of the token after each of `positions` in `tokens` (b, n).
pub fn logits(
    shape: &LstmShape,
    weights: &Weights,
    tokens: &Tensor,
    positions: &[u32],
) -> Result<Tensor> {
    let w = |name: &str| get(weights, name);
    let (b, n) = tokens.dims2()?;
    let embedding = w("embedding.weight")?;
    let x = embedding.index_select(&tokens.flatten_all()?, 0)?;
    let mut x = x.reshape((b, n, shape.embedding))?;
    for l in 0..shape.layers {
        x = layer(shape, weights, l, &x)?;
    }
    let at = Tensor::from_slice(positions, positions.len(), tokens.device())?;
    let x = x.index_select(&at, 1)?.reshape(((), shape.width))?;
    stock::linear(&x, w("logits.weight")?, w("logits.bias")?)
}

/// A layer: (b, n, inputs) to (b, n, width).
fn layer(shape: &LstmShape, weights: &Weights, l: usize, x: &Tensor) -> Result<Tensor> {
    let w = |gate: &str, name: &str| get(weights, &format!("layers.{l}.{gate}.{name}"));
    let (b, n, _) = x.dims3()?;
    let all = |name: &str| -> Result<Tensor> {
        let of_gates = GATES.iter().map(|gate| w(gate, name));
        Tensor::cat(&of_gates.collect::<Result<Vec<_>>>()?, 0)
    };
    let (hidden, width) = (all("hidden")?.t()?, shape.width);
    let driven = stock::linear(x, &all("input")?, &all("bias")?)?; // (b, n, 4 width)
    let mut h = Tensor::zeros((b, width), x.dtype(), x.device())?;
    let mut c = h.clone();
    let mut outputs = Vec::with_capacity(n);
    for t in 0..n {
        let gates = (driven.narrow(1, t, 1)?.squeeze(1)? + h.matmul(&hidden)?)?;
        let gate = |k: usize| gates.narrow(1, k * width, width);
        let (i, f, g, o) = (gate(0)?, gate(1)?, gate(2)?, gate(3)?);
        c = ((sigmoid(&f)? * c)? + (sigmoid(&i)? * g.tanh()?)?)?;
        h = (sigmoid(&o)? * c.tanh()?)?;
        outputs.push(h.clone());
    }
    Tensor::stack(&outputs, 1)
}

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    ((x * 0.5)?.tanh()? * 0.5)? + 0.5 // without overflow
}
