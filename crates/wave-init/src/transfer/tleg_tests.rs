use super::*;
use crate::Choices;
use crate::testing::{assert_close, assert_outside, assert_same, donor, shape, try_start, values};
use proptest::prelude::*;

fn tleg(target: usize, donor: &Donor, line: TlegLine) -> Weights {
    let choices = Choices {
        tleg: line,
        ..Choices::default()
    };
    let target = shape(target, donor.shape().width);
    try_start("tleg", &target, std::slice::from_ref(donor), &choices)
        .unwrap()
        .weights
}

/// The named tensor of every layer.
fn layers(weights: &Weights, tensor: &str, depth: usize) -> Vec<Vec<f32>> {
    let layer = |l| values(&weights[&format!("blocks.{l}.{tensor}")]);
    (0..depth).map(layer).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn layers_lie_on_a_line(depth in 3usize..9, of in 1usize..5, least_squares: bool) {
        let line = if least_squares { TlegLine::LeastSquares } else { TlegLine::EndPoints };
        let donor = donor(shape(of, 16), 1);
        let start = tleg(depth, &donor, line);
        for tensor in BLOCK_TENSORS {
            let theta = layers(&start, tensor, depth);
            for l in 1..depth - 1 {
                let mean: Vec<f32> = theta[l - 1]
                    .iter()
                    .zip(&theta[l + 1])
                    .map(|(a, b)| (a + b) / 2.0)
                    .collect();
                assert_close(&theta[l], &mean, 1e-6);
            }
        }
        assert_outside(&start, donor.weights());
    }
}

#[test]
fn theta_is_b_plus_l_over_l_times_a() {
    let small = donor(shape(2, 16), 1);
    let layer = |l: usize| -> Weights {
        let of = |tensor: &&str| small.weights()[&format!("blocks.{l}.{tensor}")].clone();
        BLOCK_TENSORS
            .iter()
            .map(|t| (t.to_string(), of(t)))
            .collect()
    };
    let (b, a) = (layer(0), layer(1));
    let blocks = line(&b, &a, 4).unwrap();
    assert_same("B", &blocks["blocks.0.mlp.fc1.bias"], &b["mlp.fc1.bias"]);
    for (l, part) in [(1, 0.25), (2, 0.5), (3, 0.75)] {
        for tensor in BLOCK_TENSORS {
            let expected = (&b[tensor] + (&a[tensor] * part).unwrap()).unwrap();
            let found = &blocks[&format!("blocks.{l}.{tensor}")];
            assert_close(&values(found), &values(&expected), 1e-7);
        }
    }
}

#[test]
fn a_linear_donor_is_given_back() {
    let two = donor(shape(2, 16), 1);
    let mut weights = two.weights().clone();
    let (b, a) = fit(&two, TlegLine::EndPoints).unwrap();
    weights.extend(line(&b, &a, 5).unwrap());
    let linear = Donor::new(shape(5, 16), weights).unwrap();
    for through in [TlegLine::EndPoints, TlegLine::LeastSquares] {
        let start = tleg(5, &linear, through);
        for (name, tensor) in &start {
            assert_close(&values(tensor), &values(&linear.weights()[name]), 1e-5);
        }
    }
}

#[test]
fn end_points_are_the_donors_and_least_squares_are_nearer_to_all() {
    let donor = donor(shape(4, 16), 1);
    let (ends, squares) = (
        tleg(4, &donor, TlegLine::EndPoints),
        tleg(4, &donor, TlegLine::LeastSquares),
    );
    let distance = |weights: &Weights| -> f32 {
        let of = |l: usize| {
            let name = format!("blocks.{l}.attn.qkv.weight");
            let difference = (&weights[&name] - &donor.weights()[&name]).unwrap();
            values(&difference).iter().map(|v| v * v).sum::<f32>()
        };
        (0..4).map(of).sum()
    };
    for l in [0, 3] {
        let name = format!("blocks.{l}.attn.qkv.weight");
        assert_close(
            &values(&ends[&name]),
            &values(&donor.weights()[&name]),
            1e-6,
        );
    }
    assert!(distance(&squares) < distance(&ends));
}

#[test]
fn a_single_layer_is_repeated() {
    let donor = donor(shape(1, 16), 1);
    for through in [TlegLine::EndPoints, TlegLine::LeastSquares] {
        let start = tleg(3, &donor, through);
        for l in 0..3 {
            crate::testing::assert_block(&start, l, donor.weights(), 0);
        }
    }
}
