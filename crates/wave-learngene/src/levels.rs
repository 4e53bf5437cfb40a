//! Levels of size: small models use the first templates of each set alone, models of a further level more of them.
//!
//! A learngene grows by a level. The level trains what no smaller model reads: the templates that it adds, the anchors
//! and blocks of larger models, and the scalers of added templates everywhere. What smaller models read stays, so they
//! stay as they are. Before the first step a larger model does what the largest smaller one does, as far as that can be:
//! a wider one has copies of its blocks along the diagonal, as [`ramp_scalers`](crate::ramp_scalers) has them; in a
//! deeper one the layers at new anchors do nothing, since their branches end in 0. They lie between their neighbours
//! otherwise.
//!
//! ```text
//! value = base + free * addition      base: smaller models' values and their repetition
//!                                     free: 0 where a smaller model reads, else 1
//! ```

use crate::bank::depth_matrix;
use crate::deviations::{copied_blocks, copied_channels, keep, repeat};
use crate::learngene::Channels;
use crate::{Learngene, Part, PlanError, Templates};
use candle_core::{Result, Tensor};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use wave_models::Weights;
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
    /// Templates of each set that its models use: the first so many.
    pub counts: BTreeMap<String, usize>,
}

impl Level {
    /// Whether a size is within the level or a smaller one.
    pub fn holds(&self, depth: usize, width: usize) -> bool {
        depth <= self.depth && width <= self.width
    }

    /// Templates in all sets.
    pub fn templates(&self) -> usize {
        self.counts.values().sum()
    }

    /// Whether the other level has more of everything, or as much.
    pub(crate) fn within(&self, other: &Level) -> bool {
        let fewer = |(set, n): (&String, &usize)| other.counts.get(set).is_some_and(|m| n <= m);
        other.holds(self.depth, self.width) && self.counts.iter().all(fewer)
    }
}

/// A learngene that grows by a level.
#[derive(Clone, Debug)]
pub struct Growth {
    base: Learngene,
    /// By the names of [`Learngene::tensors`].
    free: Weights,
}

impl Growth {
    /// The growth of a learngene with levels by another.
    ///
    /// # Errors
    /// If the learngene has no levels, the level is smaller than its last, or its tensors do not fit its plan.
    pub fn new(smaller: &Learngene, level: Level) -> Result<Growth> {
        let Some(last) = smaller.plan.levels.last() else {
            return Err(PlanError::Levels.into());
        };
        let read = smaller.read_by(last);
        let mut levels = smaller.plan.levels.clone();
        levels.push(level.clone());
        let mut plan = smaller.plan.clone();
        plan.counts = level.counts;
        let plan = plan.with_levels(levels)?;
        let added = |set: &str| plan.counts[set] - smaller.plan.counts[set];
        let mut base = smaller.clone();
        for (set, t) in &mut base.templates {
            *t = t.pad_with_zeros(0, 0, added(set))?;
        }
        for (part, t) in &mut base.bank {
            *t = t.pad_with_zeros(1, 0, added(smaller.plan.set(*part)))?;
        }
        base.plan = plan;
        let free = base.tensors().into_iter().map(|(name, t)| {
            let read = read.mask(&base, &name, &t.ones_like()?)?;
            Ok((name, (1.0 - read)?))
        });
        let free = free.collect::<Result<_>>()?;
        let base = read.repeated(&base)?;
        Ok(Growth { base, free })
    }

    /// The learngene with what its tensors add to the base where no smaller model reads. Those of
    /// [`Growth::additions`] add nothing that a model reads.
    ///
    /// # Errors
    /// If the tensors are others'.
    pub fn values(&self, additions: &Learngene) -> Result<Learngene> {
        let value = |((name, t), (_, base)): ((String, Tensor), (String, Tensor))| {
            let free = self.free[&name].to_device(t.device())?;
            let value = (base.to_device(t.device())? + (t * free)?)?;
            Ok((name, value))
        };
        // Of one plan, so in one order.
        let pairs = additions.tensors().into_iter().zip(self.base.tensors());
        let values = pairs.map(value);
        Ok(additions.with_tensors(&values.collect::<Result<_>>()?))
    }

    /// What trains, before the first step: nothing but new templates (N, t, t), of which the first are left out.
    ///
    /// # Errors
    /// If a set of them is missing, or they are of another size.
    pub fn additions(&self, templates: &Templates) -> Result<Learngene> {
        let zero = |(name, t): (String, Tensor)| {
            let start = name
                .strip_prefix("templates.")
                .and_then(|set| templates.get(set));
            let start = match start {
                Some(drawn) => (drawn * &self.free[&name])?,
                None => t.zeros_like()?,
            };
            Ok((name, start))
        };
        let start = self.base.tensors().into_iter().map(zero);
        Ok(self.base.with_tensors(&start.collect::<Result<_>>()?))
    }
}

/// The last map of each residual branch. At 0 the layer does nothing.
const BRANCH_ENDS: [&str; 4] = [
    "bank.proj",
    "bank.fc2",
    "blocks.attn.proj.bias",
    "blocks.mlp.fc2.bias",
];

/// What the models of a level read, and those of smaller ones.
struct Read {
    anchors: BTreeSet<usize>,
    /// The widest model.
    widest: VitShape,
    counts: BTreeMap<String, usize>,
}

impl Learngene {
    fn read_by(&self, level: &Level) -> Read {
        let anchors = self.auxiliary.depth;
        // As many layers as anchors, or more, read them all.
        let depths = 1..=level.depth.min(anchors);
        let rows = depths.flat_map(|l| depth_matrix(l, anchors, self.depth_rule));
        let read = |row: Vec<f32>| (0..anchors).filter(move |k| row[*k] != 0.0);
        Read {
            anchors: rows.flat_map(read).collect(),
            widest: self.auxiliary.with_size(level.depth, level.width),
            counts: level.counts.clone(),
        }
    }

    /// What models of this shape are made of: as it is, but with the templates of their level alone.
    ///
    /// # Errors
    /// If the tensors do not fit the plan.
    pub fn used_by(&self, shape: &VitShape) -> Result<Cow<'_, Learngene>> {
        match self.plan.level(shape.depth, shape.width) {
            Some(level) => self.of_level(level).map(Cow::Owned),
            None => Ok(Cow::Borrowed(self)),
        }
    }

    /// With the templates of a level alone, for models of every size.
    ///
    /// # Errors
    /// If the tensors do not fit the plan.
    pub fn of_level(&self, level: &Level) -> Result<Learngene> {
        let mut used = Learngene {
            plan: self.plan.of_level(level),
            ..self.clone()
        };
        for (set, t) in &mut used.templates {
            *t = t.narrow(0, 0, level.counts[set])?;
        }
        for (part, t) in &mut used.bank {
            *t = t.narrow(1, 0, level.counts[self.plan.set(*part)])?;
        }
        Ok(used)
    }
}

/// The part whose scalers the tensor of this name holds, if any.
fn of_bank(name: &str) -> Option<Part> {
    let part = name.strip_prefix("bank.")?;
    Part::ALL.into_iter().find(|p| p.name() == part)
}

impl Read {
    /// `x`, of a tensor's shape, with zeros where these models do not read it.
    fn mask(&self, gene: &Learngene, name: &str, x: &Tensor) -> Result<Tensor> {
        let anchor = |k: usize| self.anchors.contains(&k);
        if let Some(set) = name.strip_prefix("templates.") {
            return keep(x, 0, |i| i < self.counts[set]);
        }
        if let Some(part) = of_bank(name) {
            let (segments, rows, _) = gene.plan.blocks(part, &gene.auxiliary);
            let (_, few_rows, few_columns) = gene.plan.blocks(part, &self.widest);
            let count = self.counts[gene.plan.set(part)];
            let x = keep(x, 0, anchor)?;
            let x = keep(&x, 1, |i| i < count)?;
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
            let x = self.mask(gene, &name, &t)?;
            if name.starts_with("templates.") {
                return Ok((name, x));
            }
            let part = of_bank(&name);
            let x = if let Some(part) = part {
                let (k, n, r, c) = x.dims4()?;
                let blocks = copied_blocks(&gene.plan, part, &gene.auxiliary, &self.widest);
                repeat(&x.reshape((k, n, r * c))?, 2, &blocks, 1.0)?.reshape((k, n, r, c))?
            } else {
                match Channels::of(&name) {
                    Some(c) => match copied_channels(&c, &gene.auxiliary, &self.widest) {
                        Some(of) => repeat(&x, c.axis, &of, 1.0)?,
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
