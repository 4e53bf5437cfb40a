//! Weights and images by a rule shared with `make_ancestors.py`, beside wave-models' fixtures. Only
//! expected logits need a file. wave-models and wave-lab include this file too, and use some of it.
#![allow(dead_code)]

use candle_core::{Device, Tensor};
use std::collections::BTreeMap;

type Weights = BTreeMap<String, Tensor>;

/// Uniform values in [0, 1), a function of name and index alone.
fn uniform(name: &str, n: usize) -> impl Iterator<Item = f64> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| {
        (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (1..=n as u64).map(move |i| {
        let z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 24)
    })
}

/// The tensor that the rule gives this name.
pub(crate) fn tensor(name: &str, dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    let of =
        |f: &dyn Fn(f64) -> f64| -> Vec<f32> { uniform(name, n).map(|u| f(u) as f32).collect() };
    let values = if name == "images" {
        let bands = (0..n).map(|i| i / 512); // of other contrast and brightness
        let value =
            |(u, k): (f64, usize)| (2.0 * u - 1.0) * (1 + k % 4) as f64 + (k % 5) as f64 - 2.0;
        uniform(name, n)
            .zip(bands)
            .map(|uk| value(uk) as f32)
            .collect()
    } else if name.ends_with("running_var") || (dims.len() == 1 && name.ends_with(".weight")) {
        of(&|u| 0.5 + u)
    } else if dims.len() == 1 {
        of(&|u| 0.4 * (u - 0.5))
    } else if ["_token", "pos_embed", "attention_biases"]
        .iter()
        .any(|e| name.ends_with(e))
    {
        of(&|u| 2.0 * u - 1.0)
    } else {
        let fan_in: usize = dims[1..].iter().product();
        let gain = match name {
            name if name.starts_with("stages.") => 1.0,
            name if name.contains(".conv_") => 3.0,
            _ => 6.0,
        };
        let bound = (gain / fan_in as f64).sqrt();
        of(&|u| bound * (2.0 * u - 1.0))
    };
    Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
}

/// Weights of these names and shapes.
pub(crate) fn weights(parameters: &[(String, Vec<usize>)]) -> Weights {
    parameters
        .iter()
        .map(|(name, dims)| (name.clone(), tensor(name, dims)))
        .collect()
}

/// Images (b, channels, size, size).
pub(crate) fn images(b: usize, channels: usize, size: usize) -> Tensor {
    tensor("images", &[b, channels, size, size])
}

/// timm's logits of a case of `make_ancestors.py`.
pub(crate) fn expected(case: &str) -> Tensor {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../wave-models/tests/fixtures/ancestors.safetensors"
    );
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()[case].clone()
}

/// Asserts that two tensors are the same up to `tolerance`.
#[track_caller]
pub(crate) fn assert_close(what: &str, got: &Tensor, want: &Tensor, tolerance: f32) {
    assert_eq!(got.dims(), want.dims(), "{what}");
    let difference = (got - want).unwrap().abs().unwrap();
    let difference: f32 = difference.max_all().unwrap().to_scalar().unwrap();
    assert!(difference < tolerance, "{what}: off by {difference}");
}
