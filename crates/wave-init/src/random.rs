//! Seeded random tensors with common distributions: `f32`, on the CPU.
//!
//! candle's own CPU generator cannot be seeded, so every random number comes from the caller's ChaCha generator.

use candle_core::{Device, Result, Shape, Tensor, bail};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

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

/// Normal numbers with mean 0 and standard deviation `std`, which must be finite and at least 0.
pub fn normal(shape: impl Into<Shape>, std: f64, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    check_spread("standard deviation", std)?;
    fill(shape, || std * standard_normal(rng))
}

/// Normal numbers as by [`normal`], truncated to ±2.
///
/// As with timm's `trunc_normal_`, the bounds are absolute: at the usual `std` of 0.02 they are 100 standard
/// deviations away and have no effect. At a much larger `std` than 2, few samples are accepted.
pub fn truncated_normal(shape: impl Into<Shape>, std: f64, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    check_spread("standard deviation", std)?;
    fill(shape, || {
        loop {
            let x = std * standard_normal(rng);
            if x.abs() <= 2.0 {
                return x;
            }
        }
    })
}

/// Uniform numbers between `-bound` and `bound`, which must be finite and at least 0.
pub fn uniform(shape: impl Into<Shape>, bound: f64, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    check_spread("bound", bound)?;
    fill(shape, || bound * (2.0 * rng.random::<f64>() - 1.0))
}

/// A standard normal number.
pub fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    rng.sample(StandardNormal)
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
#[path = "random_tests.rs"]
mod tests;
