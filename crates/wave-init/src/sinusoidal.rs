//! The sinusoidal position embedding of a square grid of tokens.
//!
//! ```text
//! P = scale * [sin(x w), cos(x w), sin(y w), cos(y w)]        w_i = 10000^(-i / (d/4 - 1)),  i < d/4
//! ```
//!
//! The product of two rows depends only on the offset between the tokens, which gives mimetic attention its
//! locality (Trockman and Kolter 2023; the thesis' section 3.2.4 scales the embedding, not the coordinates).

use candle_core::{Device, Tensor};

use crate::error::{Result, finite};
use wave_models::refuse;

/// Sinusoidal positions of `grid` x `grid` tokens in row-major order, shape (1, grid², width), for a width that is a
/// multiple of 4 and a finite scale. Every row has squared length `scale² width / 2`.
pub fn sinusoidal_positions(grid: usize, width: usize, scale: f64) -> Result<Tensor> {
    if !width.is_multiple_of(4) {
        refuse!(
            "sinusoidal positions need a width that is a multiple of 4, found {width}: use width {}, or learned positions",
            width.div_ceil(4).saturating_mul(4)
        );
    }
    let scale = finite("position scale", scale)?;

    let quarter = width / 4;
    // With a single frequency the exponent would be 0 / 0; the frequency is then 1.
    let steps = (quarter - 1).max(1) as f64;
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / steps);
    let omega: Vec<f64> = (0..quarter).map(frequency).collect();

    let mut values = Vec::with_capacity(grid * grid * width);
    for y in 0..grid {
        for x in 0..grid {
            for coordinate in [x as f64, y as f64] {
                for wave in [f64::sin, f64::cos] {
                    let entry = |w: &f64| (scale * wave(coordinate * w)) as f32;
                    values.extend(omega.iter().map(entry));
                }
            }
        }
    }
    let dims = (1, grid * grid, width);
    Ok(Tensor::from_vec(values, dims, &Device::Cpu)?)
}

#[cfg(test)]
#[path = "sinusoidal_tests.rs"]
mod tests;
