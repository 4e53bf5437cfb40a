use super::learned::{self, DistributionFamily, Noise};
use super::second_order::tests::second_order;
use super::small::{AutoencoderShape, Examples, FixupShape, LstmShape, Small};
use super::unrolled::{self, Gradient, Optimiser, Unrolled};
use candle_core::{DType, Device, Tensor, Var};
use wave_models::Weights;

fn networks() -> [(Small, Examples, Optimiser); 3] {
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
                momentum: 0.9,
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
                momentum: 0.9,
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

/// The whole chain, from the parameters of distributions through the training of a network:
/// meta-gradients against central differences in f64 (< 1e-4), for m = 1 and m = 5.
#[test]
fn distributions_follow_the_slope_of_the_area_under_the_curve() {
    for (network, examples, optimiser) in networks() {
        for family in [
            DistributionFamily::Normal,
            DistributionFamily::Plif { pieces: 3 },
        ] {
            let start = learned::usual(&network.parameters(), 0).unwrap();
            let first: Weights = learned::first_parameters(family, &start)
                .unwrap()
                .into_iter()
                .map(|(name, t)| (name, t.to_dtype(DType::F64).unwrap()))
                .collect();
            let shapes: Vec<(String, Vec<usize>)> = network
                .parameters()
                .into_iter()
                .map(|p| (p.name, p.dims))
                .collect();
            let noise = Noise::new(family, &shapes, &first, 1).unwrap();
            let loss = |of: unrolled::Phase, w: &Weights| {
                // Validation sees the examples upside down, so that they differ but are of the same
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
            let run = |checkpoint| Unrolled {
                optimiser,
                learning_rate: 0.05,
                steps: 7,
                validate: vec![2, 5, 7],
                checkpoint,
                gradient: Gradient::Full,
            };
            let variables: Vec<(String, Var)> = first
                .iter()
                .map(|(name, t)| (name.clone(), Var::from_tensor(t).unwrap()))
                .collect();
            let tracked: Weights = variables
                .iter()
                .map(|(name, v)| (name.clone(), v.as_tensor().clone()))
                .collect();
            let drawn = learned::weights(family, &tracked, &noise).unwrap();
            let gradient = |checkpoint| {
                let found = second_order(|| run(checkpoint).meta_gradient(&drawn, loss));
                found.unwrap().unwrap().of
            };
            let a = gradient(5);
            for (name, one) in gradient(1) {
                let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
                assert_eq!(values(&one), values(&a[&name]), "{name}");
            }
            let terms = drawn
                .iter()
                .map(|(name, t)| (t * &a[name]).unwrap().sum_all().unwrap());
            let product = terms.reduce(|x, y| (x + y).unwrap()).unwrap();
            let store = product.backward().unwrap();
            let mut moved = 0;
            for (name, v) in variables
                .iter()
                .filter(|(name, _)| !name.starts_with("constant."))
            {
                let found = store.get(v.as_tensor()).unwrap().to_vec1::<f64>().unwrap();
                let i = found.len() / 2;
                let area = |by: f64| {
                    let mut values: Vec<f64> = v.as_tensor().to_vec1().unwrap();
                    values[i] += by;
                    let mut parameters = first.clone();
                    let n = values.len();
                    parameters.insert(
                        name.clone(),
                        Tensor::from_vec(values, n, &Device::Cpu).unwrap(),
                    );
                    let start = learned::weights(family, &parameters, &noise).unwrap();
                    run(5).curve(&start, None, loss).unwrap().area()
                };
                let expected = (area(1e-6) - area(-1e-6)) / 2e-6;
                let error = (found[i] - expected).abs() / expected.abs().max(1e-2);
                assert!(error < 1e-4, "{family:?} {name}: {}, {expected}", found[i]);
                moved += usize::from(expected.abs() > 1e-6);
            }
            assert!(moved >= 2, "{family:?}: {moved}");
        }
    }
}
