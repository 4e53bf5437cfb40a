//! Larger sizes as deviations from the smallest.
//!
//! The smallest model of an elastic condensation reads the outer anchors and the first blocks of the
//! bank. Trained as they are, the values that larger models add stay where they started until a step
//! draws such a model. As *deviations* they are added to what the smallest model has in their place, so
//! that a larger one starts as the repetition of the smallest as it is by then, and is free to leave it:
//!
//! - between the outer anchors, to their linear interpolation;
//! - beyond the first blocks, to a copy of them along the diagonal, as [`ramp_scalers`](crate::ramp_scalers)
//!   has it; off the diagonal and in the classifier, to nothing.
//!
//! The map from deviations to values is linear and its own inverse but for a sign, so either can be trained,
//! stored and averaged. Files hold values.

use crate::bank::depth_matrix;
use crate::learngene::Channels;
use crate::{DepthRule, Learngene, Part, Plan};
use candle_core::{Result, Tensor};
use wave_models::vit::VitShape;

#[cfg(test)]
mod tests;

impl Learngene {
    /// Values from deviations: adds to each what a model of the width of `smallest` has in its place.
    ///
    /// # Errors
    /// If the tensors here do not fit the plan.
    pub fn from_deviations(&self, smallest: &VitShape) -> Result<Learngene> {
        self.shifted(smallest, 1.0)
    }

    /// Deviations from values, the inverse of [`Learngene::from_deviations`].
    ///
    /// # Errors
    /// If the tensors here do not fit the plan.
    pub fn to_deviations(&self, smallest: &VitShape) -> Result<Learngene> {
        self.shifted(smallest, -1.0)
    }

    /// With inherited weights that repeat those of the smallest model, at every width and depth.
    ///
    /// # Errors
    /// If the tensors here do not fit the plan.
    pub fn repeated(&self, smallest: &VitShape) -> Result<Learngene> {
        let cleared = self.inherited.iter().map(|(name, t)| {
            let t = match Channels::of(name) {
                Some(c) => {
                    let (wide, narrow) = (c.count(&self.auxiliary), c.count(smallest));
                    keep(t, c.axis, |at| at % wide < narrow)?
                }
                None => t.clone(),
            };
            let outer = |at| at == 0 || at + 1 == self.auxiliary.depth;
            let t = match name.starts_with("blocks.") {
                true => keep(&t, 0, outer)?,
                false => t,
            };
            Ok((name.clone(), t))
        });
        let deviations = Learngene {
            inherited: cleared.collect::<Result<_>>()?,
            ..self.clone()
        };
        Ok(Learngene {
            inherited: deviations.from_deviations(smallest)?.inherited,
            ..self.clone()
        })
    }

    fn shifted(&self, smallest: &VitShape, sign: f64) -> Result<Learngene> {
        let bank = self.bank.iter().map(|(part, t)| {
            let (k, n, r, c) = t.dims4()?;
            let blocks = copied_blocks(&self.plan, *part, &self.auxiliary, smallest);
            let shifted = repeat(&t.reshape((k, n, r * c))?, 2, &blocks, sign)?;
            let shifted = between_anchors(&shifted, sign)?;
            Ok((*part, shifted.reshape((k, n, r, c))?))
        });
        let inherited = self.inherited.iter().map(|(name, t)| {
            let copied = Channels::of(name)
                .and_then(|c| Some((c.axis, copied_channels(&c, &self.auxiliary, smallest)?)));
            let t = match copied {
                Some((axis, of)) => repeat(t, axis, &of, sign)?,
                None => t.clone(),
            };
            let t = match name.starts_with("blocks.") {
                true => between_anchors(&t, sign)?,
                false => t,
            };
            Ok((name.clone(), t))
        });
        Ok(Learngene {
            bank: bank.collect::<Result<_>>()?,
            inherited: inherited.collect::<Result<_>>()?,
            ..self.clone()
        })
    }
}

/// What each block `(r c)` of a part of the widest model repeats, if any: one of a smaller model, along the diagonal.
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

/// What each entry of the axis of `channels` repeats, if any: one of a smaller model. Nothing at all for the classifier,
/// which adds up its inputs, so that copies would count twice.
pub(crate) fn copied_channels(
    channels: &Channels,
    widest: &VitShape,
    smaller: &VitShape,
) -> Option<Vec<Option<usize>>> {
    let (wide, narrow) = (channels.count(widest), channels.count(smaller));
    let of = |at| (at % wide >= narrow).then_some(at - at % wide + at % wide % narrow);
    (!channels.input).then(|| (0..channels.segments * wide).map(of).collect())
}

/// `x` plus `sign` times what each entry of an axis repeats, if anything.
pub(crate) fn repeat(x: &Tensor, axis: usize, of: &[Option<usize>], sign: f64) -> Result<Tensor> {
    if of.iter().all(Option::is_none) {
        return Ok(x.clone());
    }
    let index: Vec<u32> = of.iter().map(|of| of.unwrap_or(0) as u32).collect();
    let index = Tensor::from_vec(index, of.len(), x.device())?;
    let share = of.iter().map(|of| of.map_or(0.0, |_| sign as f32));
    let read = x.contiguous()?.index_select(&index, axis)?;
    x + read.broadcast_mul(&along(share.collect(), axis, x)?)?
}

/// `x` plus, between the outer anchors (axis 0), `sign` times their interpolation.
fn between_anchors(x: &Tensor, sign: f64) -> Result<Tensor> {
    let k = x.dim(0)?;
    if k < 3 {
        return Ok(x.clone());
    }
    let mut matrix = vec![0.0; k * k];
    let read = depth_matrix(k, 2, DepthRule::LastIsOne); // each of K layers, of the two outer anchors
    for (row, line) in matrix.chunks_exact_mut(k).enumerate() {
        line[row] = 1.0;
        if (1..k - 1).contains(&row) {
            line[0] = sign as f32 * read[row][0];
            line[k - 1] = sign as f32 * read[row][1];
        }
    }
    let matrix = Tensor::from_vec(matrix, (k, k), x.device())?;
    matrix.matmul(&x.reshape((k, ()))?)?.reshape(x.shape())
}

/// `x` with zeros along an axis where `kept` does not hold.
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
