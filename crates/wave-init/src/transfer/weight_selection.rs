//! Weight selection: a smaller network from evenly spaced elements of a larger one.
//!
//! Along each axis of a tensor the target takes the elements at the evenly spaced positions of [`uniform`];
//! of the layers, it takes the first ones (Xu et al. 2024, section 3). Nothing is rescaled. The classifier is
//! freshly initialised.

use super::{BLOCK_TENSORS, Carry, Stored, as_large};
use crate::indices::uniform;
use crate::start::{Request, Start, StartMethod};
use candle_core::{Result, Tensor};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "weight-selection",
    description: "evenly spaced elements of a larger model's weights (Xu et al. 2024, section 3)",
    donor: true,
    images: false,
    run: start,
};

fn start(request: &Request) -> crate::Result<Start> {
    let mut carry = Carry::new(METHOD.name, request)?;
    let (donor, target) = (&carry.donor.shape, request.shape);
    as_large(METHOD.name, donor, target)?;
    let layers = request.choices.layers.pick(donor.depth, target.depth);
    let take = |_: &str, tensor: &Tensor, dims: &[usize]| {
        let mut axes = dims.iter().enumerate();
        axes.try_fold(tensor.clone(), |selected, (axis, &size)| {
            select(&selected, axis, size)
        })
    };
    carry.blocks(layers.into_iter().enumerate(), &BLOCK_TENSORS, take)?;

    let head = ["head.weight", "head.bias"].map(|name| (name, carry.weights[name].clone()));
    carry.outside(&|tensor, axis| select(tensor, axis, target.width))?;
    for (name, fresh) in head {
        carry.weights.insert(name.into(), fresh);
        carry.taken.remove(name);
    }
    Ok(carry.finish(Stored::Donor))
}

/// `size` evenly spaced elements along an axis.
fn select(tensor: &Tensor, axis: usize, size: usize) -> Result<Tensor> {
    let of = tensor.dim(axis)?;
    if size == of {
        return Ok(tensor.clone());
    }
    let indices: Vec<u32> = uniform(of, size).into_iter().map(|i| i as u32).collect();
    let indices = Tensor::new(indices, tensor.device())?;
    tensor.contiguous()?.index_select(&indices, axis)
}

#[cfg(test)]
#[path = "weight_selection_tests.rs"]
mod tests;
