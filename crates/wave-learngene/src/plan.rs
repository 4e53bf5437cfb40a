//! Template sets, the parts that each composes, and all sizes derived from them.

use crate::{Level, Part};
use std::collections::BTreeMap;
use wave_models::vit::VitShape;
use wave_models::{Refusal, refuse};
use wave_ops::Kronecker;

/// The composition of a block's parts from sets of templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rows and columns of a template.
    pub template_size: usize,
    /// The order of the product.
    pub kronecker: Kronecker,
    /// The set that composes each part; two parts may share one, such as `"mlp"`.
    pub sets: BTreeMap<Part, String>,
    /// The number of templates in each set.
    pub counts: BTreeMap<String, usize>,
    /// Size levels, smallest first, if models of some sizes have their own templates. The counts above are the last
    /// level's (see [`Plan::with_levels`]).
    pub levels: Vec<Level>,
}

impl Plan {
    /// A plan without levels. Each part needs a set, and each set at least one template.
    pub fn new(
        template_size: usize,
        kronecker: Kronecker,
        sets: BTreeMap<Part, String>,
        counts: BTreeMap<String, usize>,
    ) -> Self {
        Self {
            template_size,
            kronecker,
            sets,
            counts,
            levels: Vec::new(),
        }
    }

    /// Every part composed by a set of its own, named after it.
    pub fn own_sets() -> BTreeMap<Part, String> {
        Part::ALL.map(|part| (part, part.name().to_owned())).into()
    }

    /// The budget that matches the paper's parameter columns: 24 templates of `reference_width`
    /// squared (6 for qkv, 2 for proj, 8 for fc1 and 8 for fc2), which is exactly two layers.
    /// Smaller templates scale in proportion: half the size, four times as many (6, 2, 8, 8 become
    /// 24, 8, 32, 32), rounded up where the size does not divide the width.
    pub fn default_budget(reference_width: usize, template_size: usize) -> Self {
        let (d, t) = (reference_width, template_size);
        let counts = Part::ALL.into_iter().zip([6, 2, 8, 8]);
        let counts = counts.map(|(part, n)| (part.name().to_owned(), (n * d * d).div_ceil(t * t)));
        let counts = counts.collect();
        Self::new(t, Kronecker::Tile, Self::own_sets(), counts)
    }

    /// The number of templates that compose this part.
    pub fn n_templates(&self, part: Part) -> usize {
        self.counts[self.set(part)]
    }

    /// The grid of template-sized blocks that covers a part: `(segments, r, c)`.
    ///
    /// `r` counts the rows of all segments. Where the template size does not divide a side, the grid covers the next
    /// multiple and [`compose`](crate::compose()) crops, each of q, k and v on its own, so that heads stay aligned.
    pub fn blocks(&self, part: Part, shape: &VitShape) -> (usize, usize, usize) {
        let t = self.template_size;
        let segments = part.segments();
        let (rows, cols) = part.rows_cols(shape);
        let r = segments * (rows / segments).div_ceil(t);
        (segments, r, cols.div_ceil(t))
    }

    /// The shape `(n_templates, r, c)` of one layer's scalers for a part.
    pub fn scaler_shape(&self, part: Part, shape: &VitShape) -> [usize; 3] {
        let (_, r, c) = self.blocks(part, shape);
        [self.n_templates(part), r, c]
    }

    /// The number of scalers in a model of this shape.
    pub fn scaler_count(&self, shape: &VitShape) -> usize {
        let of_part = |part| self.n_templates(part) * self.block_count(part, shape);
        shape.depth * Part::ALL.map(of_part).iter().sum::<usize>()
    }

    /// The number of template-sized blocks of a part in one layer.
    pub(crate) fn block_count(&self, part: Part, shape: &VitShape) -> usize {
        let (_, r, c) = self.blocks(part, shape);
        r * c
    }

    /// The parts that a set composes, in their order.
    pub(crate) fn parts(&self, set: &str) -> impl Iterator<Item = Part> {
        let all = Part::ALL.into_iter();
        all.filter(move |part| self.set(*part) == set)
    }

    /// The number of parameters in all templates.
    pub fn template_parameters(&self) -> usize {
        let n: usize = self.counts.values().sum();
        n * self.template_size * self.template_size
    }

    /// Names and shapes of a transformer's weights that templates do not compose, layer by layer under timm's names.
    pub fn inherited_parameters(&self, shape: &VitShape) -> Vec<(String, Vec<usize>)> {
        let all = shape.parameters().into_iter();
        all.filter(|(name, _)| !self.composes(name)).collect()
    }

    /// Sets the size levels, smallest first. Each must be within the next, and the last must have this plan's counts.
    pub fn with_levels(self, levels: Vec<Level>) -> Result<Self, Refusal> {
        let ordered = levels.windows(2).all(|pair| pair[0].within(&pair[1]));
        let last = levels.last().is_none_or(|last| last.counts == self.counts);
        let none = |level: &Level| {
            level.depth == 0 || level.width == 0 || level.counts.values().any(|n| *n == 0)
        };
        match ordered && last && !levels.iter().any(none) {
            true => Ok(Self { levels, ..self }),
            false => refuse!(
                "levels: each needs at least the depth, width and templates of the level before \
                 it, and the last needs all templates"
            ),
        }
    }

    /// The plan of a level: the same plan with the level's template counts.
    pub fn of_level(&self, level: &Level) -> Plan {
        Plan {
            counts: level.counts.clone(),
            levels: Vec::new(),
            ..self.clone()
        }
    }

    /// The level of a size: the first that holds it, else the last; `None` if there are no levels.
    pub fn level(&self, depth: usize, width: usize) -> Option<usize> {
        let last = self.levels.len().checked_sub(1)?;
        let holds = |level: &Level| level.holds(depth, width);
        Some(self.levels.iter().position(holds).unwrap_or(last))
    }

    /// The set that composes a part.
    pub fn set(&self, part: Part) -> &str {
        &self.sets[&part]
    }

    /// True if templates compose the weight of this name, either timm's
    /// (`blocks.0.attn.qkv.weight`) or that of all layers stacked (`blocks.attn.qkv.weight`).
    pub fn composes(&self, name: &str) -> bool {
        let in_block = name.strip_prefix("blocks.").unwrap_or_default();
        let of_layer = |c: char| c.is_ascii_digit() || c == '.';
        let stacked = format!("blocks.{}", in_block.trim_start_matches(of_layer));
        Part::ALL.iter().any(|part| part.stacked_name() == stacked)
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
