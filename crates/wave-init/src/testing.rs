//! Test helpers: small networks with random weights.

use crate::random::{generator, uniform};
use crate::{Choices, Donor, Request, Start, find};
use candle_core::{Device, Tensor};
use std::fmt::Display;
use wave_models::Weights;
use wave_models::vit::{self, VitShape};

/// Heads of 8 channels, 3 x 3 patches of 4 x 4 pixels, mean pooling.
pub(crate) fn shape(depth: usize, width: usize) -> VitShape {
    VitShape {
        image_size: 12,
        channels: 1,
        patch: 4,
        depth,
        width,
        heads: width / 8,
        classes: 5,
        class_token: false,
        ..VitShape::default()
    }
}

/// A donor with random values everywhere, including norms and biases.
pub(crate) fn donor(shape: VitShape, seed: u64) -> Donor {
    let tensors = shape.parameters().into_iter().enumerate();
    let weights = tensors.map(|(stream, (name, dims))| {
        let draw = uniform(dims, 0.3, &mut generator(seed, stream as u64)).unwrap();
        let one = name.contains("norm") && name.ends_with("weight");
        (name, (draw + f64::from(u8::from(one))).unwrap())
    });
    let weights = weights.collect();
    Donor::new(shape, weights).unwrap()
}

/// Initialises with seed 0.
pub(crate) fn try_start(
    method: &str,
    shape: &VitShape,
    donors: &[Donor],
    choices: &Choices,
) -> crate::Result<Start> {
    let images = images(shape);
    let request = Request {
        shape,
        donor: donors.first(),
        images: Some(&images),
        choices,
        seed: 0,
    };
    find(method)?.start(&request)
}

/// Initialises with seed 0 and the default choices.
#[track_caller]
pub(crate) fn start(method: &str, shape: &VitShape, donors: &[Donor]) -> Start {
    try_start(method, shape, donors, &Choices::default()).unwrap()
}

/// A copy of a value with `change` applied.
pub(crate) fn changed<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

/// Asserts that a request is refused with a message that contains `needle`.
#[track_caller]
pub(crate) fn check_refused<T>(result: Result<T, impl Display>, needle: &str) {
    let message = result.err().expect("refused").to_string();
    assert!(message.contains(needle), "{message}");
}

pub(crate) fn fresh(shape: &VitShape) -> Weights {
    start("timm", shape, &[]).weights
}

pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Asserts that two tensors have the same shape and are bitwise equal.
#[track_caller]
pub(crate) fn assert_same(what: &str, a: &Tensor, b: &Tensor) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let bits = |t: &Tensor| values(t).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert!(bits(a) == bits(b), "{what} differs");
}

/// Asserts that block `to` of `weights` is bitwise equal to block `from` of `of`.
#[track_caller]
pub(crate) fn assert_block(weights: &Weights, to: usize, of: &Weights, from: usize) {
    for tensor in vit::BLOCK_TENSORS {
        let (a, b) = (
            format!("blocks.{to}.{tensor}"),
            format!("blocks.{from}.{tensor}"),
        );
        assert_same(&a, &weights[&a], &of[&b]);
    }
}

/// Asserts that everything outside the blocks is bitwise equal.
#[track_caller]
pub(crate) fn assert_outside(a: &Weights, b: &Weights) {
    for (name, tensor) in a.iter().filter(|(name, _)| !name.starts_with("blocks.")) {
        assert_same(name, tensor, &b[name]);
    }
}

#[track_caller]
pub(crate) fn assert_close(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!(
            (x - y).abs() <= tolerance * (1.0 + y.abs()),
            "at {i}: {x} and {y}"
        );
    }
}

/// Three random images.
pub(crate) fn images(shape: &VitShape) -> Tensor {
    let dims = (3, shape.channels, shape.image_size, shape.image_size);
    uniform(dims, 1.0, &mut generator(7, 0)).unwrap()
}

/// The logits of three random images with weights that have separate tensors for each layer.
pub(crate) fn logits(shape: &VitShape, weights: &Weights) -> Vec<f32> {
    let stacked = vit::stack(weights, shape.depth).unwrap();
    values(&vit::logits(shape, &stacked, &images(shape), None).unwrap())
}

pub(crate) fn matrix(rows: &[&[f32]]) -> Tensor {
    let (m, n) = (rows.len(), rows[0].len());
    Tensor::from_vec(rows.concat(), (m, n), &Device::Cpu).unwrap()
}
