//! Larger models as repetitions of smaller ones: copies of blocks along the diagonal, copies of channels.

use crate::learngene::Channels;
use crate::{Part, Plan};
use candle_core::{Result, Tensor};
use wave_models::vit::VitShape;

/// For each block `(r c)` of a part of the widest model, the block of the smaller one that it repeats along the
/// diagonal, if any.
pub(crate) fn copied_blocks(
    plan: &Plan,
    part: Part,
    widest: &VitShape,
    smaller: &VitShape,
) -> Vec<Option<usize>> {
    let (segments, rows, columns) = plan.blocks(part, widest);
    let (_, few_rows, few_columns) = plan.blocks(part, smaller);
    let (height, few) = (rows / segments, few_rows / segments);
    let of = |at: usize| {
        let (segment, a, b) = (at / columns / height, at / columns % height, at % columns);
        let own = a < few && b < few_columns;
        let diagonal = a / few == b / few_columns;
        let row = segment * height + a % few;
        (diagonal && !own).then_some(row * columns + b % few_columns)
    };
    (0..rows * columns).map(of).collect()
}

/// For each entry along the axis of `channels`, the entry of the smaller model that it repeats, if any. `None` for
/// the classifier, which sums over its inputs, so that copies would count twice.
pub(crate) fn copied_channels(
    channels: &Channels,
    widest: &VitShape,
    smaller: &VitShape,
) -> Option<Vec<Option<usize>>> {
    let (wide, narrow) = (channels.count(widest), channels.count(smaller));
    let of = |at| (at % wide >= narrow).then_some(at - at % wide + at % wide % narrow);
    (!channels.input).then(|| (0..channels.segments * wide).map(of).collect())
}

/// Adds to each entry of `x` along an axis the entry that it repeats, if any.
pub(crate) fn repeat(x: &Tensor, axis: usize, of: &[Option<usize>]) -> Result<Tensor> {
    if of.iter().all(Option::is_none) {
        return Ok(x.clone());
    }
    let index: Vec<u32> = of.iter().map(|of| of.unwrap_or(0) as u32).collect();
    let index = Tensor::from_vec(index, of.len(), x.device())?;
    let share = of.iter().map(|of| f32::from(of.is_some()));
    let read = x.contiguous()?.index_select(&index, axis)?;
    x + read.broadcast_mul(&along(share.collect(), axis, x)?)?
}

/// Sets the entries of `x` along an axis to 0, except those that `kept` accepts.
pub(crate) fn keep(x: &Tensor, axis: usize, kept: impl Fn(usize) -> bool) -> Result<Tensor> {
    let kept = (0..x.dim(axis)?).map(|at| f32::from(kept(at)));
    x.broadcast_mul(&along(kept.collect(), axis, x)?)
}

/// Values along an axis of `x`, to be broadcast over the others.
fn along(values: Vec<f32>, axis: usize, x: &Tensor) -> Result<Tensor> {
    let mut dims = vec![1; x.rank()];
    dims[axis] = values.len();
    Tensor::from_vec(values, dims, x.device())?.to_dtype(x.dtype())
}
