//! Levels of size: models up to a size have templates, scalers and other weights of their own.
//!
//! A learngene grows by a level. Its models of the sizes so far keep theirs, so they stay as they are. The level begins
//! with a copy of them and with more templates, and all of it trains. Before the first step a larger model does what the
//! largest smaller one does, as far as that can be: a wider one has copies of its blocks along the diagonal, as
//! [`ramp_scalers`](crate::ramp_scalers) has them; in a deeper one the layers at new anchors do nothing, since their
//! branches end in 0. They lie between their neighbours otherwise.

use crate::bank::depth_matrix;
use crate::learngene::Channels;
use crate::repeat::{copied_blocks, copied_channels, keep, repeat};
use crate::{Learngene, Part, Plan, Templates, resize_scalers};
use candle_core::{Device, Result, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use wave_models::vit::VitShape;

#[cfg(test)]
mod tests;

/// The models up to a size that belong to no smaller level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The most layers.
    pub depth: usize,
    /// The most channels of a token.
    pub width: usize,
    /// Templates of each set.
    pub counts: BTreeMap<String, usize>,
}

impl Level {
    /// True if a size is within the level or a smaller one.
    pub fn holds(&self, depth: usize, width: usize) -> bool {
        depth <= self.depth && width <= self.width
    }

    /// Templates in all sets.
    pub fn templates(&self) -> usize {
        self.counts.values().sum()
    }

    /// True if the other level has more of everything, or as much.
    pub(crate) fn within(&self, other: &Level) -> bool {
        let fewer = |(set, n): (&String, &usize)| other.counts.get(set).is_some_and(|m| n <= m);
        other.holds(self.depth, self.width) && self.counts.iter().all(fewer)
    }
}

impl Learngene {
    /// With a further level, before its first step: its first templates are those of the level before it, the others
    /// the last of `templates` (N, t, t), to which the scalers are 0.
    ///
    /// # Errors
    /// If this has no levels, the level is smaller than its last, a set of templates is missing or of another size, or the
    /// tensors here do not fit the plan.
    pub fn grown(&self, level: Level, templates: &Templates) -> Result<Learngene> {
        let Some(last) = self.plan.levels.last() else {
            candle_core::bail!("the templates have no levels to grow");
        };
        let read = self.reach(last.depth, last.width);
        let mut levels = self.plan.levels.clone();
        levels.push(level.clone());
        let plan = self.plan.of_level(&level).with_levels(levels)?;
        let mut gene = read.repeated(self)?;
        for (set, t) in &mut gene.templates {
            let (n, all) = (self.plan.counts[set], plan.counts[set]);
            let Some(drawn) = templates.get(set) else {
                candle_core::bail!("set {set:?}: its new templates are missing");
            };
            *t = Tensor::cat(&[&*t, &drawn.narrow(0, n, all - n)?], 0)?;
        }
        for (part, t) in &mut gene.bank {
            let set = plan.set(*part);
            *t = t.pad_with_zeros(1, 0, plan.counts[set] - self.plan.counts[set])?;
        }
        gene.smaller.push(self.cut_to(last)?);
        gene.plan = plan;
        Ok(gene)
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
        let cut = self.tensors().into_iter().map(|(name, t)| {
            let t = self.cut(&name, &t, level)?;
            Ok((name, t))
        });
        Ok(Learngene {
            plan: self.plan.of_level(level),
            auxiliary: self.auxiliary.with_size(self.auxiliary.depth, level.width),
            smaller: Vec::new(),
            ..self.with_tensors(&cut.collect::<Result<_>>()?)
        })
    }

    /// One of [`Learngene::tensors`], with the templates and the width of a smaller level alone.
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

    /// Anchors and channels that models of up to so many layers and channels read.
    pub fn reach(&self, depth: usize, width: usize) -> Reach {
        // As many layers as anchors, or more, read them all.
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

/// The last map of each residual branch. At 0 the layer does nothing.
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

/// The part whose scalers the tensor of this name holds, if any.
fn of_bank(name: &str) -> Option<Part> {
    let part = name.strip_prefix("bank.")?;
    Part::ALL.into_iter().find(|p| p.name() == part)
}

impl Reach {
    /// The indices of the anchors.
    pub(crate) fn anchors(&self, device: &Device) -> Result<Tensor> {
        let anchors: Vec<u32> = self.anchors.iter().map(|k| *k as u32).collect();
        Tensor::new(anchors, device)
    }

    /// The blocks of a part, of all anchors, at the auxiliary's width, that are read.
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

    /// `x`, of a tensor's shape, with zeros where these models do not read it.
    fn mask(&self, gene: &Learngene, name: &str, x: &Tensor) -> Result<Tensor> {
        let anchor = |k: usize| self.anchors.contains(&k);
        if let Some(part) = of_bank(name) {
            let (segments, rows, _) = gene.plan.blocks(part, &gene.auxiliary);
            let (_, few_rows, few_columns) = gene.plan.blocks(part, &self.widest);
            let x = keep(x, 0, anchor)?;
            let x = keep(&x, 2, |i| i % (rows / segments) < few_rows / segments)?;
            return keep(&x, 3, |i| i < few_columns);
        }
        let x = match Channels::of(name) {
            Some(c) => {
                let (wide, narrow) = (c.count(&gene.auxiliary), c.count(&self.widest));
                keep(x, c.axis, |i| i % wide < narrow)?
            }
            None => x.clone(),
        };
        match name.starts_with("blocks.") {
            true => keep(&x, 0, anchor),
            false => Ok(x),
        }
    }

    /// The learngene whose larger models repeat these.
    fn repeated(&self, gene: &Learngene) -> Result<Learngene> {
        let repetition = |(name, t): (String, Tensor)| {
            if name.starts_with("templates.") {
                return Ok((name, t));
            }
            let x = self.mask(gene, &name, &t)?;
            let part = of_bank(&name);
            let x = if let Some(part) = part {
                let (k, n, r, c) = x.dims4()?;
                let blocks = copied_blocks(&gene.plan, part, &gene.auxiliary, &self.widest);
                repeat(&x.reshape((k, n, r * c))?, 2, &blocks)?.reshape((k, n, r, c))?
            } else {
                match Channels::of(&name) {
                    Some(c) => match copied_channels(&c, &gene.auxiliary, &self.widest) {
                        Some(of) => repeat(&x, c.axis, &of)?,
                        None => x,
                    },
                    None => x,
                }
            };
            let of_layers = part.is_some() || name.starts_with("blocks.");
            let x = match of_layers && !BRANCH_ENDS.contains(&&*name) {
                true => self.between_anchors(&x)?,
                false => x,
            };
            Ok((name, x))
        };
        let all = gene.tensors().into_iter().map(repetition);
        Ok(gene.with_tensors(&all.collect::<Result<_>>()?))
    }

    /// `x` (K, ...) with the interpolation of its two neighbours at each anchor that is not read.
    fn between_anchors(&self, x: &Tensor) -> Result<Tensor> {
        let k = x.dim(0)?;
        let mut matrix = vec![0f32; k * k];
        for (at, line) in matrix.chunks_exact_mut(k).enumerate() {
            let below = self.anchors.range(..=at).next_back();
            let above = self.anchors.range(at..).next();
            match (below, above) {
                (Some(&a), Some(&b)) if a < b => {
                    let f = (at - a) as f32 / (b - a) as f32;
                    (line[a], line[b]) = (1.0 - f, f);
                }
                (Some(&one), _) | (None, Some(&one)) => line[one] = 1.0,
                (None, None) => {}
            }
        }
        let matrix = Tensor::from_vec(matrix, (k, k), x.device())?;
        matrix.matmul(&x.reshape((k, ()))?)?.reshape(x.shape())
    }
}
