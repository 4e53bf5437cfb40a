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
mod tests {
    use super::*;
    use wave_init::{DirectMethod, DirectOptions};
    use wave_models::vit;
    use wave_ops::stock;

    /// A layer with its factors and scalar, computed step by step.
    #[test]
    fn factors_multiply_the_branches_and_scalars_add_to_the_mlp() {
        let shape = VitShape {
            image_size: 8,
            channels: 1,
            patch: 4,
            depth: 1,
            width: 8,
            heads: 2,
            classes: 3,
            class_token: false,
            ..VitShape::default()
        };
        let options = DirectOptions::new(DirectMethod::Mimetic);
        let weights = crate::init::fill(&shape, &options, 3).unwrap();
        let mut weights = vit::stack(&weights, 1).unwrap();
        let images = Tensor::randn(0f32, 1.0, (2, 1, 8, 8), &Device::Cpu).unwrap();
        let beside = Beside {
            layer_scale: Some(1.0),
            mlp_scalar: Some(0.0),
        };
        beside.insert(&mut weights, &shape).unwrap();
        let plain = vit::logits(&shape, &beside.folded(&weights).unwrap(), &images, None).unwrap();
        for (gamma, factors) in [
            ("blocks.attn.proj.factor", 0.3),
            ("blocks.mlp.fc2.factor", -0.7),
        ] {
            let ramp = Tensor::arange(0f32, 8.0, &Device::Cpu).unwrap();
            let gamma_values = ((ramp * 0.1).unwrap() + factors).unwrap();
            weights.insert(gamma.into(), gamma_values.unsqueeze(0).unwrap());
        }
        let scalar = Tensor::full(0.2f32, (1, 1, 1), &Device::Cpu).unwrap();
        weights.insert(SCALAR.0.into(), scalar);

        let w = |name: &str| weights[name].clone();
        let block = |name: &str| w(&format!("blocks.{name}")).squeeze(0).unwrap();
        let norm = |x: &Tensor, name: &str| {
            let part = |part: &str| block(&format!("{name}.{part}"));
            stock::layer_norm(x, &part("weight"), &part("bias"), shape.norm_eps).unwrap()
        };
        let linear = |x: &Tensor, name: &str| {
            let part = |part: &str| block(&format!("{name}.{part}"));
            stock::linear(x, &part("weight"), &part("bias")).unwrap()
        };
        let scaled = |x: Tensor, name: &str| x.broadcast_mul(&block(name)).unwrap();
        let patches = w("patch_embed.proj.weight");
        let x = images.conv2d(&patches, 0, 4, 1, 1).unwrap(); // (2, 8, 2, 2)
        let x = x.flatten_from(2).unwrap().transpose(1, 2).unwrap();
        let x = x.broadcast_add(&w("patch_embed.proj.bias")).unwrap();
        let x = x.broadcast_add(&w("pos_embed")).unwrap();
        let mixed = stock::attention(&linear(&norm(&x, "norm1"), "attn.qkv"), 2).unwrap();
        let x = (x + scaled(linear(&mixed, "attn.proj"), "attn.proj.factor")).unwrap();
        let normed = norm(&x, "norm2");
        let sum = (normed.sum_keepdim(2).unwrap() * 0.2).unwrap();
        let hidden = linear(&normed, "mlp.fc1").broadcast_add(&sum).unwrap();
        let hidden = hidden.gelu_erf().unwrap();
        let x = (&x + scaled(linear(&hidden, "mlp.fc2"), "mlp.fc2.factor")).unwrap();
        let (scale, shift) = (w("fc_norm.weight"), w("fc_norm.bias"));
        let pooled = x.mean(1).unwrap();
        let normed = stock::layer_norm(&pooled, &scale, &shift, shape.norm_eps).unwrap();
        let expected = stock::linear(&normed, &w("head.weight"), &w("head.bias")).unwrap();

        let found = vit::logits(&shape, &beside.folded(&weights).unwrap(), &images, None).unwrap();
        let far = |a: &Tensor, b: &Tensor| -> f32 {
            let apart = (a - b).unwrap().abs().unwrap().max_all().unwrap();
            apart.to_scalar().unwrap()
        };
        assert!(far(&found, &expected) < 1e-5, "{found} {expected}");
        assert!(far(&found, &plain) > 1e-3, "the factors make a difference");
    }
}
