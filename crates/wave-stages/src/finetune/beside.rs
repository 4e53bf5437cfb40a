//! Extra parameters that train along with the weights of a transformer and are folded into them: in each
//! step for the forward pass, and once at the end, to give an ordinary model.
//!
//! ```text
//! LayerScale    x' = x + gamma * branch(LN(x))             gamma: a factor per channel
//! MLP scalar    h  = gelu(W1 x + b1 + s * sum(x))          s: a number per layer
//! ```
//!
//! LayerScale is equation 4 of Touvron et al. 2021 ("Going deeper with Image Transformers"). A branch ends in a
//! linear layer, whose weight and bias absorb the factors. The scalar is a baseline of mimetic MLPs (thesis,
//! section 3.4.2), equivalent to adding `s` to every entry of `W1`.

use candle_core::{Device, Result, Tensor};
use std::borrow::Cow;
use wave_models::Weights;
use wave_models::vit::VitShape;

/// Initial values of the extra parameters, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Beside {
    pub(super) layer_scale: Option<f64>,
    pub(super) mlp_scalar: Option<f64>,
}

/// The factors of each branch, (depth, width), and the linear layer that it ends in. (Transformers with
/// LayerScale of their own name it `ls1.gamma`, and keep it.)
const BRANCHES: [(&str, &str); 2] = [
    ("blocks.attn.proj.factor", "blocks.attn.proj"),
    ("blocks.mlp.fc2.factor", "blocks.mlp.fc2"),
];

/// The scalars, (depth, 1, 1), and the weight that they are added to.
const SCALAR: (&str, &str) = ("blocks.mlp.fc1.scalar", "blocks.mlp.fc1.weight");

impl Beside {
    pub(super) fn is_empty(&self) -> bool {
        *self == Beside::default()
    }

    /// Adds the extra parameters to the stacked weights of a transformer.
    pub(super) fn insert(&self, weights: &mut Weights, shape: &VitShape) -> Result<()> {
        let full = |dims: &[usize], value: f64| Tensor::full(value as f32, dims, &Device::Cpu);
        if let Some(first) = self.layer_scale {
            for (gamma, _) in BRANCHES {
                let all = full(&[shape.depth, shape.width], first)?;
                weights.insert(gamma.to_owned(), all);
            }
        }
        if let Some(first) = self.mlp_scalar {
            let all = full(&[shape.depth, 1, 1], first)?;
            weights.insert(SCALAR.0.to_owned(), all);
        }
        Ok(())
    }

    /// The weights with the extra parameters folded in; unchanged if there are none.
    pub(super) fn folded<'a>(&self, weights: &'a Weights) -> Result<Cow<'a, Weights>> {
        if self.is_empty() {
            return Ok(Cow::Borrowed(weights));
        }
        let mut folded = weights.clone();
        for (gamma, map) in BRANCHES {
            let Some(gamma) = folded.remove(gamma) else {
                continue;
            };
            for (part, factors) in [("weight", gamma.unsqueeze(2)?), ("bias", gamma.clone())] {
                if let Some(value) = folded.get_mut(&format!("{map}.{part}")) {
                    *value = value.broadcast_mul(&factors)?;
                }
            }
        }
        if let Some(scalar) = folded.remove(SCALAR.0)
            && let Some(value) = folded.get_mut(SCALAR.1)
        {
            *value = value.broadcast_add(&scalar)?;
        }
        Ok(Cow::Owned(folded))
    }
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
