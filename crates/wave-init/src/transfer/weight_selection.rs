//! Weight selection: a smaller network from evenly spaced elements of a larger one.
//!
//! Along each axis of a tensor the target takes the elements at the positions that
//! [`uniform`] spaces; of the layers, the first ones (Xu et al. 2024,
//! section 3). Nothing is rescaled. The classifier starts afresh.

use super::{Carry, Stored};
use crate::choices::QkvRows;
use crate::error::InitError;
use crate::indices::uniform;
use crate::ledger::Ledger;
use crate::start::{Request, Start, StartMethod};
use candle_core::{Result, Tensor};

const NAME: &str = "weight-selection";

pub(crate) const METHOD: StartMethod = StartMethod {
    name: NAME,
    description: "evenly spaced elements of a larger model's weights (Xu et al. 2024, section 3)",
    donors: 1,
    images: false,
    ledger: |shape, choices| {
        let ledger = Ledger::blocks(shape.depth);
        if choices.selection.head {
            ledger
        } else {
            ledger.without_head()
        }
    },
    run: start,
};

fn start(request: &Request) -> std::result::Result<Start, InitError> {
    let mut carry = Carry::new(NAME, request)?;
    let (donor, target, choices) = (carry.donor.shape(), request.shape, request.choices);
    carry.at_least("depth", donor.depth, target.depth)?;
    carry.at_least("width", donor.width, target.width)?;
    carry.at_least("hidden width of the MLP", donor.hidden(), target.hidden())?;

    let layers = choices.layers.pick(donor.depth, target.depth);
    carry.blocks(layers, |name, tensor, dims| {
        let mut selected = tensor.clone();
        for (axis, &size) in dims.iter().enumerate() {
            let apart = choices.selection.qkv == QkvRows::Apart;
            selected = match axis == 0 && apart && name.starts_with("attn.qkv") {
                true => select_thirds(&selected, size / 3)?,
                false => select(&selected, axis, size)?,
            };
        }
        Ok(selected)
    })?;

    let head = (
        carry.weights["head.weight"].clone(),
        carry.weights["head.bias"].clone(),
    );
    carry.outside(&|tensor, axis| select(tensor, axis, target.width))?;
    if !choices.selection.head {
        for (name, fresh) in [("head.weight", head.0), ("head.bias", head.1)] {
            carry.weights.insert(name.into(), fresh);
            carry.taken.remove(name);
        }
    }
    Ok(carry.finish(Stored::Donor))
}

/// `size` evenly spaced elements along an axis.
fn select(tensor: &Tensor, axis: usize, size: usize) -> Result<Tensor> {
    let of = tensor.dim(axis)?;
    pick(tensor, axis, uniform(of, size))
}

/// `size` evenly spaced rows of each third.
fn select_thirds(tensor: &Tensor, size: usize) -> Result<Tensor> {
    let third = tensor.dim(0)? / 3;
    let rows = uniform(third, size);
    let all = (0..3).flat_map(|part| rows.iter().map(move |row| part * third + row));
    pick(tensor, 0, all.collect())
}

fn pick(tensor: &Tensor, axis: usize, indices: Vec<usize>) -> Result<Tensor> {
    if indices.len() == tensor.dim(axis)? {
        return Ok(tensor.clone());
    }
    let indices: Vec<u32> = indices.into_iter().map(|i| i as u32).collect();
    let indices = Tensor::new(indices, tensor.device())?;
    tensor.contiguous()?.index_select(&indices, axis)
}

#[cfg(test)]
#[path = "weight_selection_tests.rs"]
mod tests;
