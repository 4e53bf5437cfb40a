//! Random erasing (Zhong et al. 2017), as timm does it on normalised input, with DeiT's settings.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Minimum and maximum fraction of the area that is erased.
const AREA: (f64, f64) = (0.02, 1.0 / 3.0);
/// Minimum ratio of height to width; the maximum is its inverse.
const ASPECT: f64 = 0.3;

/// Fills a random rectangle of an input (channels, side, side) with normally distributed noise.
pub(crate) fn apply(probability: f64, input: &mut [f32], side: usize, rng: &mut ChaCha8Rng) {
    if rng.random::<f64>() >= probability {
        return;
    }
    let Some((top, left, h, w)) = rectangle(side, rng) else {
        return;
    };
    for plane in input.chunks_exact_mut(side * side) {
        // Not used, but without it recorded runs would not repeat.
        let _: f32 = rng.sample(StandardNormal);
        for y in top..top + h {
            for x in &mut plane[y * side + left..][..w] {
                *x = rng.sample(StandardNormal);
            }
        }
    }
}

/// (top, left, height, width); `None` if none of ten samples fits.
fn rectangle(side: usize, rng: &mut ChaCha8Rng) -> Option<(usize, usize, usize, usize)> {
    let limit = ASPECT.ln().abs();
    (0..10).find_map(|_| {
        let area = rng.random_range(AREA.0..=AREA.1) * (side * side) as f64;
        let aspect = rng.random_range(-limit..=limit).exp();
        let h = (area * aspect).sqrt().round_ties_even() as usize;
        let w = (area / aspect).sqrt().round_ties_even() as usize;
        (h < side && w < side).then(|| {
            let top = rng.random_range(0..=side - h);
            (top, rng.random_range(0..=side - w), h, w)
        })
    })
}

#[cfg(test)]
#[path = "erase_tests.rs"]
mod tests;
