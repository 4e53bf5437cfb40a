//! A hypernetwork as a value, and as a function of its weights.

use super::{HyperShape, VitGraph, decoder, graphormer};
use crate::error::InitError;
use crate::random::normal;
use candle_core::{Result, Tensor};
use rand_chacha::ChaCha8Rng;
use wave_models::Weights;
use wave_models::vit::VitShape;

/// Standard deviation of what is drawn for tokens before the patches, which are not predicted.
const TOKEN: f64 = 0.02;

/// A hypernetwork: sizes and weights.
#[derive(Clone, Debug)]
pub struct Hypernetwork {
    shape: HyperShape,
    weights: Weights,
    /// Passes over the training images that its training took.
    pub epochs: f64,
}

/// Equal if they hold the same tensors, not others of the same values.
impl PartialEq for Hypernetwork {
    fn eq(&self, other: &Self) -> bool {
        let tensors = |h: &Hypernetwork| h.weights.values().map(Tensor::id).collect::<Vec<_>>();
        self.shape == other.shape && tensors(self) == tensors(other) && self.epochs == other.epochs
    }
}

impl Hypernetwork {
    /// A hypernetwork of these weights, whose sizes are read off them. Embeddings of the nodes' place in
    /// the graph may have the prefix `gnn.0.` that published code gives them while it runs.
    ///
    /// # Errors
    /// If a tensor is missing, misshapen, or of no hypernetwork.
    pub fn new(weights: Weights) -> std::result::Result<Self, InitError> {
        const MOVED: [&str; 3] = [
            "centrality_embed_in",
            "centrality_embed_out",
            "input_dist_embed",
        ];
        let rename = |(name, t): (String, Tensor)| match name.strip_prefix("gnn.0.") {
            Some(rest) if MOVED.iter().any(|m| rest.starts_with(m)) => (rest.to_owned(), t),
            _ => (name, t),
        };
        let weights: Weights = weights.into_iter().map(rename).collect();
        let shape = HyperShape::infer(&weights)?;
        Ok(Self {
            shape,
            weights,
            epochs: 0.0,
        })
    }

    /// The sizes.
    pub fn shape(&self) -> &HyperShape {
        &self.shape
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The number of values in all weights.
    pub fn parameters(&self) -> usize {
        self.weights.values().map(Tensor::elem_count).sum()
    }

    /// Weights of a transformer under timm's names, a tensor for each layer. Gradients flow to the
    /// hypernetwork's weights. Tokens before the patches, and their positions, are drawn from `rng`.
    ///
    /// # Errors
    /// If the hypernetwork's weights are not those of its shape.
    pub fn predict(&self, target: &VitShape, rng: &mut ChaCha8Rng) -> Result<Weights> {
        predict(&self.shape, &self.weights, target, rng)
    }
}

/// [`Hypernetwork::predict`] of a shape and weights that stand apart, as in training.
///
/// # Errors
/// If a weight is missing or of another shape.
pub fn predict(
    shape: &HyperShape,
    weights: &Weights,
    target: &VitShape,
    rng: &mut ChaCha8Rng,
) -> Result<Weights> {
    let graph = VitGraph::new(target);
    let nodes = graphormer::embed(shape, weights, &graph)?; // (nodes, hidden)
    let mut predicted = decoder::decode(shape, weights, &graph, &nodes)?;
    if target.class_token {
        let d = target.width;
        let of_token = normal((1, target.prefix(), d), TOKEN, rng)?;
        let device = nodes.device();
        let positions = match predicted.remove("pos_embed") {
            Some(patches) => Tensor::cat(&[&of_token.to_device(device)?, &patches], 1)?,
            None => candle_core::bail!("no positions were predicted"),
        };
        predicted.insert("pos_embed".into(), positions);
        let token = normal((1, 1, d), TOKEN, rng)?;
        predicted.insert("cls_token".into(), token.to_device(device)?);
    }
    Ok(predicted)
}
