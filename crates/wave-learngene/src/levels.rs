//! Size levels: models up to each size have their own templates, scalers and other weights.
//!
//! A learngene grows by one level at a time. Models of the existing levels keep their values, so they do not change.
//! The new level starts with a copy of them and with more templates, and all of it trains. Before the first step a
//! larger model computes, as far as possible, the same as the largest smaller one: a wider one has copies of its blocks
//! along the diagonal, as in [`ramp_scalers`](crate::ramp_scalers); in a deeper one, each layer of the smaller model is
//! split into copies whose residual branches add up to its own.

use crate::bank::{depth_matrix, resize_scalers};
use crate::learngene::Channels;
use crate::repeat::{copied_blocks, copied_channels, keep, repeat};
use crate::{DepthRule, Learngene, Part, Plan, Templates};
use candle_core::{Device, Result, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use wave_models::vit::VitShape;

#[cfg(test)]
mod tests;

/// The models up to a size that belong to no smaller level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Largest number of layers.
    pub depth: usize,
    /// Largest width, in channels.
    pub width: usize,
    /// Number of templates in each set.
    pub counts: BTreeMap<String, usize>,
}

impl Level {
    /// True if a size is within the level or a smaller one.
    pub fn holds(&self, depth: usize, width: usize) -> bool {
        depth <= self.depth && width <= self.width
    }

    /// Number of templates in all sets.
    pub fn templates(&self) -> usize {
        self.counts.values().sum()
    }

    /// True if the other level is at least as large in everything.
    pub(crate) fn within(&self, other: &Level) -> bool {
        let fewer = |(set, n): (&String, &usize)| other.counts.get(set).is_some_and(|m| n <= m);
        other.holds(self.depth, self.width) && self.counts.iter().all(fewer)
    }
}

impl Learngene {
    /// Adds a level in its initial state: it keeps the templates of the level before, and takes the others from the end
    /// of `templates` (N, t, t), with scalers of 0. Fails if there are no levels yet, if `level` is smaller than the
    /// last one, or if there are too few templates.
    pub fn grown(&self, level: Level, templates: &Templates) -> Result<Learngene> {
        let Some(last) = self.plan.levels.last() else {
            candle_core::bail!("the templates have no levels to grow");
        };
        let mut levels = self.plan.levels.clone();
        levels.push(level.clone());
        let plan = self.plan.of_level(&level).with_levels(levels)?;
        let mut gene = self.widened(last)?.deepened(last.depth, level.depth)?;
        for (set, t) in &mut gene.templates {
            let (n, all) = (self.plan.counts[set], plan.counts[set]);
            let added = templates[set].narrow(0, n, all - n)?;
            *t = Tensor::cat(&[&*t, &added], 0)?;
        }
        for (part, t) in &mut gene.bank {
            let set = plan.set(*part);
            *t = t.pad_with_zeros(1, 0, plan.counts[set] - self.plan.counts[set])?;
        }
        gene.smaller.push(self.cut_to(last)?);
        gene.plan = plan;
        Ok(gene)
    }

    /// Fills the channels that a level's models do not have with copies of their channels.
    fn widened(&self, level: &Level) -> Result<Learngene> {
        let narrow = self.auxiliary.with_size(level.depth, level.width);
        self.each(|name, t| {
            if name.starts_with("templates.") {
                return Ok(t.clone());
            }
            if let Some(part) = of_bank(name) {
                let (segments, rows, _) = self.plan.blocks(part, &self.auxiliary);
                let (_, few_rows, few_columns) = self.plan.blocks(part, &narrow);
                let t = keep(t, 2, |i| i % (rows / segments) < few_rows / segments)?;
                let t = keep(&t, 3, |i| i < few_columns)?;
                let copies = copied_blocks(&self.plan, part, &self.auxiliary, &narrow);
                let blocks = t.flatten_from(2)?;
                return repeat(&blocks, 2, &copies)?.reshape(t.shape());
            }
            let Some(c) = Channels::of(name) else {
                return Ok(t.clone());
            };
            let (wide, few) = (c.count(&self.auxiliary), c.count(&narrow));
            let t = keep(t, c.axis, |i| i % wide < few)?;
            match copied_channels(&c, &self.auxiliary, &narrow) {
                Some(copies) => repeat(&t, c.axis, &copies),
                None => Ok(t),
            }
        })
    }

    /// Places the layers of a model of `from` layers at the anchors that models of up to `to` layers read.
    fn deepened(&self, from: usize, to: usize) -> Result<Learngene> {
        let anchors = self.auxiliary.depth;
        if from >= to.min(anchors) {
            return Ok(self.clone());
        }
        let layers = depth_matrix(from, anchors, self.depth_rule);
        let (nearest, shares) = copies(&layers, from + 1..=to, self.depth_rule);
        let at_anchors = |shares: &[f32]| {
            let rows = nearest.iter().zip(shares);
            let row = |(layer, share): (&usize, &f32)| {
                layers[*layer].iter().map(|w| w * *share).collect()
            };
            let rows: Vec<Vec<f32>> = rows.map(row).collect();
            Tensor::from_vec(rows.concat(), (anchors, anchors), &Device::Cpu)
        };
        let whole = at_anchors(&vec![1.0; anchors])?;
        let shared = at_anchors(&shares)?;
        self.each(|name, t| {
            if !has_anchors(name) {
                return Ok(t.clone());
            }
            let matrix = match BRANCH_ENDS.contains(&name) {
                true => &shared,
                false => &whole,
            };
            let matrix = matrix.to_device(t.device())?.to_dtype(t.dtype())?;
            let read = matrix.matmul(&t.reshape((anchors, ()))?)?;
            read.reshape(t.shape())
        })
    }

    /// The values of the level that holds this shape.
    pub fn used_by(&self, shape: &VitShape) -> &Learngene {
        let level = self.plan.level(shape.depth, shape.width);
        level.map_or(self, |at| self.of_level(at))
    }

    /// The values of a level, the smallest being level 0.
    pub fn of_level(&self, level: usize) -> &Learngene {
        self.smaller.get(level).unwrap_or(self)
    }

    /// Restricts the values to the anchors and channels that the models of a level read.
    fn cut_to(&self, level: &Level) -> Result<Learngene> {
        let cut = self.each(|name, t| self.cut(name, t, level))?;
        Ok(Learngene {
            plan: self.plan.of_level(level),
            auxiliary: self.auxiliary.with_size(self.auxiliary.depth, level.width),
            smaller: Vec::new(),
            ..cut
        })
    }

    /// One of [`Learngene::tensors`], cut to the templates and the width of a smaller level.
    pub(crate) fn cut(&self, name: &str, t: &Tensor, level: &Level) -> Result<Tensor> {
        let narrow = self.auxiliary.with_size(self.auxiliary.depth, level.width);
        if let Some(set) = name.strip_prefix("templates.") {
            return t.narrow(0, 0, level.counts[set]);
        }
        let Some(part) = of_bank(name) else {
            return self.of_width(name, t, &narrow);
        };
        let plan = self.plan.of_level(level);
        let t = t.narrow(1, 0, plan.n_templates(part))?;
        resize_scalers(&plan, part, &t, &self.auxiliary, &narrow)
    }

    /// Anchors and channels that a model of this shape reads.
    pub fn reads(&self, shape: &VitShape) -> Reach {
        self.reach_of([shape.depth], shape.clone())
    }

    /// Anchors and channels that models of up to `depth` layers and `width` channels read.
    pub fn reach(&self, depth: usize, width: usize) -> Reach {
        // Models with at least as many layers as anchors read all anchors.
        let depths = 1..=depth.min(self.auxiliary.depth);
        self.reach_of(depths, self.auxiliary.with_size(depth, width))
    }

    fn reach_of(&self, depths: impl IntoIterator<Item = usize>, widest: VitShape) -> Reach {
        let anchors = self.auxiliary.depth;
        let rows = depths.into_iter();
        let rows = rows.flat_map(|l| depth_matrix(l, anchors, self.depth_rule));
        let read = |row: Vec<f32>| (0..anchors).filter(move |k| row[*k] != 0.0);
        Reach {
            anchors: rows.flat_map(read).collect(),
            widest,
        }
    }
}

/// Minimum sum of a layer's shares in any model.
const LEAST: f32 = 0.1;

/// Assigns layers to the anchors of models of `depths` layers: for each anchor the nearest layer in relative depth, and
/// the share that multiplies its residual branches. `layers` (depth, anchors) is how each layer reads the anchors.
///
/// Shares fall linearly with the distance from the layer: the fewer copies share it, the closer a model is to the
/// smaller one. They extend just far enough that models of all depths read every layer. Averaged over depths, the
/// shares of a layer that a model reads sum to 1.
fn copies(
    layers: &[Vec<f32>],
    depths: RangeInclusive<usize>,
    rule: DepthRule,
) -> (Vec<usize>, Vec<f32>) {
    let anchors = layers.first().map_or(0, Vec::len);
    let place = |row: &Vec<f32>| row.iter().enumerate().map(|(k, w)| k as f32 * w).sum();
    let places: Vec<f32> = layers.iter().map(place).collect();
    let distance = |k: usize, layer: usize| (k as f32 - places[layer]).abs();
    let nearest = |k: usize| {
        let all = 0..layers.len();
        all.min_by(|a, b| distance(k, *a).total_cmp(&distance(k, *b)))
    };
    let of: Vec<usize> = (0..anchors).filter_map(nearest).collect();
    let models: Vec<Vec<Vec<f32>>> = depths.map(|l| depth_matrix(l, anchors, rule)).collect();
    let sums = |model: &Vec<Vec<f32>>, shares: &[f32]| {
        let mut sums = vec![0.0; layers.len()];
        for (k, weight) in model.iter().flat_map(|row| row.iter().enumerate()) {
            sums[of[k]] += weight * shares[k];
        }
        sums
    };
    let falling = |reach: usize| -> Vec<f32> {
        let share = |k: usize| (1.0 - distance(k, of[k]) / reach as f32).max(0.0);
        (0..anchors).map(share).collect()
    };
    let all_read = |shares: &[f32]| {
        let mut all = models.iter().flat_map(|model| sums(model, shares));
        all.all(|sum| sum >= LEAST)
    };
    let reach = (1..anchors).find(|reach| all_read(&falling(*reach)));
    let mut shares = falling(reach.unwrap_or(anchors));
    let mut mean = vec![0.0; layers.len()];
    for model in &models {
        for (mean, sum) in mean.iter_mut().zip(sums(model, &shares)) {
            *mean += sum / models.len() as f32;
        }
    }
    for (share, layer) in shares.iter_mut().zip(&of) {
        *share /= mean[*layer].max(LEAST);
    }
    (of, shares)
}

/// The last linear layer of each residual branch.
const BRANCH_ENDS: [&str; 4] = [
    "bank.proj",
    "bank.fc2",
    "blocks.attn.proj.bias",
    "blocks.mlp.fc2.bias",
];

/// Anchors and channels that the models up to a size read.
#[derive(Clone, Debug)]
pub struct Reach {
    pub(crate) anchors: BTreeSet<usize>,
    /// The widest model.
    pub(crate) widest: VitShape,
}

/// True if the first axis of a tensor of this name counts anchors.
pub(crate) fn has_anchors(name: &str) -> bool {
    name.starts_with("bank.") || name.starts_with("blocks.")
}

/// The part whose scalers the tensor of this name holds, if any.
fn of_bank(name: &str) -> Option<Part> {
    let part = name.strip_prefix("bank.")?;
    Part::ALL.into_iter().find(|p| p.name() == part)
}

impl Reach {
    /// The blocks of a part that are read, over all anchors, at the auxiliary's width.
    pub(crate) fn blocks(&self, plan: &Plan, part: Part, auxiliary: &VitShape) -> Vec<usize> {
        let (segments, rows, columns) = plan.blocks(part, auxiliary);
        let (_, few_rows, few_columns) = plan.blocks(part, &self.widest);
        let (height, few) = (rows / segments, few_rows / segments);
        let read = |at: &usize| at / columns % height < few && at % columns < few_columns;
        let of_anchor: Vec<usize> = (0..rows * columns).filter(read).collect();
        let all = self.anchors.iter();
        all.flat_map(|k| of_anchor.iter().map(move |at| k * rows * columns + at))
            .collect()
    }
}
