//! Random variation of training images.

/// What varies from one view of an image to the next. The default varies nothing.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Augment {
    /// The image gets a black border of so many pixels, then a random crop of the original size.
    pub crop_padding: usize,
    /// Whether half of the views are mirrored left to right.
    pub flip: bool,
}

/// Where a square of pixels comes to lie on a black canvas of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Placement {
    /// The canvas shows the square from this column on; columns outside it are black.
    pub(crate) right: isize,
    /// The canvas shows the square from this row on.
    pub(crate) down: isize,
    /// Whether the canvas is then mirrored left to right.
    pub(crate) flip: bool,
}

impl Augment {
    /// The placement of image `index` in view `view`: a function of these and the seed alone.
    pub(crate) fn place(&self, seed: u64, view: u32, index: u32) -> Placement {
        let mut state = mix(seed ^ mix(u64::from(view) << 32 | u64::from(index)));
        let right = self.shift(&mut state);
        let down = self.shift(&mut state);
        let flip = self.flip && draw(&mut state) >> 63 == 1;
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

/// SplitMix64 (Steele, Lea and Flood 2014): the next of a stream of 64-bit numbers. Three numbers an
/// image are too few to pay for the set-up of a larger generator.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mix(*state)
}

/// SplitMix64's finaliser, a bijection that spreads every bit over all 64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_its_published_numbers() {
        // The first outputs for the seed 1234567, as Rosetta Code lists them.
        let mut state = 1234567;
        let drawn = [(); 3].map(|()| draw(&mut state));
        let expected = [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn every_placement_is_about_equally_frequent() {
        let augment = Augment {
            crop_padding: 2,
            flip: true,
        };
        let mut counts = std::collections::BTreeMap::new();
        for index in 0..1000 {
            for view in 0..10 {
                let at = augment.place(7, view, index);
                *counts.entry((at.right, at.down, at.flip)).or_insert(0) += 1;
            }
        }
        // 10,000 draws of 5 x 5 x 2 placements: 200 each, with a standard deviation of 14.
        assert_eq!(counts.len(), 50);
        assert!(
            counts.values().all(|n| (140..260).contains(n)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_default_leaves_images_alone() {
        let still = Augment::default();
        assert!((0..100).all(|i| still.place(3, i, i) == Placement::default()));
    }
}
