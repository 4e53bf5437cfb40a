use super::*;
use crate::dimaml::tests::networks;
use crate::testing::{check_slopes, gradients, noise, values};
use candle_core::{DType, Device};

/// Weights in double precision, none of them zero.
fn weights(network: &Small) -> Weights {
    let all = network.parameters();
    let tensor = |(i, p): (usize, &Parameter)| {
        let centre = if p.name.ends_with("norm.weight") || p.name.ends_with("scale") {
            1.0
        } else {
            0.0
        };
        let t = ((noise(&p.dims, 10 + i as u64) * 0.4).unwrap() + centre).unwrap();
        (p.name.clone(), t)
    };
    all.iter().enumerate().map(tensor).collect()
}

#[test]
fn gradients_of_all_weights_are_slopes() {
    for (network, examples, _) in networks() {
        network.validate().unwrap();
        let start = weights(&network);
        let loss = |w: &Weights| network.loss(w, &examples).unwrap();
        let found = gradients(&start, loss);
        assert!(found.keys().eq(start.keys()));
        let middle = |n: usize| n / 2..n / 2 + 1;
        check_slopes(&start, &found, middle, [1e-6, 1e-5, 1e-2], |w| {
            loss(w).to_scalar().unwrap()
        });
    }
}

/// Fixup: "Assert every residual branch is 0".
#[test]
fn branches_of_a_usual_fixup_network_are_zero() {
    let shape = FixupShape {
        image_size: 8,
        channels: 2,
        width: 4,
        blocks: 4,
        stages: 2,
        classes: 3,
    };
    let network = Small::Fixup(shape.clone());
    let usual: Weights = network
        .parameters()
        .iter()
        .map(|p| {
            let t = match p.usual {
                Usual::Constant(value) => Tensor::full(value, p.dims.as_slice(), &Device::Cpu),
                Usual::Normal(std) | Usual::Uniform(std) => noise(&p.dims, 3) * std,
            };
            (p.name.clone(), t.unwrap())
        })
        .collect();
    for l in 0..shape.blocks {
        let (inputs, outputs) = [(4, 4), (4, 4), (4, 8), (8, 8)][l];
        let x = noise(&[2, inputs, 5, 5], 5);
        let branch = fixup::branch(&usual, l, &x, l == 2).unwrap();
        let side = if l == 2 { 3 } else { 5 };
        assert_eq!(branch.dims(), [2, outputs, side, side]);
        assert!(values(&branch).iter().all(|x| *x == 0.0));
        // sqrt(2 / (c_out k²)) / sqrt(B) in the first convolution.
        let name = format!("blocks.{l}.conv1.weight");
        let mut all = network.parameters().into_iter();
        let first = all.find(|p| p.name == name).unwrap();
        let std = (2.0 / (9 * outputs) as f64).sqrt() / 4f64.sqrt();
        assert_eq!(first.usual, Usual::Normal(std));
    }
    let logits = fixup::logits(&shape, &usual, &noise(&[3, 2, 8, 8], 2)).unwrap();
    assert!(values(&logits).iter().all(|z| *z == 0.0));
}

#[test]
fn every_second_pixel_of_a_convolution_is_a_stride_of_2() {
    let w = noise(&[3, 2, 3, 3], 1);
    for side in [6, 7] {
        let x = noise(&[2, 2, side, side], 2);
        let found = fixup::every_second(&x.conv2d(&w, 1, 1, 1, 1).unwrap()).unwrap();
        let expected = x.conv2d(&w, 1, 2, 1, 1).unwrap();
        assert_eq!(found.dims(), expected.dims());
        let errors = values(&(found - expected).unwrap());
        assert!(errors.iter().all(|e| e.abs() < 1e-12));
    }
}

/// PyTorch's LSTM cell, computed from its formulas in plain numbers.
#[test]
fn an_lstm_is_the_recurrence_of_its_formulas() {
    let [.., (network, examples, _)] = networks();
    let Small::Lstm(shape) = &network else {
        panic!("the last is the LSTM")
    };
    let w = weights(&network);
    let row = |name: &str, i: usize| -> Vec<f64> { w[name].get(i).unwrap().to_vec1().unwrap() };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let tokens: Vec<Vec<u32>> = examples.input.to_vec2().unwrap();
    let mut expected: Vec<f64> = Vec::new();
    for sequence in &tokens {
        let mut state = vec![(vec![0.0; shape.width], vec![0.0; shape.width]); shape.layers]; // h, c
        for (t, token) in sequence.iter().enumerate() {
            let mut x = row("embedding.weight", *token as usize);
            for (l, (h, c)) in state.iter_mut().enumerate() {
                let old = h.clone();
                for k in 0..shape.width {
                    let gate = |g: &str| {
                        let of = |name: &str| row(&format!("layers.{l}.{g}.{name}"), k);
                        let bias: Vec<f64> = w[&format!("layers.{l}.{g}.bias")].to_vec1().unwrap();
                        dot(&of("input"), &x) + dot(&of("hidden"), &old) + bias[k]
                    };
                    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
                    c[k] = sigmoid(gate("f")) * c[k] + sigmoid(gate("i")) * gate("g").tanh();
                    h[k] = sigmoid(gate("o")) * c[k].tanh();
                }
                x.clone_from(h);
            }
            if examples.positions.contains(&(t as u32)) {
                let bias: Vec<f64> = w["logits.bias"].to_vec1().unwrap();
                let logit = |i: usize| dot(&row("logits.weight", i), &x) + bias[i];
                expected.extend((0..shape.vocabulary).map(logit));
            }
        }
    }
    let found = lstm::logits(shape, &w, &examples.input, &examples.positions).unwrap();
    for (a, b) in values(&found).iter().zip(&expected) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }
}

#[test]
fn an_autoencoder_gives_images_back_at_their_size() {
    for (image_size, widths) in [(28, vec![4, 6]), (64, vec![2, 2, 2, 2]), (31, vec![3])] {
        let shape = AutoencoderShape {
            image_size,
            channels: 3,
            widths,
            latent: 5,
        };
        shape.validate().unwrap();
        let network = Small::Autoencoder(shape.clone());
        let images = noise(&[2, 3, image_size, image_size], 0);
        let found = autoencoder::reconstruct(&shape, &weights(&network), &images).unwrap();
        assert_eq!(found.dims(), images.dims());
        assert_eq!(found.dtype(), DType::F64);
    }
}
