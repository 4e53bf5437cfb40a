//! RandAugment (Cubuk et al. 2019) with timm's operations and magnitudes.

use std::str::FromStr;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};

use super::affine::{rotation, transform};
use super::colour;
use crate::{DataError, RawImage};

/// A sequence of operations, sampled with replacement from timm's fifteen.
///
/// Parsed from timm's notation, as `rand-m9-mstd0.5-inc1`; it may add `n2` (operations) and `p0.5` (their probability).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandAugment {
    /// Number of operations per image.
    pub operations: usize,
    /// Probability that each is applied, 0 to 1.
    pub probability: f64,
    /// Mean strength on a scale of 0 to 10.
    pub magnitude: f64,
    /// Standard deviation of the strength, which is then clamped to 0 to 10.
    pub deviation: f64,
    /// True if every operation grows stronger with the magnitude (timm's `inc1`).
    pub increasing: bool,
}

impl FromStr for RandAugment {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let fail = || {
            DataError::Settings(format!(
                "`{text}` is not a RandAugment policy; expected timm's notation, such as \
                 rand-m9-mstd0.5-inc1"
            ))
        };
        let mut policy = Self {
            operations: 2,
            probability: 0.5,
            magnitude: 10.0,
            deviation: 0.0,
            increasing: false,
        };
        let mut parts = text.split('-');
        if parts.next() != Some("rand") {
            return Err(fail());
        }
        for part in parts {
            let digits = part.find(|c: char| c.is_ascii_digit()).ok_or_else(fail)?;
            let (key, value) = part.split_at(digits);
            let number: f64 = value.parse().map_err(|_| fail())?;
            match key {
                "m" => policy.magnitude = number,
                "mstd" => policy.deviation = number,
                "n" => policy.operations = number as usize,
                "p" => policy.probability = number,
                "inc" => policy.increasing = number != 0.0,
                _ => return Err(fail()),
            }
        }
        policy.check().map_err(DataError::Settings)?;
        Ok(policy)
    }
}

impl RandAugment {
    pub(crate) fn check(&self) -> Result<(), String> {
        if (0.0..=1.0).contains(&self.probability)
            && (0.0..=10.0).contains(&self.magnitude)
            && (0.0..=100.0).contains(&self.deviation)
            && self.operations <= 100
        {
            return Ok(());
        }
        Err(format!(
            "{self:?} is out of range: expected a probability of 0 to 1, a magnitude of 0 to 10, a \
             standard deviation of 0 to 100 and at most 100 operations"
        ))
    }

    pub(crate) fn apply(&self, image: &mut RawImage, fill: [u8; 3], rng: &mut ChaCha8Rng) {
        for _ in 0..self.operations {
            let operation = OPERATIONS[rng.random_range(0..OPERATIONS.len())];
            // Sampled even if not needed, so that no sample depends on an earlier one.
            let applied = rng.random::<f64>() < self.probability;
            let negative = rng.random::<bool>();
            let drawn = Normal::new(self.magnitude, self.deviation).map(|n| n.sample(rng));
            let level = drawn.unwrap_or(self.magnitude).clamp(0.0, 10.0);
            if applied {
                let argument = operation.argument(level, self.increasing, negative);
                operation.apply(image, argument, fill);
            }
        }
    }
}

macro_rules! operations {
    ($($name:ident)+) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) enum Operation {
            $($name),+
        }

        /// timm's list, in its order.
        pub(crate) const OPERATIONS: [Operation; 15] = [$(Operation::$name),+];
    };
}

operations! {
    AutoContrast Equalise Invert Rotate Posterise Solarise SolariseAdd Saturation Contrast Brightness
    Sharpness ShearX ShearY TranslateX TranslateY
}

impl Operation {
    /// timm's argument for a level of 0 to 10.
    pub(crate) fn argument(self, level: f64, increasing: bool, negative: bool) -> f64 {
        use Operation::*;
        let part = level / 10.0;
        let sign = if negative { -1.0 } else { 1.0 };
        match (self, increasing) {
            (AutoContrast | Equalise | Invert, _) => 0.0,
            (Rotate, _) => sign * 30.0 * part, // degrees
            (Posterise, true) => 4.0 - (4.0 * part).floor(), // bits
            (Posterise, false) => (4.0 * part).floor(),
            (Solarise, true) => 256.0 - (256.0 * part).floor().min(256.0), // threshold
            (Solarise, false) => (256.0 * part).floor().min(256.0),
            (SolariseAdd, _) => (110.0 * part).floor().min(128.0),
            (Saturation | Contrast | Brightness | Sharpness, true) => {
                (1.0 + sign * 0.9 * part).max(0.1)
            }
            (Saturation | Contrast | Brightness | Sharpness, false) => 1.8 * part + 0.1,
            (ShearX | ShearY, _) => sign * 0.3 * part,
            (TranslateX | TranslateY, _) => sign * 0.45 * part, // of the side
        }
    }

    pub(crate) fn apply(self, image: &mut RawImage, argument: f64, fill: [u8; 3]) {
        use Operation::*;
        let (w, h) = (image.width, image.height);
        let factor = argument as f32;
        let map = match self {
            AutoContrast => return colour::auto_contrast(image),
            Equalise => return colour::equalise(image),
            Invert => return colour::map(image, |x| 255 - x),
            Posterise => {
                let mask = (0xFF00u32 >> (argument as u32).min(8)) as u8; // the highest bits
                return colour::map(image, |x| x & mask);
            }
            Solarise => {
                let dark = |x: u8| u32::from(x) < argument as u32;
                return colour::map(image, |x| if dark(x) { x } else { 255 - x });
            }
            SolariseAdd => {
                let more = |x: u8| x.saturating_add(argument as u8);
                return colour::map(image, |x| if x < 128 { more(x) } else { x });
            }
            Saturation => return colour::saturation(image, factor),
            Contrast => return colour::contrast(image, factor),
            Brightness => return colour::map(image, |x| colour::blend(0, x, factor)),
            Sharpness => return colour::sharpness(image, factor),
            Rotate => rotation(argument, w, h),
            ShearX => [1.0, argument, 0.0, 0.0, 1.0, 0.0],
            ShearY => [1.0, 0.0, 0.0, argument, 1.0, 0.0],
            TranslateX => [1.0, 0.0, argument * w as f64, 0.0, 1.0, 0.0],
            TranslateY => [1.0, 0.0, 0.0, 0.0, 1.0, argument * h as f64],
        };
        *image = transform(image, &map, fill);
    }
}
