use super::learned;
use super::second_order::tests::second_order;
use super::small::{AutoencoderShape, Examples, FixupShape, LstmShape, Small};
use super::unrolled::{self, Gradient, Optimiser, Unrolled};
use crate::testing::{check_slopes, double, gradients};
use candle_core::{Device, Tensor};
use wave_models::Weights;

/// Each small network with examples, and an optimiser.
pub(super) fn networks() -> [(Small, Examples, Optimiser); 3] {
    let examples = |input: Tensor, targets: Vec<u32>| Examples {
        input,
        targets,
        positions: vec![1, 2],
    };
    let image = |n: usize| {
        let values: Vec<f64> = (0..4 * n * n).map(|i| (i as f64 * 0.7).sin()).collect();
        Tensor::from_vec(values, (4, 1, n, n), &Device::Cpu).unwrap()
    };
    let tokens = Tensor::new(&[[0u32, 3, 2], [1, 1, 0]], &Device::Cpu).unwrap();
    [
        (
            Small::Autoencoder(AutoencoderShape {
                image_size: 13, // 6 and 2 inside: batch norms need more than a pixel of each image
                channels: 1,
                widths: vec![2, 2],
                latent: 2,
            }),
            examples(image(13), vec![]),
            Optimiser::Sgd {
                nesterov: false,
                weight_decay: 0.0,
            },
        ),
        (
            Small::Fixup(FixupShape {
                image_size: 5,
                channels: 1,
                width: 3,
                blocks: 2,
                stages: 2,
                classes: 3,
            }),
            examples(image(5), vec![0, 1, 2, 1]),
            Optimiser::Sgd {
                nesterov: true,
                weight_decay: 5e-4,
            },
        ),
        (
            Small::Lstm(LstmShape {
                vocabulary: 4,
                embedding: 2,
                width: 3,
                layers: 2,
            }),
            examples(tokens, vec![1, 0, 3, 2]),
            Optimiser::ADAM,
        ),
    ]
}

/// End to end, from the parameters of distributions through the training of a network:
/// meta-gradients against central differences in f64 (< 1e-4).
#[test]
fn distributions_follow_the_slope_of_the_area_under_the_curve() {
    for (network, examples, optimiser) in networks() {
        for pieces in [None, Some(3)] {
            let start = learned::usual(&network.parameters(), 0).unwrap();
            let first = double(learned::first_parameters(pieces, &start).unwrap());
            let noise = learned::noise(network.shapes(), &first, 1).unwrap();
            let loss = |of: unrolled::Phase, w: &Weights| {
                // Validation uses the examples upside down, so that they differ but are of the same
                // kind.
                let mut examples = examples.clone();
                if matches!(of, unrolled::Phase::Validation(_)) {
                    examples.targets.reverse();
                    if examples.input.rank() == 4 {
                        examples.input = examples.input.flip(&[2])?;
                    }
                }
                network.loss(w, &examples)
            };
            let run = Unrolled {
                optimiser,
                learning_rate: 0.05,
                steps: 7,
                validate: vec![2, 5, 7],
                checkpoint: 5,
                gradient: Gradient::Full,
            };
            let draw = |parameters: &Weights| learned::weights(parameters, &noise).unwrap();
            let drawn = draw(&first);
            let a = second_order(|| run.meta_gradient(&drawn, loss));
            let a = a.unwrap().unwrap().of;
            let mut found = gradients(&first, |parameters| {
                let drawn = draw(parameters);
                let terms = drawn.iter().map(|(name, t)| (t * &a[name]).unwrap());
                let terms = terms.map(|t| t.sum_all().unwrap());
                terms.reduce(|x, y| (x + y).unwrap()).unwrap()
            });
            found.retain(|name, _| !name.starts_with("constant."));
            let middle = |n: usize| n / 2..n / 2 + 1;
            let slopes = check_slopes(&first, &found, middle, [1e-6, 1e-4, 1e-2], |parameters| {
                let curve = run.curve(&draw(parameters), None, loss);
                unrolled::area(&curve.unwrap().losses)
            });
            let moved = slopes.iter().filter(|slope| slope.abs() > 1e-6).count();
            assert!(moved >= 2, "{pieces:?}: {moved}");
        }
    }
}
