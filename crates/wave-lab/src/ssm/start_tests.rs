use super::*;
use crate::run::softplus;
use crate::testing::values;
use candle_core::{DType, Device};

/// Two layers of width 256, with a state of 32.
fn shape(mixer: Mixer) -> SequenceShape {
    SequenceShape {
        state: 32,
        ..SequenceShape::new(19, 2, 256, mixer)
    }
}

fn weights(method: Method, mixer: Mixer, parts: Option<&[Change]>) -> Weights {
    let weights = start(method, &shape(mixer), parts, None, 5).unwrap();
    wave_models::check_weights(&weights, &shape(mixer).parameters()).unwrap();
    weights
}

fn of<'a>(weights: &'a Weights, weight: &str) -> &'a Tensor {
    &weights[&format!("backbone.layers.1.mixer.{weight}")]
}

/// W_B and W_C of a layer, (n, inputs).
fn maps(weights: &Weights, mixer: Mixer) -> (Tensor, Tensor) {
    let shape = shape(mixer);
    let (w, first) = match mixer {
        Mixer::Mamba2 => (of(weights, "in_proj.weight"), 2 * shape.inner),
        _ => (of(weights, "x_proj.weight"), shape.step_rank),
    };
    let rows = |from| w.narrow(0, from, shape.state).unwrap();
    (rows(first), rows(first + shape.state))
}

#[test]
fn part_state_raises_the_rates_to_a_negative_power() {
    // Mamba: A_n = -n^-c, and the first entry stays at -1, where exp(A) = exp(-1).
    let found = weights(Method::Mimetic, Mixer::Mamba, Some(&[Change::State]));
    let a = values(of(&found, "A_log"));
    for (i, log) in a.iter().enumerate() {
        let n = (i % 32 + 1) as f64;
        assert!((log.exp() - n.powf(-8.0)).abs() < 1e-6, "{n}: {log}");
    }
    assert_eq!(a[0], 0.0);
    let kept = |i: usize| (-a[i].exp()).exp();
    assert!((kept(0) - (-1f64).exp()).abs() < 1e-6);
    assert!((kept(1) - 0.9961).abs() < 5e-5 && (kept(2) - 0.99985).abs() < 5e-6);
    // Mamba-2: A between -16 and -1 before; the mean of exp(A) with steps of 1 is .992 after.
    let wide = SequenceShape {
        inner: 4096,
        heads: 4096,
        ..shape(Mixer::Mamba2)
    };
    let before = start(Method::Default, &wide, None, None, 1).unwrap();
    let after = start(Method::Mimetic, &wide, Some(&[Change::State]), None, 1).unwrap();
    let (before, after) = (values(of(&before, "A_log")), values(of(&after, "A_log")));
    assert!(before.iter().all(|log| (0.0..16f64.ln()).contains(log)));
    let ratio = |(b, a): (&f64, &f64)| (a + 8.0 * b).abs() < 1e-4;
    assert!(before.iter().zip(&after).all(ratio));
    let mean = after.iter().map(|log| (-log.exp()).exp()).sum::<f64>() / 4096.0;
    assert!((mean - 0.992).abs() < 0.004, "{mean}");
}

#[test]
fn part_step_makes_steps_of_one_that_can_learn() {
    for (mixer, bias) in [(Mixer::Mamba2, "dt_bias"), (Mixer::Mamba, "dt_proj.bias")] {
        let found = weights(Method::Mimetic, mixer, Some(&[Change::Step]));
        let steps = softplus(of(&found, bias)).unwrap();
        let biases = values(of(&found, bias));
        assert!(biases.iter().all(|b| (b - 0.541_325).abs() < 1e-6));
        assert!(values(&steps).iter().all(|step| (step - 1.0).abs() < 1e-6));
        let default = weights(Method::Default, mixer, None);
        let steps = values(&softplus(of(&default, bias)).unwrap());
        assert!(steps.iter().all(|step| (0.9e-3..0.11).contains(step)));
        let map = |weights: &Weights| match mixer {
            Mixer::Mamba2 => {
                let shape = shape(mixer);
                let first = 2 * shape.inner + 2 * shape.state;
                let w = of(weights, "in_proj.weight");
                values(&w.narrow(0, first, shape.heads).unwrap())
            }
            _ => values(of(weights, "dt_proj.weight")),
        };
        for (small, large) in map(&found).iter().zip(map(&default)) {
            assert!((small - 0.01 * large).abs() < 1e-7 && *small != 0.0);
        }
    }
}

#[test]
fn part_correlation_ties_outputs_to_inputs() {
    for mixer in [Mixer::Mamba2, Mixer::Mamba] {
        let default = weights(Method::Default, mixer, None);
        let found = weights(Method::Mimetic, mixer, Some(&[Change::Correlation]));
        let ((b_before, c_before), (b, c)) = (maps(&default, mixer), maps(&found, mixer));
        assert_eq!(values(&b), values(&b_before));
        let [b, c, c_before] = [&b, &c, &c_before].map(values);
        for i in 0..b.len() {
            assert!((c[i] - 0.5 * (b[i] + c_before[i])).abs() < 1e-7);
        }
    }
}

#[test]
fn part_convolution_passes_tokens_on() {
    for mixer in [Mixer::Mamba2, Mixer::Mamba] {
        let found = weights(Method::Mimetic, mixer, Some(&[Change::Convolution]));
        let (w, b) = (of(&found, "conv1d.weight"), of(&found, "conv1d.bias"));
        let x = normal((2, 6, w.dim(0).unwrap()), 1.0, &mut generator(0, 0)).unwrap();
        let y = wave_ops::causal_convolution(&x, &w.squeeze(1).unwrap(), b).unwrap();
        assert_eq!(values(&y), values(&x));
    }
}

#[test]
fn parts_change_nothing_else() {
    for mixer in [Mixer::Mamba2, Mixer::Mamba] {
        let default = weights(Method::Default, mixer, None);
        for (part, expected) in [
            (Change::State, &["A_log"][..]),
            (Change::Step, &["dt_bias", "dt_proj.bias", "dt_proj.weight"]),
            (Change::Correlation, &["x_proj.weight"]),
            (Change::Convolution, &["conv1d.weight", "conv1d.bias"]),
        ] {
            let found = weights(Method::Mimetic, mixer, Some(&[part]));
            for (name, t) in &found {
                let same = values(t) == values(&default[name]);
                // Mamba-2 keeps B, C and the map to steps in one matrix.
                let shared = name.ends_with("in_proj.weight")
                    && mixer == Mixer::Mamba2
                    && matches!(part, Change::Step | Change::Correlation);
                let touched = shared || expected.iter().any(|end| name.ends_with(end));
                assert_eq!(same, !touched, "{part:?}: {name}");
            }
        }
    }
}

#[test]
fn starts_are_those_of_pytorch_and_seeded() {
    let found = weights(Method::Default, Mixer::Mamba2, None);
    let spread = |t: &Tensor| values(t).iter().fold(0f64, |most, v| most.max(v.abs()));
    let in_proj = spread(of(&found, "in_proj.weight"));
    assert!((0.99 / 16.0..=1.0 / 16.0).contains(&in_proj), "{in_proj}");
    let out = spread(of(&found, "out_proj.weight"));
    let bound = 1.0 / (2.0f64 * 512.0).sqrt(); // of 2 layers
    assert!((0.99 * bound..=bound).contains(&out), "{out}");
    assert!(values(of(&found, "D")).iter().all(|d| *d == 1.0));
    let again = weights(Method::Default, Mixer::Mamba2, None);
    let other = start(Method::Default, &shape(Mixer::Mamba2), None, None, 6).unwrap();
    let name = "lm_head.weight";
    assert_eq!(values(&found[name]), values(&again[name]));
    assert_ne!(values(&found[name]), values(&other[name]));
}

/// The matrices of attention, as the paper writes them: (inputs, outputs).
fn matrix(weights: &Weights, layer: usize, map: &str) -> Tensor {
    let name = format!("backbone.layers.{layer}.mixer.{map}_proj.weight");
    weights[&name].t().unwrap().contiguous().unwrap()
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    let squares = values(&(a - b).unwrap()).iter().map(|v| v * v).sum::<f64>();
    squares.sqrt()
}

/// Exact: with alpha 0 the product of Q and K of each head is beta times a projection onto its own random
/// axes; W_V W_O = alpha Z - beta I.
#[test]
fn attention_of_a_transformer_is_mimetic_head_by_head() {
    let shape = SequenceShape {
        attention_heads: 4,
        ..SequenceShape::transformer(19, 2, 64)
    };
    let weights = start(Method::Mimetic, &shape, None, None, 5).unwrap();
    wave_models::check_weights(&weights, &shape.parameters()).unwrap();
    let mut products = Vec::new();
    for layer in [0, 2] {
        let (q, k) = (matrix(&weights, layer, "q"), matrix(&weights, layer, "k"));
        for head in 0..4 {
            let of = |w: &Tensor| w.narrow(1, head * 16, 16).unwrap();
            let kt = of(&k).t().unwrap().contiguous().unwrap();
            let product = of(&q).contiguous().unwrap().matmul(&kt).unwrap();
            let twice = (product.matmul(&product).unwrap() * 2.0).unwrap();
            assert!(distance(&twice, &product) < 1e-5);
            let diagonal: f64 = values(&product).iter().step_by(65).sum();
            assert!((diagonal - 8.0).abs() < 1e-4, "{diagonal}"); // 16 of 64 axes, times 1/2
            products.push(product);
        }
    }
    // Two random subspaces share 16^2 / 64 of their squared norm, times 1/4 each; equal ones 16.
    for (a, b) in products.iter().zip(&products[1..]) {
        let shared = distance(&a.matmul(b).unwrap(), &a.zeros_like().unwrap()).powi(2) * 16.0;
        assert!((shared - 4.0).abs() < 1.5, "{shared}");
    }
    let vo = |weights: &Weights, layer| {
        let (v, o) = (matrix(weights, layer, "v"), matrix(weights, layer, "o"));
        v.matmul(&o).unwrap()
    };
    let eye = Tensor::eye(64, DType::F32, &Device::Cpu).unwrap();
    let expected = (eye * -0.2).unwrap();
    let noise = (vo(&weights, 2) - &expected).unwrap();
    let spread = (values(&noise).iter().map(|v| v * v).sum::<f64>() / 4096.0).sqrt();
    assert!((spread / (0.2 / 8.0) - 1.0).abs() < 0.1, "{spread}"); // Z of N(0, 1/64)
    assert_ne!(values(&vo(&weights, 0)), values(&vo(&weights, 2)));
}

#[test]
fn attention_of_a_hybrid_stays_as_it_is() {
    let mut shape = shape(Mixer::Mamba2);
    shape.mixers[1] = Mixer::Attention;
    let made = |method| start(method, &shape, None, None, 5).unwrap();
    let (default, mimetic) = (made(Method::Default), made(Method::Mimetic));
    for map in ["q", "k", "v", "o"] {
        let of = |weights: &Weights| values(of(weights, &format!("{map}_proj.weight")));
        assert_eq!(of(&default), of(&mimetic), "{map}");
    }
}

#[test]
fn a_pretrained_layer_is_every_layer() {
    let mut teacher = shape(Mixer::Mamba2);
    teacher.mixers = vec![Mixer::Mamba2; 3];
    let trained = start(Method::Mimetic, &teacher, None, None, 8).unwrap();
    let donor = |layer| Some((&trained, layer));
    let student = shape(Mixer::Mamba2);
    let own = start(Method::Default, &student, None, None, 5).unwrap();
    let found = start(Method::PretrainedLayer, &student, None, donor(2), 5).unwrap();
    for (name, t) in &found {
        let part = name.strip_prefix("backbone.layers.");
        let expected = match part.and_then(|part| part.split_once('.')) {
            Some((_, part)) => &trained[&format!("backbone.layers.2.{part}")],
            None => &own[name],
        };
        assert_eq!(values(t), values(expected), "{name}");
    }
    let error = |shape: &SequenceShape, layer| {
        let started = start(Method::PretrainedLayer, shape, None, donor(layer), 5);
        started.unwrap_err().to_string()
    };
    assert!(error(&student, 3).contains("counted from 0"));
    assert!(error(&shape(Mixer::Mamba), 0).contains("--arch"));
    let mut wide = shape(Mixer::Mamba2);
    wide.width *= 2;
    assert!(error(&wide, 0).contains("--width"));
    for (method, given) in [(Method::Default, donor(0)), (Method::PretrainedLayer, None)] {
        let started = start(method, &student, None, given, 5);
        assert!(started.is_err(), "{method:?}");
    }
}
