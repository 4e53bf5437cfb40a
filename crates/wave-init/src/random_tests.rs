use super::*;
use crate::testing::{check_refused, values};
use proptest::prelude::*;

fn mean_and_std(tensor: &Tensor) -> (f64, f64) {
    let x: Vec<f64> = values(tensor).into_iter().map(f64::from).collect();
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    (mean, variance.sqrt())
}

#[test]
fn normal_has_the_standard_deviation_asked_for() {
    let (mean, std) = mean_and_std(&normal((200, 200), 0.3, &mut generator(0, 0)).unwrap());
    assert!(mean.abs() < 0.005, "{mean}");
    assert!((std - 0.3).abs() < 0.005, "{std}");
}

#[test]
fn truncated_normal_cuts_at_two_whatever_the_standard_deviation() {
    // >>> for s in (.02, 1, 2, 5):
    // ...     a = 2 / s; mass = erf(a / sqrt(2))
    // ...     print(s * sqrt(1 - 2 * a * exp(-a * a / 2) / sqrt(2 * pi) / mass))
    for (std, expected) in [(0.02, 0.02), (1.0, 0.8796), (2.0, 1.0792), (5.0, 1.1424)] {
        let x = truncated_normal(40_000, std, &mut generator(1, 0)).unwrap();
        let (mean, found) = mean_and_std(&x);
        assert!((found / expected - 1.0).abs() < 0.02, "{std}: {found}");
        assert!(mean.abs() < 0.02 * expected.max(0.1), "{std}: {mean}");
        assert!(values(&x).iter().all(|x| x.abs() <= 2.0));
    }
}

#[test]
fn spreads_that_make_no_sense_are_refused() {
    for std in [-1.0, f64::NAN, f64::INFINITY] {
        let rng = &mut generator(0, 0);
        check_refused(truncated_normal(3, std, rng), "0 or greater");
        check_refused(normal(3, std, rng), "0 or greater");
        check_refused(uniform(3, std, rng), "0 or greater");
    }
    let zeros = normal(3, 0.0, &mut generator(0, 0)).unwrap();
    assert_eq!(values(&zeros), [0.0; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_seed_and_a_stream_name_the_numbers(seed: u64, stream: u64, other: u64) {
        prop_assume!(stream != other);
        let draw = |stream| values(&normal(8, 1.0, &mut generator(seed, stream)).unwrap());
        prop_assert_eq!(draw(stream), draw(stream));
        prop_assert_ne!(draw(stream), draw(other));
    }
}
