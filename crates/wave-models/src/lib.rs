//! Networks as pure functions of a weight map, with the names and shapes of every weight.
//!
//! Names are timm's, so that what is written loads there without a map.

pub mod convmixer;
pub mod vit;

use candle_core::Tensor;
use std::collections::BTreeMap;

/// Weights by name.
pub type Weights = BTreeMap<String, Tensor>;

/// Sizes or weights that do not fit a network.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// A size is zero.
    #[error("{name} is 0; it must be at least 1")]
    Zero {
        /// Which size.
        name: &'static str,
    },
    /// A size does not divide another.
    #[error(
        "{of} {value} is not a multiple of {name} {divisor}; use {of} {nearest} or {above}, or a \
         {name} that divides {value}"
    )]
    NotDivisible {
        /// What should divide.
        name: &'static str,
        /// Its value.
        divisor: usize,
        /// What should be divided.
        of: &'static str,
        /// Its value.
        value: usize,
        /// The nearest multiple not above.
        nearest: usize,
        /// The next multiple above.
        above: usize,
    },
    /// A tensor is not there.
    #[error("tensor {name} is missing; is this the right architecture for these weights?")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape.
    #[error("tensor {name} has shape {found:?}, expected {expected:?}")]
    Misshapen {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that fits (zeros where only the rank is known).
        expected: Vec<usize>,
    },
    /// A tensor that the network does not have.
    #[error("tensor {name} does not belong to this architecture")]
    Unexpected {
        /// Its name.
        name: String,
    },
}
