//! TLEG: weights that are linear in depth.
//!
//! ```text
//! theta_l = B + (l / L) A        l = 0 .. L - 1
//! ```
//!
//! for every tensor of a block, norms and biases too (Xia et al. 2024, section 3). Its authors train
//! A and B; [`line()`] makes blocks of them. From a donor of K layers that was trained otherwise, A
//! and B are those of a [`TlegLine`] through its layers (our reading), which gives back a donor that is
//! linear in depth.

use super::{Carry, Stored};
use crate::choices::TlegLine;
use crate::error::InitError;
use crate::ledger::Ledger;
use crate::start::{Donor, Request, Start, StartMethod};
use candle_core::{Result, Tensor};
use wave_models::Weights;
use wave_models::vit::BLOCK_TENSORS;

const NAME: &str = "tleg";

pub(crate) const METHOD: StartMethod = StartMethod {
    name: NAME,
    description: "layers on the line through the donor's first and last, B + (l / L) A (TLEG: Xia et \
                  al. 2024, section 3)",
    donors: 1,
    images: false,
    ledger: |_, _| Ledger::blocks(2),
    run: start,
};

fn start(request: &Request) -> std::result::Result<Start, InitError> {
    let mut carry = Carry::new(NAME, request)?;
    carry.same_blocks()?;
    let (b, a) = fit(carry.donor, request.choices.tleg)?;
    let depth = request.shape.depth;
    for tensor in BLOCK_TENSORS {
        for l in 0..depth {
            let to = format!("blocks.{l}.{tensor}");
            carry.put(&to, &format!("B.{tensor}"), at(&b, &a, tensor, l, depth)?)?;
        }
        if carry.donor.shape().depth > 1 {
            carry
                .taken
                .insert(format!("A.{tensor}"), a[tensor].elem_count());
        }
    }
    carry.outside(super::AS_IS)?;
    Ok(carry.finish(Stored::Taken))
}

/// The blocks of `depth` layers, named as in a network, from `b` and `a` with the names of
/// [`BLOCK_TENSORS`]. Gradients flow to both.
///
/// # Errors
/// If a tensor is missing, or the two differ in a shape.
pub fn line(b: &Weights, a: &Weights, depth: usize) -> Result<Weights> {
    let mut blocks = Weights::new();
    for l in 0..depth {
        for tensor in BLOCK_TENSORS {
            blocks.insert(format!("blocks.{l}.{tensor}"), at(b, a, tensor, l, depth)?);
        }
    }
    Ok(blocks)
}

/// B and A of a donor's layers, with the names of [`BLOCK_TENSORS`]. A is 0 for a single layer.
///
/// # Errors
/// None for a sound donor.
pub fn fit(donor: &Donor, through: TlegLine) -> Result<(Weights, Weights)> {
    let depth = donor.shape().depth;
    let k = depth as f64;
    // Each is a weighted sum of the layers theta_l at x_l = l / K.
    let weights: Vec<(f64, f64)> = (0..depth)
        .map(|l| match through {
            _ if depth == 1 => (1.0, 0.0),
            TlegLine::EndPoints => {
                let slope = k / (k - 1.0);
                match l {
                    0 => (1.0, -slope),
                    _ if l == depth - 1 => (0.0, slope),
                    _ => (0.0, 0.0),
                }
            }
            TlegLine::LeastSquares => {
                let mean = (k - 1.0) / (2.0 * k);
                let spread = (k * k - 1.0) / (12.0 * k); // sum of (x_l - mean)^2
                let slope = (l as f64 / k - mean) / spread;
                (1.0 / k - mean * slope, slope)
            }
        })
        .collect();
    let (mut b, mut a) = (Weights::new(), Weights::new());
    for tensor in BLOCK_TENSORS {
        let first = &donor.weights()[&format!("blocks.0.{tensor}")];
        let mut sums = (first.zeros_like()?, first.zeros_like()?);
        for (l, (of_b, of_a)) in weights.iter().enumerate() {
            let theta = &donor.weights()[&format!("blocks.{l}.{tensor}")];
            if *of_b != 0.0 {
                sums.0 = (sums.0 + (theta * *of_b)?)?;
            }
            if *of_a != 0.0 {
                sums.1 = (sums.1 + (theta * *of_a)?)?;
            }
        }
        b.insert(tensor.into(), sums.0);
        a.insert(tensor.into(), sums.1);
    }
    Ok((b, a))
}

/// A tensor of layer `l` of `depth`.
fn at(b: &Weights, a: &Weights, tensor: &str, l: usize, depth: usize) -> Result<Tensor> {
    let of = |weights: &Weights| {
        let found = weights.get(tensor).cloned();
        found.ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {tensor}")))
    };
    of(b)? + (of(a)? * (l as f64 / depth as f64))?
}

#[cfg(test)]
#[path = "tleg_tests.rs"]
mod tests;
