//! The blocks of [`super`] on text tokens.

use super::TransformerShape;
use super::run::Layer;
use crate::Weights;
use crate::fold::{Affine, get};
use candle_core::{DType, Device, Result, Tensor};

/// Attention bias of masked tokens: their weight after the softmax is 0.
const UNSEEN: f32 = -1e9;

/// The blocks of a text tower with its weights, from token ids to hidden states.
pub(crate) struct TextBlocks {
    shape: TransformerShape,
    /// (vocabulary, d)
    tokens: Tensor,
    /// (context, d)
    positions: Tensor,
    layers: Vec<Layer>,
    /// The last norm.
    norm: Affine,
}

impl TextBlocks {
    /// The blocks for texts of up to `context` tokens, with full attention or, if `causal`, causal attention.
    pub(crate) fn new(
        shape: &TransformerShape,
        context: usize,
        causal: bool,
        weights: &Weights,
    ) -> Result<TextBlocks> {
        let tokens = get(weights, "tokens")?.clone();
        let scores = scores(shape.heads, context, causal, tokens.device())?;
        let layers = (0..shape.depth)
            .map(|l| Layer::new(shape, weights, l, Some(&scores)))
            .collect::<Result<_>>()?;
        Ok(TextBlocks {
            shape: shape.clone(),
            positions: get(weights, "pos_embed")?.reshape(((), shape.width))?,
            tokens,
            layers,
            norm: Affine::stored(weights, "norm")?,
        })
    }

    /// Hidden states (b, n, d) of tokens (b, n).
    pub(crate) fn run(&self, tokens: &Tensor) -> Result<Tensor> {
        let (b, n) = tokens.dims2()?;
        let x = self.tokens.index_select(&tokens.flatten_all()?, 0)?;
        let x = x.reshape((b, n, self.shape.width))?;
        let mut x = x.broadcast_add(&self.positions.narrow(0, 0, n)?)?;
        for layer in &self.layers {
            x = layer.run(&self.shape, None, &x)?;
        }
        self.norm.norm(&x, self.shape.norm_eps)
    }
}

/// Attention bias (heads, n, n).
fn scores(heads: usize, n: usize, causal: bool, device: &Device) -> Result<Tensor> {
    if !causal {
        return Tensor::zeros((heads, n, n), DType::F32, device);
    }
    let of_head = (0..n).flat_map(|of| (0..n).map(move |to| if to > of { UNSEEN } else { 0.0 }));
    let of_head = Tensor::from_iter(of_head, device)?.reshape((1, n, n))?;
    of_head.broadcast_as((heads, n, n))?.contiguous()
}
