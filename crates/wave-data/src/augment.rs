//! Augmentation of training images.

pub(crate) mod affine;
pub(crate) mod colour;
pub(crate) mod crop;
pub(crate) mod erase;
pub(crate) mod mix;
pub(crate) mod rand_augment;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{DataError, Mixing, RandAugment, ResizedCrop};

/// Augmentation settings: random transformations that differ between views of an image.
///
/// Applied in this order: `resized_crop`; `rand_augment`; the border of `crop_padding`; `flip`;
/// normalisation; `erasing`; and, on the whole batch, `mixing`.
#[derive(Clone, Debug, PartialEq)]
pub struct Augment {
    /// Pads the image with a black border of this many pixels, then crops it at random to its original size.
    pub crop_padding: usize,
    /// If true, half of the views are mirrored left to right.
    pub flip: bool,
    /// A random crop of the image instead of the central square.
    pub resized_crop: Option<ResizedCrop>,
    /// Random operations on colour and geometry.
    pub rand_augment: Option<RandAugment>,
    /// Probability that a random rectangle is erased, 0 to 1.
    pub erasing: Option<f64>,
    /// Mixup and CutMix; the batches then carry a [`Mix`](crate::Mix).
    pub mixing: Option<Mixing>,
    /// Repeated augmentation (Hoffer et al. 2019): an epoch shows each image this many times in a row, and
    /// proportionally fewer images. At least 1, which turns it off.
    pub repeats: usize,
}

impl Augment {
    /// No augmentation.
    pub const NONE: Augment = Augment {
        crop_padding: 0,
        flip: false,
        resized_crop: None,
        rand_augment: None,
        erasing: None,
        mixing: None,
        repeats: 1,
    };

    /// Rejects settings out of range for inputs of `side` pixels.
    pub(crate) fn check(&self, side: usize) -> Result<(), DataError> {
        if self.crop_padding > side {
            return Err(DataError::Settings(format!(
                "crop_padding = {} is more than the image size of {side} pixels: use at most \
                 {side}",
                self.crop_padding
            )));
        }
        if !(1..=1000).contains(&self.repeats) {
            return Err(DataError::Settings(format!(
                "{} repeats of each image: expected 1 to 1000",
                self.repeats
            )));
        }
        if let Some(p) = self.erasing.filter(|p| !(0.0..=1.0).contains(p)) {
            return Err(DataError::Settings(format!(
                "erasing = {p} is out of range: expected a probability of 0 to 1"
            )));
        }
        let checks = [
            self.resized_crop.as_ref().map(ResizedCrop::check),
            self.rand_augment.as_ref().map(RandAugment::check),
            self.mixing.as_ref().map(Mixing::check),
        ];
        let outcome: Result<(), String> = checks.into_iter().flatten().collect();
        outcome.map_err(DataError::Settings)
    }

    /// The augmentation of views that are shown for the first time, so many of each image (`None`: endless ones). A
    /// single one is the whole image, as it is but for its placement.
    pub fn at_first(&self, views: Option<u32>) -> Augment {
        match views {
            Some(1) => Augment {
                resized_crop: None,
                rand_augment: None,
                erasing: None,
                ..self.clone()
            },
            _ => self.clone(),
        }
    }

    /// The random generator for everything that [`place`](Self::place) does not sample, of the same arguments.
    pub(crate) fn generator(seed: u64, view: u32, showing: Showing, round: u32) -> ChaCha8Rng {
        let (index, repeat) = showing;
        let mut rng = ChaCha8Rng::seed_from_u64(hash(seed));
        rng.set_stream(u64::from(view) << 32 | u64::from(index));
        // Each repeat of a round gets a block of 2^20 words; no image needs that many.
        rng.set_word_pos(u128::from(round) << 32 | u128::from(repeat) << 20);
        rng
    }

    /// The placement of an image in a view that was shown `round` times before: a function of the arguments alone.
    pub(crate) fn place(&self, seed: u64, view: u32, showing: Showing, round: u32) -> Placement {
        let (index, repeat) = showing;
        let mut state = hash(seed ^ hash(u64::from(view) << 32 | u64::from(index)));
        if repeat > 0 {
            state = hash(state ^ u64::from(repeat));
        }
        let mut right = self.shift(&mut state);
        let mut down = self.shift(&mut state);
        let mut flip = self.flip && draw(&mut state) >> 63 == 1;
        if round > 0 {
            state = hash(state ^ u64::from(round));
            (right, down) = (self.shift(&mut state), self.shift(&mut state));
            flip ^= self.flip && round % 2 == 1;
        }
        Placement { right, down, flip }
    }

    /// Uniform from -crop_padding to crop_padding.
    fn shift(&self, state: &mut u64) -> isize {
        let p = self.crop_padding as u128;
        // The high word of a product maps 64 random bits to a range without a division.
        let drawn = (u128::from(draw(state)) * (2 * p + 1)) >> 64;
        drawn as isize - p as isize
    }
}

/// An image's index in its source, and the number of its repeat.
pub(crate) type Showing = (u32, u32);

/// The position of a square of pixels on a black canvas of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Placement {
    /// The canvas shows the square from this column on; columns outside it are black.
    pub(crate) right: isize,
    /// The canvas shows the square from this row on.
    pub(crate) down: isize,
    /// True if the canvas is then mirrored left to right.
    pub(crate) flip: bool,
}

/// SplitMix64 (Steele, Lea and Flood 2014): the next of a stream of 64-bit numbers. With three numbers per
/// image, a larger generator would not be worth its set-up.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash(*state)
}

/// SplitMix64's finaliser, a bijection that spreads every bit over all 64.
pub(crate) fn hash(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "augment/pillow_tests.rs"]
mod pillow_tests;

#[cfg(test)]
#[path = "augment_tests.rs"]
mod tests;
