use super::*;
use crate::testing::{check_slopes, double, gradients, values};
use proptest::prelude::*;

fn tensor(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, values.len(), &Device::Cpu).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// DIMAML: "Q non-decreasing, Q(0)=b, Q(1)=b+sum softplus".
    #[test]
    fn quantiles_rise_from_the_start_by_all_slopes(
        start in -3.0..3.0f64,
        slopes in prop::collection::vec(-30.0..30.0f64, 1..40),
        places in prop::collection::vec(0.0..=1.0f64, 2..60),
    ) {
        let q = |x: &[f64]| values(&quantile(&tensor(&[start]), &tensor(&slopes), &tensor(x)).unwrap());
        let mut places = places;
        places.extend([0.0, 1.0]);
        places.sort_by(f64::total_cmp);
        let found = q(&places);
        prop_assert!(found.is_sorted_by(|a, b| a <= &(b + 1e-12 * b.abs().max(1.0))), "{found:?}");
        prop_assert_eq!(found[0], start);
        // Between the ends of a piece it is linear, by its formula, and the last is start and all softplus.
        for x in places {
            let k = slopes.len() as f64;
            let piece = ((k * x) as usize).min(slopes.len() - 1);
            let rise = |v: &f64| v.max(0.0) + (-v.abs()).exp().ln_1p();
            let below: f64 = slopes[..piece].iter().map(rise).sum();
            let line = start + below + k * rise(&slopes[piece]) * (x - piece as f64 / k);
            prop_assert!((q(&[x])[0] - line).abs() < 1e-10 * line.abs().max(1.0));
        }
    }
}

fn start() -> Weights {
    let all = [
        ("a.weight", vec![30, 40], Usual::Uniform(0.2)),
        ("a.norm", vec![7], Usual::Constant(1.0)),
        ("b.weight", vec![50, 20], Usual::Normal(0.7)),
    ];
    let parameters = all.map(|(name, dims, usual)| Parameter {
        name: name.into(),
        dims,
        usual,
    });
    usual(&parameters, 3).unwrap()
}

fn shapes(start: &Weights) -> Vec<(String, Vec<usize>)> {
    let shape = |(name, t): (&String, &Tensor)| (name.clone(), t.dims().to_vec());
    start.iter().map(shape).collect()
}

#[test]
fn the_first_distributions_are_those_of_the_start() {
    let start = start();
    let spread = |t: &Tensor| {
        let v = values(t);
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        let variance = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64;
        let most = v.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        (mean, variance.sqrt(), most)
    };
    for pieces in [None, Some(PIECES)] {
        let parameters = first_parameters(pieces, &start).unwrap();
        let z = noise(shapes(&start), &parameters, 5).unwrap();
        let drawn = weights(&parameters, &z).unwrap();
        assert_eq!(values(&drawn["a.norm"]), [1.0; 7]);
        let (mean, std, most) = spread(&drawn["a.weight"]);
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((std - 0.2 / 3f64.sqrt()).abs() < 0.005, "{std}");
        if pieces.is_some() {
            assert!(most <= 0.2 && most > 0.198, "{most}");
        } else {
            assert!((spread(&drawn["b.weight"]).1 - 0.7).abs() < 0.03);
        }
        for (name, mean, std) in moments(&parameters).unwrap() {
            let found = spread(&drawn[&name]);
            assert!((found.0 - mean).abs() < 0.12, "{name}");
            assert!((found.1 - std).abs() < 0.06, "{name}");
        }
        // A seed determines the numbers.
        for (seed, same) in [(5, true), (6, false)] {
            let again = noise(shapes(&start), &parameters, seed).unwrap();
            let again = weights(&parameters, &again).unwrap();
            let equal = values(&again["b.weight"]) == values(&drawn["b.weight"]);
            assert_eq!(equal, same, "{seed}");
        }
    }
}

/// The gradient of `<a, w>` with respect to every parameter, against central differences.
#[test]
fn weights_are_differentiable_in_their_parameters() {
    let start = start();
    for pieces in [None, Some(4)] {
        let first = double(first_parameters(pieces, &start).unwrap());
        let z = noise(shapes(&start), &first, 1).unwrap();
        let product = |parameters: &Weights| {
            let w = weights(parameters, &z).unwrap();
            let terms = start.iter().map(|(name, a)| {
                let a = a.to_dtype(DType::F64).unwrap();
                (a * &w[name]).unwrap().sum_all().unwrap()
            });
            terms.reduce(|x, y| (x + y).unwrap()).unwrap()
        };
        let found = gradients(&first, product);
        assert!(found.keys().eq(first.keys()));
        let at = |parameters: &Weights| product(parameters).to_scalar::<f64>().unwrap();
        check_slopes(&first, &found, |n| 0..n, [1e-5, 1e-6, 1.0], at);
    }
}
