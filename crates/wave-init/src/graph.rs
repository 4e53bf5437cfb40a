//! GHN-3: weights predicted by a graph hypernetwork (Knyazev, Hwang and Lacoste-Julien 2023, "Can We Scale
//! Transformers to Predict Parameters of Diverse ImageNet Models?").
//!
//! A network is a graph whose nodes are its operations ([`VitGraph`]). A hypernetwork embeds every node,
//! lets the nodes attend to each other along the graph's paths ([`graphormer`]), and decodes from each
//! node the weights it stands for ([`decoder`]):
//!
//! ```text
//! x   = embed(operation) + embed(shape of its weights)
//! x   = graphormer layers(x, shortest paths)
//! W   = normalise(tile(decode(x)))
//! ```
//!
//! The hypernetwork is a function of its own weights, [`Hypernetwork::predict`], and differentiable: what
//! a predicted network loses on images is a loss of the hypernetwork, which is how it is trained. Weights
//! have the names of the published ones ([`HyperShape`]).
//!
//! As a way to start a network it is what no other method here is: a network that was trained to make
//! networks. That training is counted as a cost of all of them.

pub mod decoder;
pub mod graphormer;
mod network;
mod shape;

pub use network::{Node, Operation, VitGraph};
pub use shape::{HyperShape, initialise};

use candle_core::{Result, Tensor};
use rand_chacha::ChaCha8Rng;
use wave_models::Weights;
use wave_models::vit::VitShape;

use crate::error::InitError;
use crate::ledger::{Cost, Ledger};
use crate::random::{generator, normal};
use crate::start::{Request, Start, StartMethod};

/// Standard deviation of what is drawn for tokens before the patches, which are not predicted.
const TOKEN: f64 = 0.02;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "ghn3",
    description: "weights predicted by the trained graph hypernetwork of --from (GHN-3; Knyazev et al. \
                  2023, section 3)",
    donors: 0,
    ledger: |_, _| Ledger::default(),
    run: start,
};

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

fn start(request: &Request) -> std::result::Result<Start, InitError> {
    let Some(hypernetwork) = &request.choices.hypernetwork else {
        return Err(InitError::NoHypernetwork);
    };
    if request.shape.distilled {
        return Err(InitError::Distilled);
    }
    let rng = &mut generator(request.seed, 0);
    let weights = hypernetwork.predict(request.shape, rng)?;
    let detached = weights
        .into_iter()
        .map(|(name, t)| Ok((name, t.detach().contiguous()?)));
    Ok(Start {
        weights: detached.collect::<Result<_>>()?,
        cost: Cost {
            stored: hypernetwork.parameters(),
            extra_epochs: hypernetwork.epochs,
            ..Cost::default()
        },
    })
}

/// A weight of a hypernetwork.
fn get<'a>(weights: &'a Weights, name: &str) -> Result<&'a Tensor> {
    match weights.get(name) {
        Some(t) => Ok(t),
        None => candle_core::bail!("the hypernetwork's weight {name} is missing"),
    }
}

/// `x W^T + b` by the weights of a name.
fn linear(weights: &Weights, name: &str, x: &Tensor) -> Result<Tensor> {
    let weight = get(weights, &format!("{name}.weight"))?;
    let bias = get(weights, &format!("{name}.bias"))?;
    wave_ops::linear(x, weight, bias)
}

#[cfg(test)]
#[path = "graph/tests.rs"]
mod tests;
