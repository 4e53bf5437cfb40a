//! The size of each step of an elastic training, drawn from ranges of depth and width. Over the first
//! steps the upper ends grow from the lower. Small models cost less a step and teach the templates as
//! much, so they come first.

use rand::Rng;
use std::cmp::Reverse;
use wave_models::vit::VitShape;

/// Sizes to draw from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// The least and the most depth.
    pub depths: (usize, usize),
    /// Widths, ascending; at least one.
    pub widths: Vec<usize>,
    /// Share of the steps over which the most depth grows from the least, and the widest width from
    /// the narrowest, 0 to 1.
    pub growth: f64,
    /// Power of that share's elapsed part with which they grow, above 0: 1 is linear, more stays
    /// small for longer.
    pub growth_power: f64,
    /// Sizes that each step trains, at least 1.
    pub per_step: usize,
}

impl Sizes {
    /// Sizes that every step draws from alike.
    pub fn constant(depths: (usize, usize), widths: Vec<usize>) -> Sizes {
        Sizes {
            depths,
            widths,
            growth: 0.0,
            growth_power: 1.0,
            per_step: 1,
        }
    }

    /// A depth and a width among those that step `step` of `steps` trains. `rng` should depend on the
    /// step alone, so that a resumed training draws the same.
    pub fn draw(&self, step: u64, steps: u64, rng: &mut impl Rng) -> (usize, usize) {
        let ((least, most), widths) = self.at(step, steps);
        let depth = rng.random_range(least..=most);
        (depth, widths[rng.random_range(0..widths.len())])
    }

    /// All depths and widths that a step trains, the largest first. One is drawn; of two, the other is the
    /// smallest, which costs little; of three or more, one is the largest so far (the sandwich rule of Yu
    /// and Huang 2019). None comes twice, so there may be fewer.
    pub fn draw_all(&self, step: u64, steps: u64, rng: &mut impl Rng) -> Vec<(usize, usize)> {
        let mut sizes = self.fixed(step, steps);
        sizes.extend((sizes.len()..self.per_step).map(|_| self.draw(step, steps, rng)));
        // The parameters of blocks are proportional to this.
        sizes.sort_by_key(|&(depth, width)| Reverse((depth * width * width, depth)));
        sizes.dedup();
        sizes
    }

    /// The sizes of a step that are not drawn: the smallest, then the largest.
    fn fixed(&self, step: u64, steps: u64) -> Vec<(usize, usize)> {
        let ((least, most), widths) = self.at(step, steps);
        let ends = [(least, widths[0]), (most, widths[widths.len() - 1])];
        ends[..self.per_step.saturating_sub(1).min(2)].to_vec()
    }

    /// The least and the most depth, and the widths, that a step draws from.
    fn at(&self, step: u64, steps: u64) -> ((usize, usize), &[usize]) {
        let (least, most) = self.depths;
        let grown = step as f64 / (self.growth * steps as f64); // infinite or NaN without growth
        let grown = grown.min(1.0).powf(self.growth_power);
        let part_of = |n: usize| (n as f64 * grown).round() as usize;
        let widths = &self.widths[..=part_of(self.widths.len() - 1)];
        ((least, least + part_of(most - least)), widths)
    }

    /// Multiply-adds of the forward passes of one image in an average step, over the sizes drawn of
    /// `whole`.
    pub fn mean_multiply_adds(&self, whole: &VitShape) -> f64 {
        let steps = 1000; // enough for the growth of any depth
        let of_step = |step| {
            let ((least, most), widths) = self.at(step, steps);
            let of = |depth, width| whole.with_size(depth, width).multiply_adds() as f64;
            // Linear in the depth, so its mean is that of the ends.
            let work = widths
                .iter()
                .flat_map(|w| [least, most].map(|depth| of(depth, *w)));
            let drawn = work.sum::<f64>() / (2 * widths.len()) as f64;
            let fixed = self.fixed(step, steps);
            let always = fixed.iter().map(|&(depth, width)| of(depth, width));
            always.sum::<f64>() + drawn * (self.per_step - fixed.len()) as f64
        };
        (0..steps).map(of_step).sum::<f64>() / steps as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeSet;

    fn sizes(growth: f64, growth_power: f64) -> Sizes {
        Sizes {
            depths: (2, 12),
            widths: vec![64, 128, 192],
            growth,
            growth_power,
            per_step: 1,
        }
    }

    #[test]
    fn sizes_grow_and_then_stay() {
        let steps = 1000;
        let sizes = sizes(0.5, 1.0);
        let most = |step| sizes.at(step, steps).0.1;
        assert_eq!([0, 250, 500, 999].map(most), [2, 7, 12, 12]);
        let widths = |step| sizes.at(step, steps).1;
        assert_eq!([0, 124].map(widths), [[64], [64]]);
        assert_eq!([125, 374].map(widths), [[64, 128], [64, 128]]);
        assert_eq!([375, 999].map(widths), [[64, 128, 192], [64, 128, 192]]);
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        let mut drawn = Vec::new();
        for step in 0..steps {
            let (depth, width) = sizes.draw(step, steps, rng);
            assert!((2..=most(step)).contains(&depth), "{step}");
            assert!(widths(step).contains(&width), "{step}");
            drawn.push(depth);
        }
        assert!((2..=12).all(|depth| drawn[500..].contains(&depth)));
    }

    #[test]
    fn a_step_of_several_sizes_trains_the_smallest_and_then_the_largest_too() {
        let of = |per_step, step| {
            let sizes = Sizes {
                per_step,
                ..sizes(0.5, 1.0)
            };
            sizes.draw_all(step, 1000, &mut ChaCha8Rng::seed_from_u64(step))
        };
        let smallest = Some(&(2, 64));
        assert_eq!(of(1, 999).len(), 1);
        assert_eq!(of(2, 999).last(), smallest);
        assert_eq!(of(4, 999)[0], (12, 192));
        assert_eq!(of(4, 999).last(), smallest);
        assert_eq!(of(3, 250)[0], (7, 128));
        // At first there is one size, and none comes twice.
        assert_eq!(of(4, 0), [(2, 64)]);
        let work = |&(depth, width): &(usize, usize)| depth * width * width;
        let mut drawn = BTreeSet::new();
        for step in 500..1000 {
            let sizes = of(3, step);
            assert!(sizes.is_sorted_by(|a, b| work(a) >= work(b) && a != b));
            drawn.extend(sizes);
        }
        assert_eq!(drawn.len(), 11 * 3);
    }

    #[test]
    fn a_higher_power_stays_small_for_longer() {
        let most = |power, step| sizes(0.5, power).at(step, 1000).0.1;
        assert_eq!([0, 250, 500].map(|step| most(3.0, step)), [2, 3, 12]); // 10 / 2^3
        assert_eq!([0, 250, 500].map(|step| most(0.5, step)), [2, 9, 12]); // 10 / 2^(1/2)
    }

    #[test]
    fn without_growth_every_step_draws_from_all_sizes() {
        let sizes = Sizes::constant((2, 12), vec![64, 128, 192]);
        let all = ((2, 12), &[64, 128, 192][..]);
        assert_eq!(sizes.at(0, 10), all);
        assert_eq!(sizes.at(0, 0), all);
    }

    #[test]
    fn growth_saves_the_work_of_large_steps() {
        let whole = VitShape::default();
        let work = |growth, power| {
            let mut sizes = sizes(growth, power);
            sizes.widths = vec![64];
            sizes.mean_multiply_adds(&whole)
        };
        let of = |depth| whole.with_size(depth, 64).multiply_adds() as f64;
        let layer = (of(12) - of(2)) / 10.0;
        // Drawn from all: 7 layers on average. While they grow: as many as their power's mean.
        for (growth, power) in [(0.8, 1.0), (0.9, 3.0)] {
            let saved = (work(0.0, power) - work(growth, power)) / layer;
            let expected = growth * (5.0 - 5.0 / (power + 1.0));
            assert!((saved - expected).abs() < 0.05, "{saved}, not {expected}");
        }
    }
}
