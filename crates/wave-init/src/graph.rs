//! GHN-3: weights predicted by a graph hypernetwork (Knyazev, Hwang and Lacoste-Julien 2023, "Can We Scale
//! Transformers to Predict Parameters of Diverse ImageNet Models?").
//!
//! A network is a graph whose nodes are its operations ([`VitGraph`]). A hypernetwork embeds every node,
//! lets the nodes attend to each other along the graph's paths ([`graphormer`]), and decodes each node's
//! weights ([`decoder`]):
//!
//! ```text
//! x   = embed(operation) + embed(shape of its weights)
//! x   = graphormer layers(x, shortest paths)
//! W   = normalise(tile(decode(x)))
//! ```
//!
//! The hypernetwork is a differentiable function of its own weights, [`Hypernetwork::predict`]. So the
//! loss of a predicted network trains the hypernetwork. Weights have the names of the published ones
//! ([`HyperShape`]).
//!
//! No other method here is a network trained to make networks. The cost of each of its starts includes
//! that training.

pub mod decoder;
pub mod graphormer;
pub(crate) mod hypernetwork;
mod shape;
mod vit_graph;

pub use hypernetwork::{Hypernetwork, predict};
pub use shape::{HyperShape, initialise};
pub use vit_graph::{Node, Operation, VitGraph};

use candle_core::{Result, Tensor};
use wave_models::Weights;

use crate::error::InitError;
use crate::ledger::{Cost, Ledger};
use crate::random::generator;
use crate::start::{Request, Start, StartMethod};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "ghn3",
    description: "weights predicted by the trained graph hypernetwork of --from (GHN-3; Knyazev et al. \
                  2023, section 3)",
    donors: 0,
    images: false,
    ledger: |_, _| Ledger::default(),
    run: start,
};

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
