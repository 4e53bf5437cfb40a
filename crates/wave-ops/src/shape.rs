//! The sizes of a transformer trunk, the ways to compute it, and errors for shapes that do not fit each other.

use crate::arithmetic::Precision;
use candle_core::Result;

/// Sizes of a stack of transformer blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlocksShape {
    /// Number of blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Attention heads; divides `width`.
    pub heads: usize,
    /// Channels between the two layers of the MLP.
    pub hidden: usize,
    /// Epsilon of the layer norms.
    pub eps: f64,
}

impl BlocksShape {
    /// Sizes of the twelve tensors of one block, in the order in which [`blocks`](crate::blocks()) takes them:
    /// norm1 weight and bias, qkv, proj, norm2, fc1, fc2.
    pub fn sizes(&self) -> [usize; 12] {
        let (d, h) = (self.width, self.hidden);
        [d, d, 3 * d * d, 3 * d, d * d, d, d, d, h * d, h, d * h, d]
    }
}

/// The error of a map of this kind whose arguments do not fit each other. `expected` ends the message.
pub fn misfit<T>(kind: &str, [x, weight, bias]: [&[usize]; 3], expected: &str) -> Result<T> {
    candle_core::bail!("{kind} of {x:?} with weight {weight:?} and bias {bias:?}{expected}")
}

/// The way to compute the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Precision of the matrix products.
    pub precision: Precision,
    /// Activation checkpointing: the backward pass recomputes the inside of a block. A third more
    /// compute for a fraction of the memory, with the same values. Stock operators keep everything.
    pub recompute: bool,
}

impl From<Precision> for Mode {
    fn from(precision: Precision) -> Mode {
        Mode {
            precision,
            recompute: false,
        }
    }
}
