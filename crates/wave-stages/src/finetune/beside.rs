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

/// The factors of each branch, (depth, width), and the linear layer that it ends in. (Transformers with
/// LayerScale of their own name it `ls1.gamma`, and keep it.)
const BRANCHES: [(&str, &str); 2] = [
    ("blocks.attn.proj.factor", "blocks.attn.proj"),
    ("blocks.mlp.fc2.factor", "blocks.mlp.fc2"),
];

/// The scalars, (depth, 1, 1), and the weight that they are added to.
const SCALAR: (&str, &str) = ("blocks.mlp.fc1.scalar", "blocks.mlp.fc1.weight");

/// Adds the extra parameters with these initial values, if any, to the stacked weights of a transformer.
pub(super) fn insert(
    weights: &mut Weights,
    shape: &VitShape,
    layer_scale: Option<f64>,
    mlp_scalar: Option<f64>,
) -> Result<()> {
    let full = |dims: &[usize], value: f64| Tensor::full(value as f32, dims, &Device::Cpu);
    if let Some(first) = layer_scale {
        for (gamma, _) in BRANCHES {
            weights.insert(gamma.to_owned(), full(&[shape.depth, shape.width], first)?);
        }
    }
    if let Some(first) = mlp_scalar {
        weights.insert(SCALAR.0.to_owned(), full(&[shape.depth, 1, 1], first)?);
    }
    Ok(())
}

/// The weights with the extra parameters folded in; unchanged if there are none.
pub(super) fn folded(weights: &Weights) -> Result<Cow<'_, Weights>> {
    let mut folded = Cow::Borrowed(weights);
    for (name, map) in BRANCHES {
        let Some(gamma) = weights.get(name) else {
            continue;
        };
        folded.to_mut().remove(name);
        for (part, factors) in [("weight", gamma.unsqueeze(2)?), ("bias", gamma.clone())] {
            if let Some(value) = folded.to_mut().get_mut(&format!("{map}.{part}")) {
                *value = value.broadcast_mul(&factors)?;
            }
        }
    }
    if let Some(scalar) = weights.get(SCALAR.0) {
        folded.to_mut().remove(SCALAR.0);
        if let Some(value) = folded.to_mut().get_mut(SCALAR.1) {
            *value = value.broadcast_add(scalar)?;
        }
    }
    Ok(folded)
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
