//! The model size of each step of an elastic training, sampled from ranges of depth and width. The ranges
//! start at the smallest size and grow over the first part of training: small models cost less per step and teach
//! the templates as much. Some sampled models have another MLP ratio, head width, image size or patch size.

use rand::Rng;
use wave_models::vit::VitShape;

/// Sizes to sample from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// The smallest and the largest depth.
    pub depths: (usize, usize),
    /// Widths, ascending; at least one.
    pub widths: Vec<usize>,
    /// Fraction of the steps, 0 to 1, over which the largest depth and width grow from the smallest.
    pub growth: f64,
    /// Exponent of this growth over the elapsed fraction, above 0: 1 is linear, larger values keep
    /// the sizes small for longer.
    pub growth_power: f64,
    /// Variants of a size that are sampled as well.
    pub variants: Variants,
    /// Largest sizes (depth, width) of the smaller levels: sizes within them are sampled only if there are no others.
    pub smaller: Vec<(usize, usize)>,
}

/// Other properties of a shape that are sampled. An empty list keeps the full model's value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variants {
    /// Ratios of the MLP's hidden channels to the width.
    pub mlp_ratios: Vec<f64>,
    /// Channels of a head; only divisors of the width are sampled.
    pub head_widths: Vec<usize>,
    /// Image side lengths in pixels.
    pub image_sizes: Vec<usize>,
    /// Patch side lengths in pixels; only divisors of the image size are sampled.
    pub patches: Vec<usize>,
    /// Fraction of the models sampled from these lists, 0 to 1. The others are like the full model.
    pub share: f64,
}

impl Variants {
    /// All valid combinations of these lists at the size of `shape`; `shape` itself if there are none.
    pub fn all(&self, shape: &VitShape) -> Vec<VitShape> {
        fn or<T: Copy>(list: &[T], own: T) -> Vec<T> {
            match list {
                [] => vec![own],
                _ => list.to_vec(),
            }
        }
        let mut heads = self.head_widths.clone();
        heads.retain(|head| shape.width.is_multiple_of(*head));
        let heads: Vec<usize> = heads.iter().map(|head| shape.width / head).collect();
        let mut all = Vec::new();
        for image_size in or(&self.image_sizes, shape.image_size) {
            for patch in or(&self.patches, shape.patch) {
                for mlp_ratio in or(&self.mlp_ratios, shape.mlp_ratio) {
                    for &heads in &or(&heads, shape.heads) {
                        all.push(VitShape {
                            image_size,
                            patch,
                            mlp_ratio,
                            heads,
                            ..shape.clone()
                        });
                    }
                }
            }
        }
        all.retain(|drawn| drawn.image_size.is_multiple_of(drawn.patch));
        if all.is_empty() {
            all.push(shape.clone());
        }
        all
    }

    /// The shapes that differ from `shape` in one property only.
    pub fn one_by_one(&self, shape: &VitShape) -> Vec<VitShape> {
        let mut lists: [Variants; 4] = Default::default();
        lists[0].mlp_ratios.clone_from(&self.mlp_ratios);
        lists[1].head_widths.clone_from(&self.head_widths);
        lists[2].image_sizes.clone_from(&self.image_sizes);
        lists[3].patches.clone_from(&self.patches);
        let mut all: Vec<VitShape> = lists.iter().flat_map(|list| list.all(shape)).collect();
        all.retain(|other| other != shape);
        all
    }

    /// One of [`Variants::all`], or `shape` itself.
    fn draw(&self, shape: VitShape, rng: &mut impl Rng) -> VitShape {
        if self.is_empty() || rng.random::<f64>() >= self.share {
            return shape;
        }
        let mut all = self.all(&shape);
        all.swap_remove(rng.random_range(0..all.len()))
    }

    /// Mean multiply-adds of the models sampled at the size of `shape`.
    fn mean_multiply_adds(&self, shape: &VitShape) -> f64 {
        let own = shape.multiply_adds() as f64;
        if self.is_empty() {
            return own;
        }
        let all = self.all(shape);
        let sum: usize = all.iter().map(VitShape::multiply_adds).sum();
        let varied = sum as f64 / all.len() as f64;
        self.share * varied + (1.0 - self.share) * own
    }

    fn is_empty(&self) -> bool {
        let lists = [&self.head_widths, &self.image_sizes, &self.patches];
        self.mlp_ratios.is_empty() && lists.iter().all(|list| list.is_empty())
    }
}

impl Sizes {
    /// The largest depth and the largest width.
    pub fn largest(&self) -> (usize, usize) {
        (self.depths.1, self.widths[self.widths.len() - 1])
    }

    /// The shape with the most multiply-adds among models of the largest size that are like `whole`.
    pub fn costliest(&self, whole: &VitShape) -> VitShape {
        let (depth, width) = self.largest();
        let largest = whole.with_size(depth, width);
        let all = self.variants.all(&largest).into_iter();
        let all = all.chain([largest.clone()]);
        all.max_by_key(VitShape::multiply_adds).unwrap_or(largest)
    }

    /// Ranges that do not grow, without variants.
    pub fn constant(depths: (usize, usize), widths: Vec<usize>) -> Sizes {
        Sizes {
            depths,
            widths,
            growth: 0.0,
            growth_power: 1.0,
            variants: Variants::default(),
            smaller: Vec::new(),
        }
    }

    /// Samples the shape that step `step` of `steps` trains, for models like `whole`. `rng` should depend only on the
    /// step, so that a resumed training samples the same shapes.
    pub fn shape(&self, whole: &VitShape, step: u64, steps: u64, rng: &mut impl Rng) -> VitShape {
        let (depth, width) = self.draw(step, steps, rng);
        self.variants.draw(whole.with_size(depth, width), rng)
    }

    /// A depth and a width for a step.
    fn draw(&self, step: u64, steps: u64, rng: &mut impl Rng) -> (usize, usize) {
        if !self.smaller.is_empty() {
            let all = self.all(step, steps);
            return all[rng.random_range(0..all.len())];
        }
        let ((least, most), widths) = self.at(step, steps);
        let depth = rng.random_range(least..=most);
        (depth, widths[rng.random_range(0..widths.len())])
    }

    /// All sizes that a step samples from; never empty.
    pub fn all(&self, step: u64, steps: u64) -> Vec<(usize, usize)> {
        let smaller = |(depth, width): (usize, usize)| {
            let mut levels = self.smaller.iter();
            levels.any(|&(deepest, widest)| depth <= deepest && width <= widest)
        };
        let within = |(least, most): (usize, usize), widths: &[usize]| {
            let mut sizes: Vec<(usize, usize)> = Vec::new();
            for &width in widths {
                sizes.extend((least..=most).map(|depth| (depth, width)));
            }
            sizes.retain(|size| !smaller(*size));
            sizes
        };
        let (depths, widths) = self.at(step, steps);
        // While the sizes grow, there may be only sizes of smaller levels so far.
        let mut sizes = within(depths, widths);
        if sizes.is_empty() {
            sizes = within(self.depths, &self.widths);
        }
        if sizes.is_empty() {
            sizes.push(self.largest());
        }
        sizes
    }

    /// The smallest and the largest depth, and the widths, that a step samples from.
    fn at(&self, step: u64, steps: u64) -> ((usize, usize), &[usize]) {
        let (least, most) = self.depths;
        let grown = step as f64 / (self.growth * steps as f64); // infinite or NaN without growth
        let grown = grown.min(1.0).powf(self.growth_power);
        let part_of = |n: usize| (n as f64 * grown).round() as usize;
        let widths = &self.widths[..=part_of(self.widths.len() - 1)];
        ((least, least + part_of(most - least)), widths)
    }

    /// The largest depth and width that a step samples from.
    pub fn largest_at(&self, step: u64, steps: u64) -> (usize, usize) {
        let ((_, most), widths) = self.at(step, steps);
        (most, widths[widths.len() - 1])
    }

    /// Mean multiply-adds of the forward pass of one image over all steps, for the sizes sampled from `whole`.
    pub fn mean_multiply_adds(&self, whole: &VitShape) -> f64 {
        self.work(whole).iter().sum::<f64>() / PARTS as f64
    }

    /// Mean multiply-adds of the forward pass of one image in each of 1000 equal parts of the steps.
    pub fn work(&self, whole: &VitShape) -> Vec<f64> {
        let of_size = |&(depth, width): &(usize, usize)| {
            let shape = whole.with_size(depth, width);
            self.variants.mean_multiply_adds(&shape)
        };
        let of_step = |step| {
            let ((least, most), widths) = self.at(step, PARTS);
            // Linear in the depth, so the mean is that of the two ends.
            let ends = widths.iter().flat_map(|w| [(least, *w), (most, *w)]);
            let sizes: Vec<(usize, usize)> = match self.smaller.is_empty() {
                true => ends.collect(),
                false => self.all(step, PARTS),
            };
            sizes.iter().map(of_size).sum::<f64>() / sizes.len() as f64
        };
        (0..PARTS).map(of_step).collect()
    }
}

/// Number of parts for which [`Sizes::work`] reports the work: enough for the growth of any depth.
const PARTS: u64 = 1000;

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
