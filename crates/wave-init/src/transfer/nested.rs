//! Slices of an elastic network whose smaller ones are its first heads and channels, as in HydraViT
//! (Haberer et al. 2024) and MatFormer (Devvrit et al. 2024).
//!
//! The target is the donor's first channels of the residual stream, first heads and first hidden
//! channels of the MLP; of the layers, the first or evenly spaced ones
//! ([`Choices::layers`](crate::Choices::layers)). Nothing is rescaled. Any transformer can be
//! sliced, but only one that was trained to be is any good.

use super::{Carry, Stored, same};
use crate::error::InitError;
use crate::ledger::Ledger;
use crate::start::{Request, Start, StartMethod};
use candle_core::{Result, Tensor};

const NAME: &str = "nested";

pub(crate) const METHOD: StartMethod = StartMethod {
    name: NAME,
    description: "the first heads and channels of an elastic model (HydraViT: Haberer et al. 2024; \
                  MatFormer: Devvrit et al. 2024)",
    donors: 1,
    ledger: |shape, _| Ledger::blocks(shape.depth),
    run: start,
};

fn start(request: &Request) -> std::result::Result<Start, InitError> {
    let mut carry = Carry::new(NAME, request)?;
    let (donor, target) = (carry.donor.shape(), request.shape);
    carry.at_least("depth", donor.depth, target.depth)?;
    carry.at_least("width", donor.width, target.width)?;
    carry.at_least("hidden width of the MLP", donor.hidden(), target.hidden())?;
    let head_width = ("head width", donor.head_width(), target.head_width());
    same(NAME, &[head_width])?;
    let layers = request.choices.layers.pick(donor.depth, target.depth);
    carry.blocks(layers, |name, tensor, dims| {
        let segments = if name.starts_with("attn.qkv") { 3 } else { 1 };
        first(tensor, dims, segments)
    })?;
    carry.outside(&|tensor, axis| tensor.narrow(axis, 0, target.width))?;
    Ok(carry.finish(Stored::Donor))
}

/// The first elements along every axis; along axis 0, of each of the equal segments.
fn first(tensor: &Tensor, dims: &[usize], segments: usize) -> Result<Tensor> {
    let (of, rows) = (tensor.dim(0)? / segments, dims[0] / segments);
    let parts: Vec<Tensor> = (0..segments)
        .map(|i| tensor.narrow(0, i * of, rows))
        .collect::<Result<_>>()?;
    let mut slice = Tensor::cat(&parts, 0)?;
    for (axis, size) in dims.iter().enumerate().skip(1) {
        slice = slice.narrow(axis, 0, *size)?;
    }
    Ok(slice)
}

#[cfg(test)]
#[path = "nested_tests.rs"]
mod tests;
