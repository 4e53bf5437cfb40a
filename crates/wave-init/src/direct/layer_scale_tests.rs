use super::*;
use crate::testing::{
    assert_close, assert_same, check_refused, images, logits, shape, start, try_start, values,
};
use candle_core::{D, Tensor};
use wave_models::Weights;
use wave_models::vit::VitShape;

fn with(gamma: f64, scaled_skip: bool) -> Choices {
    Choices {
        gamma: Some(gamma),
        scaled_skip,
        rest: DirectMethod::Xavier, // so large that norms hardly see their epsilon
        ..Choices::default()
    }
}

#[test]
fn the_branch_is_scaled_and_queries_and_keys_are_mimetic() {
    let (target, d) = (shape(2, 16), 16);
    let scaled = |gamma| {
        let choices = with(gamma, false);
        let start = try_start("layerscale", &target, &[], &choices);
        start.unwrap().weights
    };
    let (plain, quarter) = (scaled(1.0), scaled(0.25));
    let mimetic = start("mimetic", &target, &[]).weights;
    for l in 0..2 {
        let qkv = format!("blocks.{l}.attn.qkv.weight");
        let qk = |weights: &Weights| weights[&qkv].narrow(0, 0, 2 * d).unwrap();
        assert_same("qk", &qk(&quarter), &qk(&mimetic));
        let proj = format!("blocks.{l}.attn.proj.weight");
        let expected = (&plain[&proj] * 0.25).unwrap();
        assert_same("proj", &quarter[&proj], &expected);
        let fc2 = format!("blocks.{l}.mlp.fc2.weight");
        assert_same("fc2", &quarter[&fc2], &plain[&fc2]);
    }
    assert_same("positions", &quarter["pos_embed"], &mimetic["pos_embed"]);
}

#[test]
fn folded_skips_are_the_function_of_scaled_skips() {
    let target = shape(3, 16);
    for gamma in [0.5, 1.0] {
        let start = |gamma, form| {
            let start = try_start("layerscale", &target, &[], &with(gamma, form));
            start.unwrap().weights
        };
        let unfolded = start(1.0, false);
        let expected = scaled_skips(&target, &unfolded, gamma);
        let found = logits(&target, &start(gamma, true));
        assert_close(&found, &expected, 2e-4);
    }
}

#[test]
fn scales_outside_the_range_are_refused() {
    for (gamma, form, depth, needle) in [
        (1.5, false, 2, "from 0 to 1"),
        (f64::NAN, false, 2, "from 0 to 1"),
        (0.0, true, 2, "from 0.001 to 1"),
        (0.3, true, 12, "from 0.317 to 1"), // >>> 1e6 ** (-1 / 12)
    ] {
        let target = shape(depth, 16);
        let start = try_start("layerscale", &target, &[], &with(gamma, form));
        check_refused(start, needle);
    }
}

/// Logits of a network with scaled skips, in stock operators.
fn scaled_skips(shape: &VitShape, weights: &Weights, gamma: f64) -> Vec<f32> {
    let w = |name: &str| &weights[name];
    let norm = |x: &Tensor, name: &str| {
        let mean = x.mean_keepdim(D::Minus1).unwrap();
        let x = x.broadcast_sub(&mean).unwrap();
        let variance = x.sqr().unwrap().mean_keepdim(D::Minus1).unwrap();
        let x = x.broadcast_div(&(variance + shape.norm_eps).unwrap().sqrt().unwrap());
        let x = x.unwrap().broadcast_mul(w(&format!("{name}.weight")));
        let x = x.unwrap().broadcast_add(w(&format!("{name}.bias")));
        x.unwrap()
    };
    let linear = |x: &Tensor, name: &str| {
        let weight = w(&format!("{name}.weight")).t().unwrap();
        let x = x.broadcast_matmul(&weight).unwrap();
        x.broadcast_add(w(&format!("{name}.bias"))).unwrap()
    };
    let (g, p, d, h) = (shape.grid(), shape.patch, shape.width, shape.heads);
    let patches = images(shape).reshape((3, g, p, g, p)).unwrap();
    let patches = patches.transpose(2, 3).unwrap().contiguous().unwrap();
    let patches = patches.reshape((3, g * g, p * p)).unwrap();
    let kernel = w("patch_embed.proj.weight").reshape((d, p * p)).unwrap();
    let x = patches.broadcast_matmul(&kernel.t().unwrap()).unwrap();
    let x = x.broadcast_add(w("patch_embed.proj.bias")).unwrap();
    let mut x = x.broadcast_add(w("pos_embed")).unwrap(); // (3, n, d)
    for l in 0..shape.depth {
        let block = |name: &str| format!("blocks.{l}.{name}");
        let qkv = linear(&norm(&x, &block("norm1")), &block("attn.qkv"));
        let qkv = qkv.reshape((3, g * g, 3, h, d / h)).unwrap();
        let qkv = qkv.permute((2, 0, 3, 1, 4)).unwrap().contiguous().unwrap();
        let part = |i| qkv.get(i).unwrap(); // (3, h, n, d / h)
        let scores = part(0).matmul(&part(1).t().unwrap()).unwrap();
        let e = (scores / ((d / h) as f64).sqrt()).unwrap().exp().unwrap();
        let sums = e.sum_keepdim(D::Minus1).unwrap();
        let a = e.broadcast_div(&sums).unwrap().matmul(&part(2)).unwrap();
        let a = a.transpose(1, 2).unwrap().contiguous().unwrap();
        let a = linear(&a.reshape((3, g * g, d)).unwrap(), &block("attn.proj"));
        x = ((x * gamma).unwrap() + a).unwrap();
        let m = linear(&norm(&x, &block("norm2")), &block("mlp.fc1"));
        let m = linear(&m.gelu_erf().unwrap(), &block("mlp.fc2"));
        x = (x + m).unwrap();
    }
    let pooled = norm(&x.mean(1).unwrap(), "fc_norm");
    values(&linear(&pooled, "head"))
}
