//! Networks small enough to differentiate through their training. Initialisers are learned on them.
//!
//! Each is one file: its sizes, the names, shapes and default initialisation of its weights, and its loss. They compute
//! in the dtype of their weights, with candle's own operators: gradients of the fused ones are not differentiable.

pub mod autoencoder;
pub mod fixup;
pub mod lstm;

use candle_core::{Result, Tensor};
use serde::Serialize;
use wave_models::{ShapeError, Weights};

pub use autoencoder::AutoencoderShape;
pub use fixup::FixupShape;
pub use lstm::LstmShape;

/// The default initialisation of a weight: PyTorch's defaults, which the papers call Kaiming's where they are uniform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Usual {
    /// Uniform between ± this.
    Uniform(f64),
    /// Normal with this standard deviation.
    Normal(f64),
    /// This number everywhere: norms, and tensors that Fixup sets to zero.
    Constant(f64),
}

impl Usual {
    /// Uniform between ±1/sqrt(inputs).
    pub(crate) fn of_inputs(inputs: usize) -> Usual {
        Usual::Uniform(1.0 / (inputs.max(1) as f64).sqrt())
    }
}

/// A weight of a small network.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub dims: Vec<usize>,
    pub usual: Usual,
}

/// Weights in the order of a network.
#[derive(Default)]
pub(super) struct Parameters(Vec<Parameter>);

impl Parameters {
    fn add(&mut self, name: impl Into<String>, dims: &[usize], usual: Usual) {
        let (name, dims) = (name.into(), dims.to_vec());
        self.0.push(Parameter { name, dims, usual });
    }

    /// Weight and bias of an affine map, with PyTorch's initialisation.
    fn map(&mut self, name: &str, outputs: usize, inputs: usize) {
        let usual = Usual::of_inputs(inputs);
        self.add(format!("{name}.weight"), &[outputs, inputs], usual);
        self.add(format!("{name}.bias"), &[outputs], usual);
    }
}

/// A batch for a small network.
#[derive(Clone, Debug)]
pub struct Examples {
    /// Images (b, c, h, w), or tokens (b, n).
    pub input: Tensor,
    /// A class for each image; for tokens, the next token after each of the positions: (b, positions). An
    /// autoencoder needs none.
    pub targets: Vec<u32>,
    /// The positions at which predictions count, the same in each sequence.
    pub positions: Vec<u32>,
}

/// A small network and its sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "network", rename_all = "snake_case")]
pub enum Small {
    Autoencoder(AutoencoderShape),
    Fixup(FixupShape),
    Lstm(LstmShape),
}

impl Small {
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        match self {
            Small::Autoencoder(shape) => shape.validate(),
            Small::Fixup(shape) => shape.validate(),
            Small::Lstm(shape) => shape.validate(),
        }
    }

    /// All weights, in the order of the network.
    pub fn parameters(&self) -> Vec<Parameter> {
        match self {
            Small::Autoencoder(shape) => shape.parameters(),
            Small::Fixup(shape) => shape.parameters(),
            Small::Lstm(shape) => shape.parameters(),
        }
    }

    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let all = self.parameters().into_iter();
        all.map(|p| (p.name, p.dims)).collect()
    }

    /// The loss: a scalar, the mean over the examples, of cross-entropies or of an autoencoder's squared errors.
    pub fn loss(&self, weights: &Weights, examples: &Examples) -> Result<Tensor> {
        let logits = match self {
            Small::Autoencoder(shape) => return autoencoder::loss(shape, weights, &examples.input),
            Small::Fixup(shape) => fixup::logits(shape, weights, &examples.input)?,
            Small::Lstm(shape) => {
                lstm::logits(shape, weights, &examples.input, &examples.positions)?
            }
        };
        let one_hot = wave_train::smoothed_targets(&examples.targets, logits.dim(1)?, 0.0)?;
        wave_ops::stock::soft_cross_entropy(&logits, &one_hot.to_dtype(logits.dtype())?)
    }
}

#[cfg(test)]
#[path = "small_tests.rs"]
mod tests;
