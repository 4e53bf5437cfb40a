use super::*;
use wave_init::{Choices, DirectMethod};
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
    let choices = Choices {
        position_scale: Some(1.0),
        ..Choices::default()
    };
    let weights = wave_init::initialise(&shape, DirectMethod::Mimetic, &choices, 3).unwrap();
    let mut weights = vit::stack(&weights, 1).unwrap();
    let images = Tensor::randn(0f32, 1.0, (2, 1, 8, 8), &Device::Cpu).unwrap();
    insert(&mut weights, &shape, Some(1.0), Some(0.0)).unwrap();
    let ramp = (Tensor::arange(0f32, 8.0, &Device::Cpu).unwrap() * 0.1).unwrap();
    for (name, first) in [
        ("blocks.attn.proj.factor", 0.3),
        ("blocks.mlp.fc2.factor", -0.7),
    ] {
        let factors = (&ramp + first).unwrap().unsqueeze(0).unwrap();
        weights.insert(name.into(), factors);
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

    let found = vit::logits(&shape, &folded(&weights).unwrap(), &images, None).unwrap();
    let error = (&found - &expected).unwrap().abs().unwrap();
    let error: f32 = error.max_all().unwrap().to_scalar().unwrap();
    assert!(error < 1e-5, "{found} {expected}");
}
