//! LayerScale (Touvron et al. 2021, "Going deeper with Image Transformers", equation 4): a factor for each
//! channel of every residual branch, which trains with the weights.
//!
//! ```text
//! x' = x + gamma1 * attention(LN(x))
//! x' = x + gamma2 * MLP(LN(x))
//! ```
//!
//! A branch ends in an affine map, so that its factors are folded into that map's weight and bias: in each
//! step for the forward pass, and once at the end, for a model like any other.

use candle_core::{Device, Result, Tensor};
use wave_models::Weights;
use wave_models::vit::VitShape;

/// The factors of each branch, (depth, width), and the map that it ends in.
const BRANCHES: [(&str, &str); 2] = [
    ("blocks.ls1.gamma", "blocks.attn.proj"),
    ("blocks.ls2.gamma", "blocks.mlp.fc2"),
];

/// Adds factors to the stacked weights of a transformer, all of them `first`.
pub(super) fn insert(weights: &mut Weights, shape: &VitShape, first: f64) -> Result<()> {
    for (gamma, _) in BRANCHES {
        let all = Tensor::full(first as f32, (shape.depth, shape.width), &Device::Cpu)?;
        weights.insert(gamma.to_owned(), all);
    }
    Ok(())
}

/// Stacked weights with their factors, if they have any, multiplied into the maps.
pub(super) fn folded(weights: &Weights) -> Result<Weights> {
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
    Ok(folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave_init::{DirectMethod, DirectOptions};
    use wave_models::vit;
    use wave_ops::stock;

    /// The residual branches of a layer, computed one by one.
    #[test]
    fn factors_multiply_the_branches() {
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
        insert(&mut weights, &shape, 1.0).unwrap();
        let plain = vit::logits(&shape, &folded(&weights).unwrap(), &images, None).unwrap();
        for (gamma, factors) in [("blocks.ls1.gamma", 0.3), ("blocks.ls2.gamma", -0.7)] {
            let ramp = Tensor::arange(0f32, 8.0, &Device::Cpu).unwrap();
            let gamma_values = ((ramp * 0.1).unwrap() + factors).unwrap();
            weights.insert(gamma.into(), gamma_values.unsqueeze(0).unwrap());
        }

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
        let x = (x + scaled(linear(&mixed, "attn.proj"), "ls1.gamma")).unwrap();
        let hidden = linear(&norm(&x, "norm2"), "mlp.fc1");
        let hidden = hidden.gelu_erf().unwrap();
        let x = (&x + scaled(linear(&hidden, "mlp.fc2"), "ls2.gamma")).unwrap();
        let (scale, shift) = (w("fc_norm.weight"), w("fc_norm.bias"));
        let pooled = x.mean(1).unwrap();
        let normed = stock::layer_norm(&pooled, &scale, &shift, shape.norm_eps).unwrap();
        let expected = stock::linear(&normed, &w("head.weight"), &w("head.bias")).unwrap();

        let found = vit::logits(&shape, &folded(&weights).unwrap(), &images, None).unwrap();
        let far = |a: &Tensor, b: &Tensor| -> f32 {
            let apart = (a - b).unwrap().abs().unwrap().max_all().unwrap();
            apart.to_scalar().unwrap()
        };
        assert!(far(&found, &expected) < 1e-5, "{found} {expected}");
        assert!(far(&found, &plain) > 1e-3, "the factors make a difference");
    }
}
