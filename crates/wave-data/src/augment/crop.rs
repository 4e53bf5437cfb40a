//! The random resized crop of Szegedy et al. 2014, sampled as in torchvision's `RandomResizedCrop`.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A crop of random area and shape, resized to the input's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResizedCrop {
    /// Minimum and maximum fraction of the image's area, above 0, at most 1.
    pub scale: (f64, f64),
    /// Minimum and maximum ratio of width to height, above 0.
    pub ratio: (f64, f64),
}

impl Default for ResizedCrop {
    /// 8 % to all of the area, 3:4 to 4:3.
    fn default() -> Self {
        Self {
            scale: (0.08, 1.0),
            ratio: (3.0 / 4.0, 4.0 / 3.0),
        }
    }
}

/// A part of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rectangle {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl ResizedCrop {
    pub(crate) fn check(&self) -> Result<(), String> {
        let ordered =
            |(low, high): (f64, f64), limit: f64| 0.0 < low && low <= high && high <= limit;
        if ordered(self.scale, 1.0) && ordered(self.ratio, 100.0) {
            return Ok(());
        }
        Err(format!(
            "{self:?} is out of range: expected scales above 0 and up to 1, and ratios above 0 and \
             up to 100, the smaller first"
        ))
    }

    /// Tries ten random crops; if none fits into the image, the largest central crop of an allowed shape.
    pub(crate) fn draw(&self, width: usize, height: usize, rng: &mut ChaCha8Rng) -> Rectangle {
        let area = (width * height) as f64;
        let (low, high) = self.ratio;
        for _ in 0..10 {
            let target = area * rng.random_range(self.scale.0..=self.scale.1);
            let ratio = rng.random_range(low.ln()..=high.ln()).exp();
            let w = (target * ratio).sqrt().round_ties_even() as usize;
            let h = (target / ratio).sqrt().round_ties_even() as usize;
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                return Rectangle {
                    top: rng.random_range(0..=height - h),
                    left: rng.random_range(0..=width - w),
                    width: w,
                    height: h,
                };
            }
        }
        let ratio = width as f64 / height as f64;
        let (mut w, mut h) = (width, height);
        if ratio < low {
            h = ((width as f64 / low).round_ties_even() as usize).clamp(1, height);
        } else if ratio > high {
            w = ((height as f64 * high).round_ties_even() as usize).clamp(1, width);
        }
        Rectangle {
            left: (width - w) / 2,
            top: (height - h) / 2,
            width: w,
            height: h,
        }
    }
}

impl Rectangle {
    /// Largest factor by which the image may be downscaled on decoding and still fill `side` pixels: 1, 2, 4 or 8.
    pub(crate) fn reduction(&self, side: usize) -> usize {
        let spare = self.width.min(self.height) / side.max(1);
        [8, 4, 2].into_iter().find(|&f| f <= spare).unwrap_or(1)
    }
}

#[cfg(test)]
#[path = "crop_tests.rs"]
mod tests;
