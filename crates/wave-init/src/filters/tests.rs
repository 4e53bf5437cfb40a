use super::statistics::{Statistics, interpolate};
use super::*;
use crate::mean_shift::MlpMean;
use crate::testing::{changed, check_refused, values};
use candle_core::{Device, Tensor};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::FRAC_PI_2;
use wave_models::convmixer::ConvMixerShape;
use wave_models::convnext::ConvNextShape;
use wave_models::{Dilations, Network, Weights};

fn rng(seed: u64) -> ChaCha8Rng {
    crate::random::generator(seed, 0)
}

/// The Frobenius norm of the difference.
fn distance(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    (a - b).norm_l2()
}

fn trace(a: &Mat<f64>) -> f64 {
    (0..a.nrows()).map(|i| a[(i, i)]).sum()
}

/// The covariance of sampled filters: a covariance without its negative eigenvalues.
fn clipped(covariance: &Mat<f64>) -> Mat<f64> {
    let root = root(covariance).unwrap();
    &root * root.transpose()
}

/// The block construction of section 3.1.2, equation 3.10, in a separate implementation.
fn by_blocks(k: usize, variance: f64) -> Mat<f64> {
    let r = k / 2;
    let bump = |i: usize, j: usize| {
        let square = |x: usize| (x as f64 - r as f64).powi(2);
        (-(square(i) + square(j)) / (2.0 * variance)).exp()
    };
    let shifted = |x: usize, by: usize| (x + k + r - by) % k; // forward by `by - r`
    Mat::from_fn(k * k, k * k, |row, col| {
        let ((i, j), (l, m)) = ((row / k, row % k), (col / k, col % k));
        let (mask, still) = (bump(i, j), bump(l, m));
        let moving = bump(shifted(l, i), shifted(m, j));
        0.5 * (mask * (moving - still) + still * moving)
    })
}

#[test]
fn the_closed_form_is_the_block_construction() {
    for (k, variance) in [(3, 0.3), (7, 1.0), (9, FRAC_PI_2), (5, 4.0)] {
        let sigma = covariance(k, variance).unwrap();
        assert!(distance(&sigma, &by_blocks(k, variance)) < 1e-14);
        assert!(distance(&sigma, &sigma.transpose().to_owned()) == 0.0);
        assert_eq!(sigma[(k * k / 2, k * k / 2)], 0.5);
    }
    // sum(z - z**2 / 2) for k = 9
    assert!((trace(&covariance(9, FRAC_PI_2).unwrap()) - 7.398).abs() < 5e-4);
}

#[test]
fn a_few_percent_of_the_eigenvalues_are_negative() {
    // numpy.linalg.eigvalsh of the A.2 code, k = 9: -sum(negative) / sum(positive)
    for (variance, share) in [(1.0, 0.028), (FRAC_PI_2, 0.032)] {
        let sigma = covariance(9, variance).unwrap();
        let (_, values) = eigen(&sigma).unwrap();
        let negative: f64 = values.iter().filter(|v| **v < 0.0).sum();
        let positive: f64 = values.iter().filter(|v| **v > 0.0).sum();
        assert!((-negative / positive - share).abs() < 5e-4);
        assert!((trace(&clipped(&sigma)) - positive).abs() < 1e-9);
    }
}

#[test]
fn sigma_grows_with_depth_as_the_papers_table_says() {
    let schedule = |start, velocity, acceleration| Schedule {
        start,
        velocity,
        acceleration,
    };
    let default = Schedule::default();
    for (schedule, expected) in [
        (default, [0.08, 0.63, 1.90]),
        (schedule(0.16, 0.32, 2.88), [0.16, 0.68, 1.92]),
    ] {
        for (layer, expected) in [0, 4, 8].into_iter().zip(expected) {
            let found = schedule.at(layer, 9);
            assert!((found - expected).abs() < 5e-3, "{layer}: {found}");
        }
    }
    assert_eq!(default.at(0, 1), 0.08);
    // ImageNet, frozen and trained filters: 0.15 at the first layer, 0.775 and 0.9 at the last.
    for (velocity, acceleration, last) in [(0.5, 0.25, 0.775), (0.25, 1.0, 0.9)] {
        let schedule = schedule(0.15, velocity, acceleration);
        assert_eq!(schedule.at(0, 24), 0.15);
        assert!((schedule.at(23, 24) - last).abs() < 1e-12);
    }
}

#[test]
fn drawn_filters_have_the_covariance() {
    let n = 4000;
    let covariance = covariance(5, 1.0).unwrap();
    let sigma = clipped(&covariance);
    let mean: Vec<f64> = (0..25).map(|a| a as f64 / 10.0).collect();
    let of = Statistics {
        mean: mean.clone(),
        covariance,
    };
    let filters = of.draw(n, &mut rng(1)).unwrap();
    assert_eq!(filters.dims(), [n, 1, 5, 5]);
    let found = Statistics::of(&filters).unwrap();
    // E |S - Σ|² = ((tr Σ)² + |Σ|²) / n for n samples
    let expected = (trace(&sigma).powi(2) + sigma.norm_l2().powi(2)) / n as f64;
    let error = distance(&found.covariance, &sigma).powi(2);
    let ratio = error / expected;
    assert!((0.3..2.0).contains(&ratio), "{ratio}");
    let off = found.mean.iter().zip(&mean).map(|(a, b)| (a - b).abs());
    assert!(off.fold(0.0, f64::max) < 5.0 * (0.5 / n as f64).sqrt());
}

#[test]
fn a_kronecker_square_is_recovered() {
    let b = Mat::from_fn(5, 5, |i, j| ((i * 3 + j * 7) as f64).sin());
    let a = &b * b.transpose();
    let square = kronecker_square(&a).unwrap();
    let factor = kronecker_factor(&square).unwrap();
    assert!(distance(&factor, &a) < 1e-13 * a.norm_l2());

    let sigma = covariance(9, FRAC_PI_2).unwrap();
    let a = kronecker_factor(&sigma).unwrap();
    let product = Mat::from_fn(81, 81, |x, y| a[(x / 9, y / 9)] * a[(x % 9, y % 9)]);
    let error = distance(&product, &sigma) / sigma.norm_l2();
    assert!((error - 0.234).abs() < 1e-3, "{error}");
}

#[test]
fn statistics_between_layers_are_covariances_between_them() {
    let layers = [0.5, 1.0, 2.0].map(|variance| {
        let of = Statistics {
            mean: vec![variance; 9],
            covariance: covariance(3, variance).unwrap(),
        };
        Statistics::of(&of.draw(6, &mut rng(2)).unwrap()).unwrap()
    });
    for (layer, own) in layers.iter().enumerate() {
        let same = interpolate(&layers, layer, 3);
        assert!(distance(&same.covariance, &own.covariance) == 0.0);
        assert_eq!(same.mean, own.mean);
    }
    let between = interpolate(&layers, 1, 5); // halfway from the first to the second
    let half = Mat::from_fn(9, 9, |a, b| {
        0.5 * (layers[0].covariance[(a, b)] + layers[1].covariance[(a, b)])
    });
    assert!(distance(&between.covariance, &half) < 1e-12);
    let one = Tensor::zeros((1, 1, 3, 3), candle_core::DType::F32, &Device::Cpu);
    assert!(Statistics::of(&one.unwrap()).is_err());
}

#[test]
fn a_resized_covariance_keeps_its_centre_and_its_symmetry() {
    let resized = |covariance: &Mat<f64>, to| {
        let of = Statistics::centred(covariance.clone());
        of.resized(to).map(|resized| resized.covariance)
    };
    let sigma = covariance(7, 1.0).unwrap();
    assert!(distance(&resized(&sigma, 7).unwrap(), &sigma) < 1e-15);
    for to in [3, 5, 9, 11] {
        let resized = resized(&sigma, to).unwrap();
        assert_eq!(resized.nrows(), to * to);
        assert!(distance(&resized, &resized.transpose().to_owned()) < 1e-15);
        let centre = to * to / 2;
        assert!((resized[(centre, centre)] - 0.5).abs() < 1e-12, "{to}");
    }
    // A constant covariance stays constant for another kernel size.
    let all = Mat::from_fn(25, 25, |_, _| 2.0);
    let expected = Mat::from_fn(81, 81, |_, _| 2.0);
    assert!(distance(&resized(&all, 9).unwrap(), &expected) < 1e-12);
    assert!(resized(&sigma, 4).is_err());
}

fn mixer(depth: usize, width: usize, kernel: usize) -> Network {
    Network::ConvMixer(ConvMixerShape {
        image_size: 28,
        channels: 1,
        patch: 4,
        depth,
        width,
        kernel,
        classes: 10,
        activation: wave_models::Activation::Gelu,
        dilations: Dilations::default(),
    })
}

fn convnext(depth: usize, width: usize, kernel: usize) -> Network {
    Network::ConvNext(ConvNextShape {
        image_size: 28,
        channels: 1,
        patch: 4,
        depth,
        stages: None,
        width,
        kernel,
        mlp_ratio: 2.0,
        classes: 10,
    })
}

/// Asserts that the weights are exactly the network's.
fn check_weights(network: &Network, weights: &Weights) {
    wave_models::check_weights(weights, &network.parameters()).unwrap();
}

fn filters_of(weights: &Weights, layer: usize) -> Tensor {
    weights[&format!("blocks.{layer}.0.fn.0.weight")].clone()
}

#[test]
fn only_the_filters_differ_from_the_default() {
    let choices = FilterChoices::default();
    for (shape, filters) in [
        (mixer(3, 16, 5), "0.fn.0.weight"),
        (convnext(3, 16, 5), "conv_dw.weight"),
    ] {
        let begin = |method| start(method, &shape, None, &choices, 4).unwrap();
        let ((default, _), (own, cost)) = (begin("default"), begin("covariance"));
        check_weights(&shape, &own);
        assert_eq!(cost.transferred, 0);
        for (name, t) in &own {
            let same = values(t) == values(&default[name]);
            assert_eq!(same, !name.ends_with(filters), "{name}");
        }
    }
    let of_width = |width| start("covariance", &mixer(3, width, 5), None, &choices, 4).unwrap();
    let ((own, _), (narrow, _)) = (of_width(16), of_width(4));
    let power = |layer| -> f32 {
        let filters = values(&filters_of(&own, layer));
        filters.iter().map(|v| v * v).sum()
    };
    assert!(power(0) < power(1) && power(1) < power(2)); // more diffuse with depth
    let first = filters_of(&own, 1).narrow(0, 0, 4).unwrap();
    assert_eq!(values(&filters_of(&narrow, 1)), values(&first));
}

#[test]
fn transfer_fits_any_shape_and_copies_fit_one() {
    let (donor, choices) = (mixer(4, 64, 7), FilterChoices::default());
    let (trained, _) = start("covariance", &donor, None, &choices, 1).unwrap();
    let from = Some((&donor, &trained));
    for target in [mixer(2, 200, 7), mixer(6, 8, 5), mixer(1, 8, 9)] {
        for factored in [false, true] {
            let choices = changed(choices, |c| c.factored = factored);
            let (weights, cost) = start("covariance-transfer", &target, from, &choices, 2).unwrap();
            check_weights(&target, &weights);
            assert_eq!(cost.transferred, 4 * (49 + 49 * 50 / 2));
        }
    }
    let same = start("covariance-transfer", &mixer(4, 3000, 7), from, &choices, 2).unwrap();
    let [found, expected] = [&same.0, &trained]
        .map(|weights| Statistics::of(&filters_of(weights, 2)).unwrap().covariance);
    let bound = (trace(&expected).powi(2) + expected.norm_l2().powi(2)) / 3000.0;
    assert!(distance(&found, &expected).powi(2) < 2.0 * bound);

    let (copied, cost) = start("filters", &mixer(4, 32, 7), from, &choices, 2).unwrap();
    let first = filters_of(&trained, 3).narrow(0, 0, 32).unwrap();
    assert_eq!(values(&filters_of(&copied, 3)), values(&first));
    assert_eq!(cost.transferred, 4 * 32 * 49);
    for (target, word) in [
        (mixer(4, 64, 5), "kernel"),
        (mixer(3, 64, 7), "depth"),
        (mixer(4, 65, 7), "width"),
    ] {
        check_refused(start("filters", &target, from, &choices, 2), word);
    }
}

#[test]
fn wrong_requests_say_what_would_do() {
    let good = mixer(2, 8, 5);
    let (weights, _) = start("default", &good, None, &FilterChoices::default(), 0).unwrap();
    let donor = Some((&good, &weights));
    let choices = |start: f64| FilterChoices {
        schedule: Schedule {
            start,
            ..Schedule::default()
        },
        ..FilterChoices::default()
    };
    let cases = [
        ("he", &good, None, 0.1, "covariance-transfer"),
        ("covariance-transfer", &good, None, 0.1, "--from"),
        ("covariance", &good, donor, 0.1, "found 1"),
        ("covariance", &mixer(2, 8, 4), None, 0.1, "odd"),
        ("covariance", &good, None, -0.1, "above 0"),
        ("covariance", &good, None, f64::NAN, "finite"),
    ];
    for (method, shape, donor, variance, word) in cases {
        check_refused(start(method, shape, donor, &choices(variance), 0), word);
    }
}

#[test]
fn a_convnext_has_the_filters_of_a_convmixer() {
    let (shape, other) = (convnext(3, 16, 5), mixer(3, 16, 5));
    let choices = FilterChoices::default();
    let begin = |method, shape, donor| start(method, shape, donor, &choices, 4).unwrap();
    let (own, _) = begin("covariance", &shape, None);
    let (mixed, _) = begin("covariance", &other, None);
    for layer in 0..3 {
        let filters = &own[&format!("blocks.{layer}.conv_dw.weight")];
        assert_eq!(values(filters), values(&filters_of(&mixed, layer)));
    }
    // Each architecture can take the other's filters.
    let (copied, cost) = begin("filters", &shape, Some((&other, &mixed)));
    let copy = values(&copied["blocks.2.conv_dw.weight"]);
    assert_eq!(copy, values(&filters_of(&mixed, 2)));
    assert_eq!(cost.transferred, 3 * 16 * 25);
    let target = mixer(5, 24, 7);
    let (drawn, cost) = begin("covariance-transfer", &target, Some((&shape, &own)));
    check_weights(&target, &drawn);
    assert_eq!(cost.transferred, 3 * (25 + 25 * 26 / 2));
}

#[test]
fn the_mean_of_a_convnexts_mlps_is_shifted_beside_its_filters() {
    let shape = convnext(3, 16, 5);
    let with = |mlp_mean| changed(FilterChoices::default(), |c| c.mlp_mean = mlp_mean);
    let begin = |shift| {
        start("covariance", &shape, None, &with(shift), 4)
            .unwrap()
            .0
    };
    let plain = begin(MlpMean::None);
    for shift in [MlpMean::Eq1 { sigma: 0.5 }, MlpMean::Eq2 { b: -0.5 }] {
        let mut rows = Vec::new();
        for (name, t) in &begin(shift) {
            if !name.ends_with("fc1.weight") {
                assert_eq!(values(t), values(&plain[name]), "{name}");
                continue;
            }
            let change: Vec<Vec<f32>> = (t - &plain[name]).unwrap().to_vec2().unwrap();
            assert_eq!(change.len(), 32);
            for row in &change {
                let mut pairs = row.iter().zip(&change[0]);
                assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-6 && *a != 0.0));
            }
            rows.push(change[0].clone());
        }
        assert_eq!(rows.len(), 3);
        assert!(rows[0] != rows[1] && rows[1] != rows[2]);
        if let MlpMean::Eq2 { .. } = shift {
            let negative =
                |row: &Vec<f32>| row.iter().all(|v| (v - row[0]).abs() < 1e-6 && *v < 0.0);
            assert!(rows.iter().all(negative));
        }
    }
    let (target, choices) = (mixer(2, 8, 5), with(MlpMean::Eq2 { b: 1.0 }));
    let error = start("default", &target, None, &choices, 0);
    check_refused(error, "a ConvMixer has no MLP");
}
