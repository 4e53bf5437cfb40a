use super::*;
use crate::Choices;
use crate::testing::{assert_close, assert_same, changed, logits, shape, try_start, values};
use wave_models::Weights;

fn shifted(shift: MlpMean) -> Weights {
    let choices = changed(Choices::default(), |c| c.mlp_mean = Some(shift));
    try_start("mlp-mean", &shape(2, 32), &[], &choices)
        .unwrap()
        .weights
}

#[test]
fn linear_layers_are_uniform_with_their_biases() {
    let plain = shifted(MlpMean::None);
    for (name, inputs) in [
        ("attn.qkv", 32.0),
        ("attn.proj", 32.0),
        ("mlp.fc1", 32.0),
        ("mlp.fc2", 128.0f32),
    ] {
        let bound = 1.0 / inputs.sqrt();
        for kind in ["weight", "bias"] {
            let found = values(&plain[&format!("blocks.1.{name}.{kind}")]);
            let largest = found.iter().fold(0f32, |a, x| a.max(x.abs()));
            let within = 0.75 * bound..=bound;
            assert!(within.contains(&largest), "{name}.{kind}: {largest}");
        }
    }
}

/// Figure 2 of the paper: the shift joins mimetic attention, and the MLP stays PyTorch's.
#[test]
fn mimetic_attention_may_be_the_rest() {
    let choices = changed(Choices::default(), |c| {
        c.rest = crate::DirectMethod::Mimetic;
        c.mlp_mean = Some(MlpMean::Eq2 { b: 2.0 });
    });
    let start = |method: &str, choices: &Choices| {
        let start = try_start(method, &shape(2, 32), &[], choices).unwrap();
        start.weights
    };
    let (joined, mimetic) = (start("mlp-mean", &choices), start("mimetic", &choices));
    let alone = shifted(MlpMean::Eq2 { b: 2.0 });
    for (name, tensor) in &joined {
        let mlp = name.contains("mlp");
        let expected = if mlp { &alone[name] } else { &mimetic[name] };
        assert_same(name, tensor, expected);
    }
}

/// Equation 2 is the one of the paper's results, with its offset in standard deviations of W1.
#[test]
fn by_default_one_number_is_added_everywhere() {
    let unchosen = try_start("mlp-mean", &shape(2, 32), &[], &Choices::default()).unwrap();
    let (plain, name) = (shifted(MlpMean::None), "blocks.1.mlp.fc1.weight");
    let change = values(&(&unchosen.weights[name] - &plain[name]).unwrap());
    // Uniform in ±1/sqrt(32): the standard deviation is 1/sqrt(96).
    let expected = 0.5 / 96f32.sqrt();
    assert!(change.iter().all(|c| (c / expected - 1.0).abs() < 0.05));
    assert!(change.iter().all(|c| (c - change[0]).abs() < 1e-6));
}

#[test]
fn equation_2_keeps_the_function_behind_fresh_norms() {
    let target = shape(2, 32);
    let plain = logits(&target, &shifted(MlpMean::None));
    let one = logits(&target, &shifted(MlpMean::Eq2 { b: 0.5 }));
    let stripes = logits(&target, &shifted(MlpMean::Eq1 { sigma: 0.5 }));
    assert_close(&one, &plain, 1e-4);
    let mut pairs = stripes.iter().zip(&plain);
    assert!(pairs.any(|(a, b)| (a - b).abs() > 1e-2), "{stripes:?}");
}
