use super::*;
use crate::population::network::Arch;
use crate::population::statistics::{across_layers, layers, network};
use crate::testing::values;
use wave_init::mean_shift::{MlpMean, first_layer};

const SHAPE: PopulationShape = PopulationShape {
    networks: 400,
    arch: Arch::Convnext,
    image_size: 28,
    channels: 1,
    patch: 7,
    depth: 3,
    width: 16,
    classes: 10,
};

/// Maximum error of a statistic over the networks.
fn tolerance() -> f64 {
    3.0 / (SHAPE.networks as f64).sqrt()
}

fn entry(t: &Tensor, row: usize, column: usize) -> f64 {
    let entry = t.get(row).unwrap().get(column).unwrap();
    entry.to_scalar().unwrap()
}

fn draws() -> Weights {
    start(&SHAPE, 1).unwrap()
}

/// The same with the mean of every W1 shifted.
fn shifted(shift: MlpMean) -> Weights {
    let mut weights = draws();
    for (place, (name, dims)) in SHAPE.parameters().iter().enumerate() {
        if !name.ends_with("fc1.weight") {
            continue;
        }
        let of_network = |network: u64| {
            let rng = &mut generator(1, network * STREAMS + place as u64);
            let w1 = uniform(&dims[1..], 1.0 / (dims[2] as f64).sqrt(), rng).unwrap();
            first_layer(&w1, &w1, &w1, shift, rng).unwrap().0
        };
        let networks: Vec<Tensor> = (0..SHAPE.networks as u64).map(of_network).collect();
        weights.insert(name.clone(), Tensor::stack(&networks, 0).unwrap());
    }
    weights
}

#[test]
fn independent_entries_score_one_and_correlate_with_nothing() {
    for arch in [Arch::Convnext, Arch::Vit] {
        let shape = PopulationShape { arch, ..SHAPE };
        let weights = start(&shape, 1).unwrap();
        wave_models::check_weights(&weights, &shape.parameters()).unwrap();
        let norm = values(&weights["norm.weight"]);
        assert!(norm.iter().all(|scale| *scale == 1.0));
        for layer in layers(&shape, &weights).unwrap() {
            // No stripes, and no correlated weights.
            let stripes = [layer.stripes_fc1, layer.stripes_fc2];
            let close = |s: &f64| (s - 1.0).abs() < tolerance();
            assert!(stripes.iter().all(close), "{stripes:?}");
            assert!(layer.fc1_fc2.abs() < tolerance() / 3.0);
            assert_eq!(layer.filter_product.is_some(), arch == Arch::Convnext);
            for pixel in layer.filter_product.iter().flat_map(values) {
                assert!(pixel.abs() < tolerance() / 3.0);
            }
        }
    }
    let across = values(&across_layers(&SHAPE, &draws()).unwrap()); // (3, 3)
    for (at, found) in across.iter().enumerate() {
        let expected = if at % 4 == 0 { 1.0 } else { 0.0 };
        let error = (found - expected).abs();
        assert!(error < tolerance() / 3.0, "{at}: {found}");
    }
}

#[test]
fn equation_1_draws_stripes_of_the_predicted_strength() {
    let (p, sigma) = (SHAPE.hidden() as f64, 0.3f64);
    let weights = shifted(MlpMean::Eq1 { sigma });
    let predicted = (1.0 + p * sigma.powi(2)) / (1.0 + sigma.powi(2));
    for layer in layers(&SHAPE, &weights).unwrap() {
        let found = layer.stripes_fc1;
        let error = (found / predicted - 1.0).abs();
        assert!(error < tolerance(), "{found} {predicted}");
        assert!((layer.stripes_fc2 - 1.0).abs() < tolerance());
    }
    // Equation 2 shifts all networks alike: the variance over networks is no larger than before.
    let weights = shifted(MlpMean::Eq2 { b: 1.0 });
    for layer in layers(&SHAPE, &weights).unwrap() {
        assert!((layer.stripes_fc1 - 1.0).abs() < tolerance());
    }
}

/// Networks whose weights obey rules that the statistics should detect.
#[test]
fn what_was_put_in_is_found() {
    let mut weights = draws();
    let name = |l: usize, w: &str| format!("blocks.{l}.{w}.weight");
    // In layer 1, W2 is W1 transposed and negated; in layer 2, that of layer 0 negated.
    let opposed = weights[&name(1, "mlp.fc1")].transpose(1, 2).unwrap();
    let opposed = opposed.neg().unwrap();
    weights.insert(name(1, "mlp.fc2"), opposed.contiguous().unwrap());
    let opposed = weights[&name(0, "mlp.fc2")].neg().unwrap();
    weights.insert(name(2, "mlp.fc2"), opposed);
    // There the centre of a filter is its channel's diagonal entry of W2 W1, negated.
    let (w1, w2) = (&weights[&name(2, "mlp.fc1")], &weights[&name(2, "mlp.fc2")]);
    let own = (w2 * w1.transpose(1, 2).unwrap()).unwrap().sum(2).unwrap(); // (n, h)
    let middle = own.neg().unwrap().reshape((SHAPE.networks, 16, 1, 1));
    let filters = middle.unwrap().pad_with_zeros(2, 1, 1).unwrap();
    let filters = filters.pad_with_zeros(3, 1, 1).unwrap();
    let noise = (&weights[&name(2, "conv_dw")] * 1e-3).unwrap();
    weights.insert(name(2, "conv_dw"), (filters + noise).unwrap());

    let found = layers(&SHAPE, &weights).unwrap();
    assert!((found[1].fc1_fc2 + 1.0).abs() < 1e-9);
    assert!((entry(&found[1].within, 0, 16) + 1.0).abs() < 1e-9);
    let product = found[2].filter_product.as_ref().unwrap();
    assert!(entry(product, 1, 1) < -0.99);
    assert!(entry(product, 0, 0).abs() < tolerance());
    let across = across_layers(&SHAPE, &weights).unwrap();
    assert!((entry(&across, 0, 2) + 1.0).abs() < 1e-9);
}

#[test]
fn correlations_over_the_whole_network_are_those_put_in() {
    let mut weights = draws();
    // A bias is the sum of its row of 16 weights; a layer's W2 is another's, negated.
    let sum = weights["blocks.0.mlp.fc1.weight"].sum(2).unwrap();
    weights.insert("blocks.0.mlp.fc1.bias".into(), sum);
    let opposed = weights["blocks.0.mlp.fc2.weight"].neg().unwrap();
    weights.insert("blocks.2.mlp.fc2.weight".into(), opposed);
    let found = network(&SHAPE, &weights).unwrap();
    let place = |name: &str| found.tensors.iter().position(|own| own == name).unwrap();
    let pair = ["blocks.0.mlp.fc2.weight", "blocks.2.mlp.fc2.weight"].map(place);
    let biased = ["blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc1.bias"].map(place);
    for (a, row) in found.between.to_vec2::<f64>().unwrap().iter().enumerate() {
        for (b, found) in row.iter().enumerate() {
            // Either one value of 512 correlates, or one row of 32, by 1/4.
            let expected = match [a.min(b), a.max(b)] {
                both if both == pair => 1.0 / 512f64.sqrt(),
                both if both == biased => 0.25 / 32f64.sqrt(),
                _ => 0.0,
            };
            let error = (found.powi(2) - expected.powi(2)).abs();
            assert!(error < 2e-3, "{a} {b}: {found}, expected {expected}");
        }
    }
    for (name, found) in &found.bias_with_row {
        let own = name == "blocks.0.mlp.fc1.weight";
        let expected = if own { 0.25 } else { 0.0 };
        assert!((found - expected).abs() < 0.04, "{name}: {found}");
    }
    assert!(found.shown.dim(0).unwrap() <= super::super::statistics::SHOWN);
}

#[test]
fn networks_do_not_depend_on_how_many_there_are() {
    let few = PopulationShape {
        networks: 4,
        ..SHAPE
    };
    let few = start(&few, 1).unwrap();
    for (name, t) in draws() {
        let (a, b) = (t.get(3).unwrap(), few[&name].get(3).unwrap());
        assert_eq!(values(&a), values(&b), "{name}");
    }
}
