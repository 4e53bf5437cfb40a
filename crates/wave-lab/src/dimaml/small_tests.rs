use super::*;
use candle_core::{DType, Device, Var};

/// Numbers without a pattern, in -1..1.
fn noise(shape: &[usize], seed: u64) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((i as f64 + 1.0) * (seed as f64 + 1.7) * 12.9898).sin() * 43758.5453;
    let values: Vec<f64> = (0..n).map(|i| 2.0 * value(i).fract().abs() - 1.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn networks() -> [(Small, Examples); 3] {
    let examples = |input: Tensor, targets: Vec<u32>, positions: Vec<u32>| Examples {
        input,
        targets,
        positions,
    };
    let autoencoder = AutoencoderShape {
        image_size: 14,
        channels: 1,
        widths: vec![3, 4],
        latent: 3,
    };
    let fixup = FixupShape {
        image_size: 8,
        channels: 2,
        width: 4,
        blocks: 4,
        stages: 2,
        classes: 3,
    };
    let lstm = LstmShape {
        vocabulary: 6,
        embedding: 3,
        width: 4,
        layers: 2,
    };
    let tokens = Tensor::new(&[[0u32, 3, 5, 1], [2, 2, 4, 0]], &Device::Cpu).unwrap();
    [
        (
            Small::Autoencoder(autoencoder),
            examples(noise(&[4, 1, 14, 14], 1), vec![], vec![]),
        ),
        (
            Small::Fixup(fixup),
            examples(noise(&[3, 2, 8, 8], 2), vec![0, 2, 1], vec![]),
        ),
        (
            Small::Lstm(lstm),
            examples(tokens, vec![1, 5, 0, 3], vec![1, 3]),
        ),
    ]
}

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
    for (network, examples) in networks() {
        network.validate().unwrap();
        let start = weights(&network);
        let variables: Vec<(String, Var)> = start
            .iter()
            .map(|(name, t)| (name.clone(), Var::from_tensor(t).unwrap()))
            .collect();
        let tracked: Weights = variables
            .iter()
            .map(|(name, v)| (name.clone(), v.as_tensor().clone()))
            .collect();
        let store = network
            .loss(&tracked, &examples)
            .unwrap()
            .backward()
            .unwrap();
        for (name, v) in &variables {
            let gradient = store.get(v.as_tensor()).unwrap().flatten_all().unwrap();
            let gradient = gradient.to_vec1::<f64>().unwrap();
            let i = gradient.len() / 2;
            let at = |by: f64| {
                let mut moved: Vec<f64> = start[name].flatten_all().unwrap().to_vec1().unwrap();
                moved[i] += by;
                let moved = Tensor::from_vec(moved, start[name].shape(), &Device::Cpu).unwrap();
                let mut from = start.clone();
                from.insert(name.clone(), moved);
                network
                    .loss(&from, &examples)
                    .unwrap()
                    .to_scalar::<f64>()
                    .unwrap()
            };
            let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
            let error = (gradient[i] - expected).abs() / expected.abs().max(1e-2);
            assert!(error < 1e-5, "{name}: {}, {expected}", gradient[i]);
        }
    }
}

/// Fixup: "Assert every residual branch is 0".
#[test]
fn branches_of_a_usual_fixup_network_are_zero() {
    let [_, (network, examples), _] = networks();
    let Small::Fixup(shape) = &network else {
        panic!("the second is Fixup's")
    };
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
        let branch = fixup::branch(&usual, l, &x, l == 2).unwrap().abs().unwrap();
        let side = if l == 2 { 3 } else { 5 };
        assert_eq!(branch.dims(), [2, outputs, side, side]);
        assert_eq!(branch.max_all().unwrap().to_scalar::<f64>().unwrap(), 0.0);
        // sqrt(2 / (c_out k²)) / sqrt(B) in the first convolution.
        let name = format!("blocks.{l}.conv1.weight");
        let first = network
            .parameters()
            .into_iter()
            .find(|p| p.name == name)
            .unwrap();
        assert_eq!(
            first.usual,
            Usual::Normal((2.0 / (9 * outputs) as f64).sqrt() / 4f64.sqrt())
        );
    }
    let logits = fixup::logits(shape, &usual, &examples.input).unwrap();
    assert_eq!(
        logits
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap(),
        0.0
    );
}

#[test]
fn every_second_pixel_of_a_convolution_is_a_stride_of_2() {
    let w = noise(&[3, 2, 3, 3], 1);
    for side in [6, 7] {
        let x = noise(&[2, 2, side, side], 2);
        let found = fixup::every_second(&x.conv2d(&w, 1, 1, 1, 1).unwrap()).unwrap();
        let expected = x.conv2d(&w, 1, 2, 1, 1).unwrap();
        assert_eq!(found.dims(), expected.dims());
        let error = (found - expected)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap();
        assert!(error.to_scalar::<f64>().unwrap() < 1e-12);
    }
}

/// The cell of PyTorch, from its formulas in plain numbers.
#[test]
fn an_lstm_is_the_recurrence_of_its_formulas() {
    let [.., (network, examples)] = networks();
    let Small::Lstm(shape) = &network else {
        panic!("the last is the LSTM")
    };
    let w = weights(&network);
    let row = |name: &str, i: usize| -> Vec<f64> { w[name].get(i).unwrap().to_vec1().unwrap() };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let tokens: Vec<Vec<u32>> = examples.input.to_vec2().unwrap();
    let mut expected = Vec::new();
    for sequence in &tokens {
        let mut state = vec![(vec![0.0; 4], vec![0.0; 4]); shape.layers]; // h, c
        for (t, token) in sequence.iter().enumerate() {
            let mut x = row("embedding.weight", *token as usize);
            for (l, (h, c)) in state.iter_mut().enumerate() {
                let old = h.clone();
                for k in 0..4 {
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
                expected.push(
                    (0..6)
                        .map(|i| dot(&row("logits.weight", i), &x) + bias[i])
                        .collect(),
                );
            }
        }
    }
    let expected: Vec<Vec<f64>> = expected;
    let found = lstm::logits(shape, &w, &examples.input, &examples.positions).unwrap();
    for (found, expected) in found.to_vec2::<f64>().unwrap().iter().zip(&expected) {
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-12, "{a} {b}");
        }
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
