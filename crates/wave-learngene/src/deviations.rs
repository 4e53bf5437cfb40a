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

use crate::{Learngene, Part};
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
        let inherited = self.inherited.iter().map(|(name, t)| {
            let depth = name.starts_with("blocks.").then_some(Axis::Depth);
            let mut axes = self.width_of(name, smallest).into_iter().chain(depth);
            let cleared = axes.try_fold(t.clone(), |t, axis| axis.cleared(&t))?;
            Ok((name.clone(), cleared))
        });
        let deviations = Learngene {
            inherited: inherited.collect::<Result<_>>()?,
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
            let blocks = self.blocks_of(*part, smallest);
            let shifted = blocks.shifted(&t.reshape((k, n, r * c))?, sign)?;
            let shifted = Axis::Depth.shifted(&shifted, sign)?;
            Ok((*part, shifted.reshape((k, n, r, c))?))
        });
        let inherited = self.inherited.iter().map(|(name, t)| {
            let depth = name.starts_with("blocks.").then_some(Axis::Depth);
            let mut axes = self.width_of(name, smallest).into_iter().chain(depth);
            let shifted = axes.try_fold(t.clone(), |t, axis| axis.shifted(&t, sign))?;
            Ok((name.clone(), shifted))
        });
        Ok(Learngene {
            bank: bank.collect::<Result<_>>()?,
            inherited: inherited.collect::<Result<_>>()?,
            ..self.clone()
        })
    }

    /// What the blocks `(r c)` of a part repeat: those of the smallest model, along the diagonal.
    fn blocks_of(&self, part: Part, smallest: &VitShape) -> Axis {
        let (segments, rows, columns) = self.plan.blocks(part, &self.auxiliary);
        let (_, few_rows, few_columns) = self.plan.blocks(part, smallest);
        let (height, few) = (rows / segments, few_rows / segments);
        let of = |at: usize| {
            let (segment, a, b) = (at / columns / height, at / columns % height, at % columns);
            let own = a < few && b < few_columns;
            let diagonal = a / few == b / few_columns;
            let row = segment * height + a % few;
            (diagonal && !own).then_some(row * columns + b % few_columns)
        };
        Axis::Repeat {
            axis: 2,
            own: (0..rows * columns)
                .map(|at| at / columns % height < few && at % columns < few_columns)
                .collect(),
            of: (0..rows * columns).map(of).collect(),
        }
    }

    /// What the channels of an inherited weight repeat, if they depend on the width.
    fn width_of(&self, name: &str, smallest: &VitShape) -> Option<Axis> {
        let (wide, narrow) = (self.auxiliary.width, smallest.width);
        let hidden = (self.auxiliary.hidden(), smallest.hidden());
        let copies =
            |axis, segments, (wide, narrow)| Axis::repeat(axis, segments, wide, narrow, true);
        Some(match name {
            "head.bias" | "head_dist.bias" => return None,
            // The classifier adds up its inputs: copies would count twice.
            "head.weight" | "head_dist.weight" => Axis::repeat(1, 1, wide, narrow, false),
            "cls_token" | "dist_token" | "pos_embed" => copies(2, 1, (wide, narrow)),
            "blocks.attn.qkv.bias" => copies(1, 3, (wide, narrow)),
            "blocks.mlp.fc1.bias" => copies(1, 1, hidden),
            name if name.starts_with("blocks.") => copies(1, 1, (wide, narrow)),
            _ => copies(0, 1, (wide, narrow)),
        })
    }
}

/// An axis along which entries are added to others.
enum Axis {
    /// The anchors, axis 0: those between the outer ones have their interpolation added.
    Depth,
    /// Entries of an axis, each with the one that it repeats, if any.
    Repeat {
        axis: usize,
        /// Those of the smallest model.
        own: Vec<bool>,
        of: Vec<Option<usize>>,
    },
}

impl Axis {
    /// Channels in `segments` runs of `wide`, of which the smallest model has the first `narrow`; the
    /// others repeat these where `copied`.
    fn repeat(axis: usize, segments: usize, wide: usize, narrow: usize, copied: bool) -> Axis {
        let all = || (0..segments * wide).map(|at| (at, at % wide));
        let of = |(at, i): (usize, usize)| (copied && i >= narrow).then_some(at - i + i % narrow);
        Axis::Repeat {
            axis,
            own: all().map(|(_, i)| i < narrow).collect(),
            of: all().map(of).collect(),
        }
    }

    /// `x` plus `sign` times what its entries repeat.
    fn shifted(&self, x: &Tensor, sign: f64) -> Result<Tensor> {
        match self {
            Axis::Depth => {
                let k = x.dim(0)?;
                if k < 3 {
                    return Ok(x.clone());
                }
                let matrix = Tensor::from_vec(interpolation(k, sign as f32), (k, k), x.device())?;
                let flat = x.reshape((k, ()))?; // (K, ...)
                matrix.matmul(&flat)?.reshape(x.shape())
            }
            Axis::Repeat { axis, of, .. } => {
                if of.iter().all(Option::is_none) {
                    return Ok(x.clone());
                }
                let index: Vec<u32> = of.iter().map(|of| of.unwrap_or(0) as u32).collect();
                let index = Tensor::from_vec(index, of.len(), x.device())?;
                let share = of.iter().map(|of| of.map_or(0.0, |_| sign as f32));
                let read = x.contiguous()?.index_select(&index, *axis)?;
                x + read.broadcast_mul(&along(share.collect(), *axis, x)?)?
            }
        }
    }

    /// `x` with zeros in the place of what only larger models have.
    fn cleared(&self, x: &Tensor) -> Result<Tensor> {
        let (axis, own) = match self {
            Axis::Depth => {
                let k = x.dim(0)?;
                (0, (0..k).map(|at| at == 0 || at + 1 == k).collect())
            }
            Axis::Repeat { axis, own, .. } => (*axis, own.clone()),
        };
        let kept = own.iter().map(|own| f32::from(*own)).collect();
        x.broadcast_mul(&along(kept, axis, x)?)
    }
}

/// `I + sign P` (K, K), where `P` reads each anchor between the outer ones as their interpolation.
fn interpolation(k: usize, sign: f32) -> Vec<f32> {
    let mut matrix = vec![0.0; k * k];
    for (row, line) in matrix.chunks_exact_mut(k).enumerate() {
        line[row] = 1.0;
        if (1..k - 1).contains(&row) {
            let f = row as f32 / (k - 1) as f32;
            line[0] = sign * (1.0 - f);
            line[k - 1] = sign * f;
        }
    }
    matrix
}

/// Values along an axis of `x`, to be broadcast over the others.
fn along(values: Vec<f32>, axis: usize, x: &Tensor) -> Result<Tensor> {
    let mut dims = vec![1; x.rank()];
    dims[axis] = values.len();
    Tensor::from_vec(values, dims, x.device())?.to_dtype(x.dtype())
}
