//! Seeded random tensors with common distributions: `f32`, on the CPU.
//!
//! candle's own CPU generator cannot be seeded, so every random number comes from the caller's ChaCha
//! generator.

use candle_core::{Device, Result, Shape, Tensor, bail};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// The bound of [`truncated_normal`]: the default of timm's `trunc_normal_`, which is absolute and not in
/// units of the standard deviation.
pub const TRUNCATION: f64 = 2.0;

/// A generator for one of the 2^64 independent streams of a seed.
///
/// With a separate stream for each tensor, the values do not depend on the order, or the thread, in which
/// tensors are filled.
pub fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// The generator of one of the first 2^32 streams of a layer; streams below 2^32 belong to no layer.
pub fn of_layer(seed: u64, layer: usize, stream: u64) -> ChaCha8Rng {
    generator(seed, ((layer as u64 + 1) << 32) + stream)
}

/// Normal numbers with mean 0 and standard deviation `std`.
///
/// # Errors
/// If `std` is negative or not finite.
pub fn normal(shape: impl Into<Shape>, std: f64, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    check_spread("standard deviation", std)?;
    fill(shape, || std * standard_normal(rng))
}

/// Normal numbers with mean 0 and standard deviation `std` before truncation to ±[`TRUNCATION`].
///
/// As with timm's `trunc_normal_`, the bounds are absolute: at the usual `std` of 0.02 they are 100 standard
/// deviations away and have no effect.
///
/// # Errors
/// If `std` is negative or not finite.
pub fn truncated_normal(shape: impl Into<Shape>, std: f64, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    check_spread("standard deviation", std)?;
    fill(shape, || one_truncated_normal(std, rng))
}

/// Uniform numbers between `-bound` and `bound`.
///
/// # Errors
/// If `bound` is negative or not finite.
pub fn uniform(shape: impl Into<Shape>, bound: f64, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    check_spread("bound", bound)?;
    fill(shape, || bound * (2.0 * rng.random::<f64>() - 1.0))
}

/// Uniform numbers between ±sqrt(6 / (in + out)), for a matrix of shape (out, in): Glorot and Bengio
/// 2010, equation 16.
///
/// # Errors
/// If both sizes are zero.
pub fn xavier_uniform((out, inp): (usize, usize), rng: &mut ChaCha8Rng) -> Result<Tensor> {
    uniform((out, inp), (6.0 / (out as f64 + inp as f64)).sqrt(), rng)
}

/// A standard normal number.
pub fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    rng.sample(StandardNormal)
}

/// Rejection sampling: from the normal distribution if it mostly falls inside the bounds, otherwise from the
/// uniform one between them, so that at least 60% of samples are accepted at any `std`.
fn one_truncated_normal(std: f64, rng: &mut ChaCha8Rng) -> f64 {
    loop {
        if std <= TRUNCATION {
            let x = std * standard_normal(rng);
            if x.abs() <= TRUNCATION {
                return x;
            }
        } else {
            let x = TRUNCATION * (2.0 * rng.random::<f64>() - 1.0);
            if rng.random::<f64>() < (-0.5 * (x / std).powi(2)).exp() {
                return x;
            }
        }
    }
}

fn check_spread(name: &str, value: f64) -> Result<()> {
    if !value.is_finite() || value < 0.0 {
        bail!("{name} is {value}: use a finite number that is 0 or greater");
    }
    Ok(())
}

fn fill(shape: impl Into<Shape>, mut draw: impl FnMut() -> f64) -> Result<Tensor> {
    let shape = shape.into();
    let values: Vec<f32> = (0..shape.elem_count()).map(|_| draw() as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::values;
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
    fn xavier_uniform_stays_inside_its_bound_and_reaches_it() {
        let x = xavier_uniform((96, 54), &mut generator(2, 0)).unwrap(); // bound sqrt(6/150) = 0.2
        let largest = values(&x).iter().fold(0f32, |a, x| a.max(x.abs()));
        assert_eq!(x.dims(), [96, 54]);
        assert!((0.199..=0.2).contains(&largest), "{largest}");
    }

    #[test]
    fn spreads_that_make_no_sense_are_refused() {
        for std in [-1.0, f64::NAN, f64::INFINITY] {
            let message = truncated_normal(3, std, &mut generator(0, 0))
                .unwrap_err()
                .to_string();
            assert!(message.contains("0 or greater"), "{message}");
            assert!(normal(3, std, &mut generator(0, 0)).is_err());
            assert!(uniform(3, std, &mut generator(0, 0)).is_err());
        }
        assert_eq!(
            values(&normal(3, 0.0, &mut generator(0, 0)).unwrap()),
            [0.0; 3]
        );
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
}
