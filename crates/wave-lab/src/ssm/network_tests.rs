use super::*;
use crate::run::softplus;
use crate::testing::{assert_close, fixture, tensor, weights};
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

/// Numbers of transformers and torch, from `tests/fixtures/make_sequence.py`.
#[test]
fn logits_are_those_expected() {
    for (case, shape) in [
        ("mamba2", shape(&[Mixer::Mamba2; 2])),
        ("mamba", shape(&[Mixer::Mamba; 2])),
        ("attention", shape(&[Mixer::Attention; 2])),
        ("linear-attention", shape(&[Mixer::LinearAttention; 2])),
        (
            "transformer",
            SequenceShape {
                attention_heads: 3,
                hidden: 20,
                ..SequenceShape::transformer(11, 2, 12)
            },
        ),
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
fn maps_show_no_later_position() {
    let mixers = Mixer::value_variants().to_vec();
    let shape = shape(&mixers);
    let weights = weights(&shape.parameters());
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
    let u = (tensor("u", &[1, 6, 12]) * 12f64.sqrt()).unwrap(); // between -1 and 1
    let map = mamba::mean_matrix(layer, &u).unwrap();
    let p = mamba::pieces(layer, &u).unwrap();
    let ones = p.x.ones_like().unwrap();
    let found = wave_ops::selective_scan(&ones, &p.step, &p.a, &p.input, &p.output).unwrap();
    let found = found.mean(2).unwrap();
    let y = map.sum(2).unwrap(); // to an input of ones
    assert_close("response", &y, &found, 1e-4);
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
