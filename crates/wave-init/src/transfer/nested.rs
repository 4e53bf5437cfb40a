//! Slices of an elastic network, whose subnetworks are its first heads and channels, as in HydraViT (Haberer
//! et al. 2024) and MatFormer (Devvrit et al. 2024).
//!
//! The target takes the donor's first channels of the residual stream, first heads and first hidden channels
//! of the MLP, and its first or evenly spaced layers ([`Choices::layers`](crate::Choices::layers)). Nothing
//! is rescaled. Any transformer can be sliced, but the slice is useful only if the whole was trained for it.

use super::{BLOCK_TENSORS, Carry, Stored, as_large, same};
use crate::indices::uniform;
use crate::start::{Request, Start, StartMethod};
use candle_core::{Device, Result, Tensor};
use wave_models::Weights;
use wave_models::fold::get;
use wave_models::vit::VitShape;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "nested",
    description: "the first heads and channels of an elastic model (HydraViT: Haberer et al. 2024; \
                  MatFormer: Devvrit et al. 2024)",
    donor: true,
    images: false,
    run: start,
};

fn start(request: &Request) -> crate::Result<Start> {
    let mut carry = Carry::new(METHOD.name, request)?;
    let (donor, target) = (&carry.donor.shape, request.shape);
    as_large(METHOD.name, donor, target)?;
    let head_width = ("head width", donor.head_width(), target.head_width());
    same(METHOD.name, &[head_width])?;
    let layers = request.choices.layers.pick(donor.depth, target.depth);
    let take = |name: &str, tensor: &Tensor, dims: &[usize]| first(tensor, dims, 0, segments(name));
    carry.blocks(layers.into_iter().enumerate(), &BLOCK_TENSORS, take)?;
    carry.outside(&|tensor, axis| tensor.narrow(axis, 0, target.width))?;
    Ok(carry.finish(Stored::Donor))
}

/// The slice of an elastic network with the shape of `target`, which is no larger and has evenly spaced layers and
/// heads of the same width. It is differentiable, so training the slices trains the whole. Weights are stacked
/// ([`wave_models::vit::stack`]), and so is the result; tensors outside the blocks are sliced too, and must fit.
pub fn slice(weights: &Weights, whole: &VitShape, target: &VitShape) -> Result<Weights> {
    let picked = uniform(whole.depth, target.depth).into_iter();
    let picked: Vec<u32> = picked.map(|l| l as u32).collect();
    let device = weights.values().next().map_or(&Device::Cpu, Tensor::device);
    let picked = Tensor::new(picked, device)?;
    let expected = target.stacked_parameters();
    let sliced = expected.into_iter().map(|(name, dims)| {
        let tensor = get(weights, &name)?;
        let slice = if !name.starts_with("blocks.") {
            first(tensor, &dims, 0, 1)?
        } else if whole.depth == target.depth {
            first(tensor, &dims, 1, segments(&name))?
        } else {
            first(&tensor.index_select(&picked, 0)?, &dims, 1, segments(&name))?
        };
        Ok((name, slice.contiguous()?))
    });
    sliced.collect()
}

/// Number of equal segments: queries, keys and values are concatenated in one tensor.
fn segments(name: &str) -> usize {
    if name.contains("attn.qkv") { 3 } else { 1 }
}

/// The first elements along the axes from `axis` on; along `axis` itself, the first of each of the equal segments.
fn first(tensor: &Tensor, dims: &[usize], axis: usize, segments: usize) -> Result<Tensor> {
    let (of, rows) = (tensor.dim(axis)? / segments, dims[axis] / segments);
    let mut slice = tensor.clone();
    if of != rows {
        let parts = (0..segments).map(|i| tensor.narrow(axis, i * of, rows));
        slice = Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, axis)?;
    }
    for (axis, size) in dims.iter().enumerate().skip(axis + 1) {
        slice = slice.narrow(axis, 0, *size)?;
    }
    Ok(slice)
}

#[cfg(test)]
#[path = "nested_tests.rs"]
mod tests;
