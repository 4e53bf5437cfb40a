use super::mamba2::matrix;
use super::*;
use crate::run::softplus;
use crate::testing::{assert_close, fixture, tensor, values as wide, weights};
use clap::ValueEnum as _;

const CPU: Device = Device::Cpu;

/// Logits (b, t, vocabulary) of the next token at every position.
fn logits(shape: &SequenceShape, weights: &Weights, tokens: &Tensor) -> Result<Tensor> {
    let x = hidden(shape, weights, tokens, |_, _| Ok(()))?;
    head(weights, &x)
}

fn shape(mixers: &[Mixer]) -> SequenceShape {
    SequenceShape {
        mixers: mixers.to_vec(),
        inner: 24,
        state: 6,
        heads: 3,
        step_rank: 2,
        ..SequenceShape::new(11, 1, 12, Mixer::Mamba2)
    }
}

/// The tokens of `tests/fixtures/make_sequence.py`, (3, 13).
fn tokens() -> Tensor {
    let all: Vec<u32> = (0..39).map(|i| (i * i + 3 * i) % 11).collect();
    Tensor::from_vec(all, (3, 13), &CPU).unwrap()
}

/// A transformer of two blocks and three heads.
fn transformer() -> SequenceShape {
    SequenceShape {
        attention_heads: 3,
        hidden: 20,
        ..SequenceShape::transformer(11, 2, 12)
    }
}

/// Numbers of transformers and torch, from `tests/fixtures/make_sequence.py`.
#[test]
fn logits_are_those_expected() {
    for (case, shape) in [
        ("mamba2", shape(&[Mixer::Mamba2; 2])),
        ("mamba", shape(&[Mixer::Mamba; 2])),
        ("attention", shape(&[Mixer::Attention; 2])),
        ("linear-attention", shape(&[Mixer::LinearAttention; 2])),
        ("transformer", transformer()),
    ] {
        let weights = weights(&shape.parameters());
        let expected = fixture("sequence.safetensors", case);
        let found = logits(&shape, &weights, &tokens()).unwrap();
        assert_close(case, &found, &expected, 1e-4);
        let positions = Tensor::new(&[3u32, 12], &CPU).unwrap();
        let some = logits_at(&shape, &weights, &tokens(), &positions).unwrap();
        let rows = expected.index_select(&positions, 1).unwrap();
        assert_close(case, &some, &rows, 1e-4);
    }
}

#[test]
fn positions_are_those_of_a_vanilla_transformer() {
    // Width 4: w = 1, 0.01.
    let p = sinusoidal_positions(3, 4, DType::F32, &CPU).unwrap();
    let found = p.get(2).unwrap().to_vec1::<f32>().unwrap();
    for (found, expected) in found
        .iter()
        .zip([0.909_297, 0.019_999, -0.416_147, 0.999_8])
    {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    // They distinguish equal tokens: without them all positions of one token look alike.
    let same = Tensor::full(3u32, (1, 5), &CPU).unwrap();
    let spread = |positions| {
        let shape = SequenceShape {
            positions,
            ..transformer()
        };
        let z = logits(&shape, &weights(&shape.parameters()), &same).unwrap();
        let rows = z.squeeze(0).unwrap().to_vec2::<f32>().unwrap();
        (rows[4][0] - rows[1][0]).abs()
    };
    assert!(spread(false) < 1e-6 && spread(true) > 1e-3);
}

/// Deterministic values between -1 and 1.
fn values(name: &str, dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let scale = 1.0 / 6f64.sqrt(); // the rule's own bound for matrices of one column
    (tensor(name, &[n, 1]).reshape(dims).unwrap() * scale).unwrap()
}

#[test]
fn the_matrix_is_the_recurrence() {
    let (b, t, h, n) = (2, 17, 3, 5);
    let step = softplus(&values("step", &[b, t, h])).unwrap();
    let a = values("a", &[h]).exp().unwrap().neg().unwrap();
    let (input, output) = (values("input", &[b, t, n]), values("output", &[b, t, n]));
    let x = values("x", &[b, t, h]);
    let found = matrix(&step, &a, &input, &output).unwrap();
    let columns = x.transpose(1, 2).unwrap().unsqueeze(3).unwrap();
    let found = found.matmul(&columns.contiguous().unwrap()).unwrap();
    let found = found.squeeze(3).unwrap().transpose(1, 2).unwrap();
    // h_t = exp(A step_t) h_{t-1} + B_t step_t x_t, y_t = C_t . h_t, in f64.
    let (step, a, input) = (wide(&step), wide(&a), wide(&input));
    let (output, x) = (wide(&output), wide(&x));
    let mut y = vec![0f32; b * t * h];
    for (s, head) in (0..b).flat_map(|s| (0..h).map(move |head| (s, head))) {
        let mut state = vec![0.0; n];
        for i in 0..t {
            let at = (s * t + i) * h + head;
            for k in 0..n {
                let gain = input[(s * t + i) * n + k] * step[at];
                state[k] = (a[head] * step[at]).exp() * state[k] + gain * x[at];
            }
            let outputs = &output[(s * t + i) * n..];
            y[at] = (0..n).map(|k| outputs[k] * state[k]).sum::<f64>() as f32;
        }
    }
    let y = Tensor::from_vec(y, (b, t, h), &CPU).unwrap();
    assert_close("recurrence", &found.contiguous().unwrap(), &y, 1e-5);
}

#[test]
fn without_decay_and_with_steps_of_one_it_is_linear_attention() {
    let (b, t, n) = (2, 9, 4);
    let (input, output) = (values("input", &[b, t, n]), values("output", &[b, t, n]));
    let step = Tensor::ones((b, t, 2), DType::F32, &CPU).unwrap();
    let a = Tensor::zeros(2, DType::F32, &CPU).unwrap();
    let found = matrix(&step, &a, &input, &output).unwrap();
    // Equation 3.38: the products of C and B, for past positions only.
    let products = output.matmul(&input.t().unwrap()).unwrap();
    let mut products = products.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (at, product) in products.iter_mut().enumerate() {
        if at % t > at / t % t {
            *product = 0.0;
        }
    }
    let products = Tensor::from_vec(products, (b, t, t), &CPU).unwrap();
    for head in 0..2 {
        let of_head = found.narrow(1, head, 1).unwrap().squeeze(1).unwrap();
        assert_close("linear attention", &of_head, &products, 1e-6);
    }
}

#[test]
fn no_position_sees_a_later_one() {
    let mixers = Mixer::value_variants().to_vec();
    let shape = shape(&mixers);
    let weights = weights(&shape.parameters());
    let whole = logits(&shape, &weights, &tokens()).unwrap();
    let first = logits(&shape, &weights, &tokens().narrow(1, 0, 8).unwrap()).unwrap();
    assert_close("prefix", &first, &whole.narrow(1, 0, 8).unwrap(), 1e-5);
    let maps = attention_maps(&shape, &weights, &tokens().get(0).unwrap()).unwrap();
    let layers: Vec<usize> = maps.iter().map(|(layer, _)| *layer).collect();
    assert_eq!(layers, [0, 1, 2, 3]); // the MLP has none
    for (_, map) in maps {
        let rows = map.to_vec2::<f32>().unwrap();
        assert_eq!((rows.len(), rows[0].len()), (13, 13));
        assert!((0..13).all(|i| rows[i][i + 1..].iter().all(|v| *v == 0.0)));
        assert!(rows[12][..12].iter().any(|v| v.abs() > 1e-6));
    }
}

/// The mean matrix over Mamba's channels maps one input, the same in every channel, to the layer's mean
/// output.
#[test]
fn maps_of_mamba_are_means_over_channels() {
    let shape = shape(&[Mixer::Mamba]);
    let weights = weights(&shape.parameters());
    let layer = Layer {
        shape: &shape,
        weights: &weights,
        layer: 0,
    };
    let u = values("u", &[1, 6, 12]);
    let map = mamba::mean_matrix(layer, &u).unwrap();
    let p = mamba::pieces(layer, &u).unwrap();
    let ones = p.x.ones_like().unwrap();
    let found = wave_ops::selective_scan(&ones, &p.step, &p.a, &p.input, &p.output).unwrap();
    let found = found.mean(2).unwrap();
    let y = map.sum(2).unwrap(); // to an input of ones
    assert_close("response", &y, &found, 1e-4);
}

#[test]
fn weights_of_other_sizes_are_refused() {
    let mut shape = shape(&[Mixer::Mamba2]);
    let weights = weights(&shape.parameters());
    wave_models::check_weights(&weights, &shape.parameters()).unwrap();
    shape.state += 1;
    assert!(wave_models::check_weights(&weights, &shape.parameters()).is_err());
    assert!(logits(&shape, &weights, &tokens()).is_err());
}

#[test]
fn softplus_is_exact_far_out_and_near_zero() {
    let x = Tensor::new(&[-100f32, -1.0, 0.0, 2.0, 100.0], &CPU).unwrap();
    let y = softplus(&x).unwrap().to_vec1::<f32>().unwrap();
    let expected = [0.0, 0.313_261_7, std::f32::consts::LN_2, 2.126_928, 100.0];
    for (y, expected) in y.iter().zip(expected) {
        assert!((y - expected).abs() < 1e-6, "{y} {expected}");
    }
}
