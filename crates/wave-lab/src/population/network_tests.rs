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

/// One network in stock candle, for images (b, channels, side, side).
fn alone(shape: &PopulationShape, weights: &Weights, network: usize, images: &Tensor) -> Tensor {
    let w = |name: &str| weights[name].get(network).unwrap();
    let part = |name: &str, part: &str| w(&format!("{name}.{part}"));
    let norm = |x: &Tensor, name: &str| {
        stock::layer_norm(x, &part(name, "weight"), &part(name, "bias"), EPS).unwrap()
    };
    let linear = |x: &Tensor, name: &str| {
        stock::linear(x, &part(name, "weight"), &part(name, "bias")).unwrap()
    };
    let (h, p, c) = (shape.width, shape.patch, shape.channels);
    let side = shape.grid() * p;
    let images = images.narrow(2, 0, side).unwrap();
    let images = images.narrow(3, 0, side).unwrap().contiguous().unwrap();
    let stem = w("stem.weight").reshape((h, c, p, p)).unwrap();
    let x = images.conv2d(&stem, 0, p, 1, 1).unwrap(); // (b, h, g, g)
    let x = x.permute((0, 2, 3, 1)).unwrap();
    let mut x = x.broadcast_add(&w("stem.bias")).unwrap(); // (b, g, g, h)
    if shape.arch == Arch::Vit {
        let positions = w("pos_embed");
        x = x.flatten(1, 2).unwrap().broadcast_add(&positions).unwrap(); // (b, g g, h)
    }
    for l in 0..shape.depth {
        let name = |part: &str| format!("blocks.{l}.{part}");
        let mlp = |x: &Tensor| {
            let hidden = linear(x, &name("mlp.fc1")).gelu_erf().unwrap();
            linear(&hidden, &name("mlp.fc2"))
        };
        x = match shape.arch {
            Arch::Convnext => {
                let kernels = w(&name("conv_dw.weight")).unsqueeze(1).unwrap();
                let y = x.permute((0, 3, 1, 2)).unwrap().contiguous().unwrap();
                let y = y.conv2d(&kernels, 1, 1, 1, h).unwrap();
                let y = y.permute((0, 2, 3, 1)).unwrap().contiguous().unwrap();
                let y = y.broadcast_add(&w(&name("conv_dw.bias"))).unwrap();
                (x + mlp(&norm(&y, &name("norm")))).unwrap()
            }
            Arch::Vit => {
                let qkv = linear(&norm(&x, &name("norm1")), &name("attn.qkv"));
                let mixed = stock::attention(&qkv, HEADS).unwrap();
                let x = (x + linear(&mixed, &name("attn.proj"))).unwrap();
                (&x + mlp(&norm(&x, &name("norm2")))).unwrap()
            }
        };
    }
    let pixels = x.reshape((x.dim(0).unwrap(), (), h)).unwrap();
    linear(&norm(&pixels.mean(1).unwrap(), "norm"), "head")
}

#[test]
fn every_network_computes_what_it_would_alone() {
    for shape in [SHAPE, TRANSFORMERS] {
        let weights = testing::weights(&shape.parameters());
        let all = testing::images(6, 2, 9); // one of each network in turn
        let scores = logits(&shape, &weights, &all).unwrap();
        assert_eq!(scores.dims(), [6, 4]);
        let scores = scores.reshape((2, 3, 4)).unwrap();
        for network in 0..3 {
            let own = scores.narrow(1, network, 1).unwrap().squeeze(1).unwrap();
            let what = format!("network {network} of {:?}", shape.arch);
            let rows = Tensor::new(&[network as u32, network as u32 + 3], all.device()).unwrap();
            let images = all.index_select(&rows, 0).unwrap();
            let alone = alone(&shape, &weights, network, &images);
            assert_close(&what, &own, &alone, 1e-4);
        }
    }
}
