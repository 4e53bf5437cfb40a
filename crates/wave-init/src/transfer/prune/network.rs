//! A vision transformer whose norms have no weights and biases: they are folded into the matrices that read them.

use crate::start::Donor;
use candle_core::{D, Device, Result, Tensor};
use wave_models::Weights;
use wave_models::fold::Affine;
use wave_models::vit::embedded;

/// Tokens per forward pass.
const AT_ONCE: usize = 8192;

/// A linear map with a weight (outputs, inputs), with weight and bias of the preceding norm folded in.
fn of_norm(weights: &Weights, name: &str, norm: &str) -> Result<Affine> {
    let own = Affine::stored(weights, name)?;
    let norm = Affine::stored(weights, norm)?;
    let shift = own.weight.matmul(&norm.bias.unsqueeze(1)?)?.squeeze(1)?;
    Ok(Affine {
        weight: own.weight.broadcast_mul(&norm.weight)?,
        bias: (own.bias + shift)?,
    })
}

/// A block without norm parameters, which are folded into the matrices that read them.
pub(super) struct Layer {
    /// (3 heads width-of-a-head, stream)
    pub(super) qkv: Affine,
    /// (stream, heads width-of-a-head)
    pub(super) proj: Affine,
    /// (hidden, stream)
    pub(super) fc1: Affine,
    /// (stream, hidden)
    pub(super) fc2: Affine,
    pub(super) heads: usize,
}

impl Layer {
    /// Outputs of all heads (b, tokens, heads width-of-a-head) for queries, keys and values.
    pub(super) fn attend(&self, qkv: &Tensor) -> Result<Tensor> {
        wave_ops::stock::attention(qkv, self.heads)
    }

    /// The MLP's hidden channels for a normalised stream.
    pub(super) fn hidden(&self, h: &Tensor) -> Result<Tensor> {
        wave_ops::gelu(&self.fc1.apply(h)?)
    }
}

/// The donor, with the weights and biases of norms folded.
pub(super) struct Network<'d> {
    pub(super) donor: &'d Donor,
    pub(super) layers: Vec<Layer>,
    /// The classifier, if there is one.
    pub(super) head: Option<Affine>,
    /// (tokens, 1): square root of a token's weight in a fit. A class token weighs as much as all patches together.
    pub(super) share: Tensor,
}

impl<'d> Network<'d> {
    /// The donor with its norms folded, which computes the same function.
    pub(super) fn of(donor: &'d Donor) -> Result<Network<'d>> {
        let (shape, weights) = (&donor.shape, &donor.weights);
        let layer = |l: usize| {
            let name = |part: &str| format!("blocks.{l}.{part}");
            Ok(Layer {
                qkv: of_norm(weights, &name("attn.qkv"), &name("norm1"))?,
                proj: Affine::stored(weights, &name("attn.proj"))?,
                fc1: of_norm(weights, &name("mlp.fc1"), &name("norm2"))?,
                fc2: Affine::stored(weights, &name("mlp.fc2"))?,
                heads: shape.heads,
            })
        };
        let patches = shape.tokens() - shape.prefix();
        let mut share = vec![1f32; shape.tokens()];
        share[..shape.prefix()].fill((patches as f32).sqrt());
        let head = (shape.classes > 0).then(|| of_norm(weights, "head", shape.final_norm()));
        Ok(Network {
            donor,
            layers: (0..shape.depth).map(layer).collect::<Result<_>>()?,
            head: head.transpose()?,
            share: Tensor::from_vec(share, (shape.tokens(), 1), &Device::Cpu)?,
        })
    }

    /// Tokens of the images (b, tokens, width) before the first layer, in batches.
    pub(super) fn embed(&self, images: &Tensor) -> Result<Vec<Tensor>> {
        let Donor { shape, weights, .. } = self.donor;
        let at_once = (AT_ONCE / shape.tokens()).max(1);
        let count = images.dim(0)?;
        let batches = (0..count).step_by(at_once).map(|first| {
            let images = images.narrow(0, first, at_once.min(count - first))?;
            embedded(wave_ops::Precision::F32, shape, weights, &images)
        });
        batches.collect()
    }

    /// The stream normalised to mean 0 and variance 1.
    pub(super) fn norm(&self, x: &Tensor) -> Result<Tensor> {
        let gain = Tensor::ones(x.dim(D::Minus1)?, x.dtype(), x.device())?;
        wave_ops::layer_norm(x, &gain, &gain.zeros_like()?, self.donor.shape.norm_eps)
    }

    /// Input (b, width) of the final norm.
    pub(super) fn pooled(&self, x: &Tensor) -> Result<Tensor> {
        match self.donor.shape.class_token {
            true => x.narrow(1, 0, 1)?.squeeze(1),
            false => x.mean(1),
        }
    }

    /// The stream between attention and MLP of a layer, and after the layer.
    pub(super) fn through(&self, layer: &Layer, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let attended = layer.attend(&layer.qkv.apply(&self.norm(x)?)?)?;
        let middle = (x + layer.proj.apply(&attended)?)?;
        let hidden = layer.hidden(&self.norm(&middle)?)?;
        let after = (&middle + layer.fc2.apply(&hidden)?)?;
        Ok((middle, after))
    }

    /// Passes the streams through the layer `index`, and through the layers after it and before `next`.
    pub(super) fn pass(
        &self,
        streams: Vec<Tensor>,
        index: usize,
        next: usize,
    ) -> Result<Vec<Passage>> {
        let pass = |before: Tensor| {
            let (middle, mut after) = self.through(&self.layers[index], &before)?;
            for layer in &self.layers[index + 1..next] {
                after = self.through(layer, &after)?.1;
            }
            Ok(Passage {
                before,
                middle,
                after,
            })
        };
        streams.into_iter().map(pass).collect()
    }
}

/// The donor's residual stream for a batch of images at a layer.
pub(super) struct Passage {
    /// Before the layer.
    pub(super) before: Tensor,
    /// Between its attention and its MLP.
    pub(super) middle: Tensor,
    /// Before the next layer that is kept, or after the last.
    pub(super) after: Tensor,
}
