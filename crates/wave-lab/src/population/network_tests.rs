use super::*;
use crate::testing::{self, assert_close};
use wave_ops::stock;

const SHAPE: PopulationShape = PopulationShape {
    networks: 3,
    arch: Arch::Convnext,
    image_size: 9,
    channels: 2,
    patch: 2,
    depth: 2,
    width: 5,
    classes: 4,
};

/// The same for transformers.
const TRANSFORMERS: PopulationShape = PopulationShape {
    arch: Arch::Vit,
    width: 6,
    ..SHAPE
};

fn weights(shape: &PopulationShape) -> Weights {
    testing::weights(&shape.parameters())
}

/// One network in stock candle, for images (b, channels, side, side).
fn alone(shape: &PopulationShape, weights: &Weights, network: usize, images: &Tensor) -> Tensor {
    match shape.arch {
        Arch::Convnext => convnext_alone(weights, network, images),
        Arch::Vit => vit_alone(weights, network, images),
    }
}

fn vit_alone(weights: &Weights, network: usize, images: &Tensor) -> Tensor {
    let w = |name: &str| weights[name].get(network).unwrap();
    let (h, p, c) = (TRANSFORMERS.width, SHAPE.patch, SHAPE.channels);
    let norm = |x: &Tensor, name: &str| {
        let part = |part: &str| w(&format!("{name}.{part}"));
        stock::layer_norm(x, &part("weight"), &part("bias"), EPS).unwrap()
    };
    let linear = |x: &Tensor, name: &str| {
        let part = |part: &str| w(&format!("{name}.{part}"));
        stock::linear(x, &part("weight"), &part("bias")).unwrap()
    };
    let stem = w("stem.weight").reshape((h, c, p, p)).unwrap();
    let side = SHAPE.grid() * p;
    let images = images.narrow(2, 0, side).unwrap();
    let images = images.narrow(3, 0, side).unwrap().contiguous().unwrap();
    let x = images.conv2d(&stem, 0, p, 1, 1).unwrap(); // (b, h, g, g)
    let x = x.flatten_from(2).unwrap().transpose(1, 2).unwrap();
    let x = x.broadcast_add(&w("stem.bias")).unwrap();
    let mut x = x.broadcast_add(&w("pos_embed")).unwrap(); // (b, g g, h)
    for l in 0..SHAPE.depth {
        let name = |part: &str| format!("blocks.{l}.{part}");
        let qkv = linear(&norm(&x, &name("norm1")), &name("attn.qkv"));
        let part = |i: usize, head: usize| {
            let d = h / HEADS;
            let part = qkv.narrow(2, i * h + head * d, d).unwrap();
            part.contiguous().unwrap()
        };
        let of_head = |head: usize| {
            let scores = part(0, head).matmul(&part(1, head).t().unwrap()).unwrap();
            let scale = 1.0 / ((h / HEADS) as f64).sqrt();
            let shares = stock::softmax(&(scores * scale).unwrap()).unwrap();
            shares.matmul(&part(2, head)).unwrap()
        };
        let mixed: Vec<Tensor> = (0..HEADS).map(of_head).collect();
        let mixed = Tensor::cat(&mixed, 2).unwrap();
        x = (x + linear(&mixed, &name("attn.proj"))).unwrap();
        let hidden = linear(&norm(&x, &name("norm2")), &name("mlp.fc1"));
        let hidden = hidden.gelu_erf().unwrap();
        x = (x + linear(&hidden, &name("mlp.fc2"))).unwrap();
    }
    linear(&norm(&x.mean(1).unwrap(), "norm"), "head")
}

fn convnext_alone(weights: &Weights, network: usize, images: &Tensor) -> Tensor {
    let w = |name: &str| weights[name].get(network).unwrap();
    let (h, p, c) = (SHAPE.width, SHAPE.patch, SHAPE.channels);
    let bias = |name: &str| w(name).reshape((1, h, 1, 1)).unwrap();
    let stem = w("stem.weight").reshape((h, c, p, p)).unwrap();
    let side = SHAPE.grid() * p;
    let images = images.narrow(2, 0, side).unwrap();
    let images = images.narrow(3, 0, side).unwrap().contiguous().unwrap();
    let mut x = images.conv2d(&stem, 0, p, 1, 1).unwrap(); // (b, h, g, g)
    x = x.broadcast_add(&bias("stem.bias")).unwrap();
    for l in 0..SHAPE.depth {
        let w = |name: &str| w(&format!("blocks.{l}.{name}"));
        let kernels = w("conv_dw.weight").unsqueeze(1).unwrap();
        let y = x.conv2d(&kernels, 1, 1, 1, h).unwrap();
        let y = y.broadcast_add(&bias(&format!("blocks.{l}.conv_dw.bias")));
        let y = y.unwrap().permute((0, 2, 3, 1)).unwrap().contiguous();
        let y = stock::layer_norm(&y.unwrap(), &w("norm.weight"), &w("norm.bias"), EPS).unwrap();
        let y = stock::linear(&y, &w("mlp.fc1.weight"), &w("mlp.fc1.bias")).unwrap();
        let y = y.gelu_erf().unwrap();
        let y = stock::linear(&y, &w("mlp.fc2.weight"), &w("mlp.fc2.bias")).unwrap();
        x = (x + y.permute((0, 3, 1, 2)).unwrap()).unwrap();
    }
    let pooled = x.flatten_from(2).unwrap().mean(2).unwrap();
    let normed = stock::layer_norm(&pooled, &w("norm.weight"), &w("norm.bias"), EPS).unwrap();
    stock::linear(&normed, &w("head.weight"), &w("head.bias")).unwrap()
}

/// Images of all networks, interleaved, and the images of one network.
fn images(b: usize) -> (Tensor, impl Fn(usize) -> Tensor) {
    let all = testing::images(3 * b, 2, 9);
    let own = all.clone();
    (all, move |network| {
        let rows: Vec<u32> = (0..b).map(|i| (3 * i + network) as u32).collect();
        let rows = Tensor::from_vec(rows, b, own.device()).unwrap();
        own.index_select(&rows, 0).unwrap()
    })
}

#[test]
fn every_network_computes_what_it_would_alone() {
    for shape in [SHAPE, TRANSFORMERS] {
        let weights = weights(&shape);
        let (all, of) = images(2);
        let scores = logits(&shape, &weights, &all).unwrap();
        assert_eq!(scores.dims(), [6, 4]);
        let scores = scores.reshape((2, 3, 4)).unwrap();
        for network in 0..3 {
            let own = scores.narrow(1, network, 1).unwrap().squeeze(1).unwrap();
            let what = format!("network {network} of {:?}", shape.arch);
            let alone = alone(&shape, &weights, network, &of(network));
            assert_close(&what, &own, &alone, 1e-4);
        }
    }
}
