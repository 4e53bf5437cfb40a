//! Random erasing (Zhong et al. 2017), as timm does it on normalised input.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Erases a random rectangle of some inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erasing {
    /// Probability that an input is changed, 0 to 1.
    pub probability: f64,
    /// Minimum and maximum fraction of the area that is erased, within 0 to 1.
    pub area: (f64, f64),
    /// Minimum ratio of height to width; the maximum is its inverse. Above 0, at most 1.
    pub aspect: f64,
    /// Fill of the rectangle.
    pub fill: EraseFill,
}

/// Fill of an erased rectangle, in units of the normalised input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseFill {
    /// 0, the mean colour (timm's `const`).
    Mean,
    /// One normally distributed colour (timm's `rand`).
    Colour,
    /// Normally distributed noise (timm's `pixel`).
    Noise,
}

impl Default for Erasing {
    /// DeiT's defaults: a quarter of the inputs, noise over 2 % to a third of the area.
    fn default() -> Self {
        Self {
            probability: 0.25,
            area: (0.02, 1.0 / 3.0),
            aspect: 0.3,
            fill: EraseFill::Noise,
        }
    }
}

impl Erasing {
    pub(crate) fn check(&self) -> Result<(), String> {
        let (low, high) = self.area;
        if (0.0..=1.0).contains(&self.probability)
            && 0.0 < low
            && low <= high
            && high <= 1.0
            && 0.01 <= self.aspect
            && self.aspect <= 1.0
        {
            return Ok(());
        }
        Err(format!(
            "{self:?} is out of range: expected a probability of 0 to 1, areas above 0 and up to \
             1, the smaller first, and an aspect ratio of 0.01 to 1"
        ))
    }

    /// Applies random erasing to an input (channels, side, side).
    pub(crate) fn apply(&self, input: &mut [f32], side: usize, rng: &mut ChaCha8Rng) {
        if rng.random::<f64>() >= self.probability {
            return;
        }
        let Some((top, left, h, w)) = self.rectangle(side, rng) else {
            return;
        };
        for plane in input.chunks_exact_mut(side * side) {
            let colour: f32 = rng.sample(StandardNormal);
            for y in top..top + h {
                for x in &mut plane[y * side + left..][..w] {
                    *x = match self.fill {
                        EraseFill::Mean => 0.0,
                        EraseFill::Colour => colour,
                        EraseFill::Noise => rng.sample(StandardNormal),
                    };
                }
            }
        }
    }

    /// (top, left, height, width); `None` if none of ten samples fits.
    fn rectangle(&self, side: usize, rng: &mut ChaCha8Rng) -> Option<(usize, usize, usize, usize)> {
        let limit = self.aspect.ln().abs();
        (0..10).find_map(|_| {
            let area = rng.random_range(self.area.0..=self.area.1) * (side * side) as f64;
            let aspect = rng.random_range(-limit..=limit).exp();
            let h = (area * aspect).sqrt().round_ties_even() as usize;
            let w = (area / aspect).sqrt().round_ties_even() as usize;
            (h < side && w < side).then(|| {
                let top = rng.random_range(0..=side - h);
                (top, rng.random_range(0..=side - w), h, w)
            })
        })
    }
}

#[cfg(test)]
#[path = "erase_tests.rs"]
mod tests;
