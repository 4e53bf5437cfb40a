//! Which set of templates composes which part, how many templates it holds, and every size that
//! follows. A [`Plan`] is checked once, where it is made.

use crate::{BlockShape, Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The order of the Kronecker product of scalers `S` and templates `T`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kronecker {
    /// `S (x) T`: whole templates laid side by side, each weighted by one scaler, as in the paper's
    /// "concatenating and weighting". Keeps q, k, v and the heads in contiguous rows.
    #[default]
    Tile,
    /// `T (x) S`, as the paper prints equation 3. Block rows interleave, and with them the rows of
    /// q, k and v.
    Interleave,
}

impl Kronecker {
    /// The name in recipes and files: `"tile"` or `"interleave"`.
    pub fn name(self) -> &'static str {
        match self {
            Kronecker::Tile => "tile",
            Kronecker::Interleave => "interleave",
        }
    }
}

impl fmt::Display for Kronecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kronecker {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, PlanError> {
        match name {
            "tile" => Ok(Kronecker::Tile),
            "interleave" => Ok(Kronecker::Interleave),
            _ => Err(PlanError::UnknownKronecker(name.to_owned())),
        }
    }
}

/// How the parts of a block are composed from sets of templates.
///
/// [`Plan::new`], [`Plan::default_budget`] and deserialisation check it. A part without a set is
/// not composed: its weights stay ordinary ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedPlan")]
pub struct Plan {
    /// Rows, and columns, of a template.
    pub template_size: usize,
    /// The order of the product.
    pub kronecker: Kronecker,
    /// The set that composes each part; two parts may share one, such as `"mlp"`.
    pub sets: BTreeMap<Part, String>,
    /// How many templates each set holds.
    pub counts: BTreeMap<String, usize>,
}

impl Plan {
    /// A plan from its fields, checked.
    ///
    /// # Errors
    /// If the template size is 0, no part has a set, a set has no name fit for a tensor, no count
    /// or a count of 0, if there is a count for a set that no part uses, or if the templates have
    /// more parameters than a machine can count.
    pub fn new(
        template_size: usize,
        kronecker: Kronecker,
        sets: BTreeMap<Part, String>,
        counts: BTreeMap<String, usize>,
    ) -> Result<Self, PlanError> {
        if template_size == 0 {
            return Err(PlanError::TemplateSize);
        }
        if sets.is_empty() {
            return Err(PlanError::NoParts);
        }
        for (&part, set) in &sets {
            let fit = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if set.is_empty() || !set.chars().all(fit) {
                return Err(PlanError::SetName(set.clone()));
            }
            match counts.get(set) {
                None => return Err(PlanError::MissingCount(part, set.clone())),
                Some(0) => return Err(PlanError::ZeroCount(set.clone())),
                Some(_) => {}
            }
        }
        if let Some(set) = counts
            .keys()
            .find(|&s| !sets.values().any(|used| used == s))
        {
            return Err(PlanError::UnusedSet(set.clone()));
        }
        // Later sums and products of these sizes cannot overflow.
        let area = template_size.checked_mul(template_size);
        let all = counts.values().try_fold(0usize, |n, &m| n.checked_add(m));
        if area.zip(all).and_then(|(a, n)| a.checked_mul(n)).is_none() {
            return Err(PlanError::TooLarge(template_size));
        }
        Ok(Self {
            template_size,
            kronecker,
            sets,
            counts,
        })
    }

    /// Every part composed by a set of its own, named after it.
    pub fn own_sets() -> BTreeMap<Part, String> {
        Part::ALL.map(|part| (part, part.name().to_owned())).into()
    }

    /// The budget that fits the paper's parameter columns: that of 24 templates of
    /// `reference_width` squared, 6 for qkv, 2 for proj, 8 for fc1 and 8 for fc2, which is exactly
    /// two layers. Smaller templates come in proportion: half the size, four times as many (6, 2,
    /// 8, 8 become 24, 8, 32, 32); rounded up where the size does not divide the width.
    ///
    /// # Errors
    /// If the reference width or the template size is 0, or the counts overflow.
    pub fn default_budget(reference_width: usize, template_size: usize) -> Result<Self, PlanError> {
        if template_size == 0 {
            return Err(PlanError::TemplateSize);
        }
        let (d, t) = (reference_width as u128, template_size as u128);
        let mut counts = BTreeMap::new();
        for (part, n) in Part::ALL.into_iter().zip([6, 2, 8, 8]) {
            let scaled = d.checked_mul(d).and_then(|area| area.checked_mul(n));
            let count = scaled
                .map(|area| area.div_ceil(t * t))
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(PlanError::Budget(reference_width, template_size))?;
            counts.insert(part.name().to_owned(), count);
        }
        Self::new(template_size, Kronecker::Tile, Self::own_sets(), counts)
    }

    /// How many templates compose this part; 0 if the plan does not cover it.
    pub fn n_templates(&self, part: Part) -> usize {
        let set = self.sets.get(&part);
        set.and_then(|set| self.counts.get(set))
            .copied()
            .unwrap_or(0)
    }

    /// The grid of template-sized blocks that covers a part: `(segments, r, c)`.
    ///
    /// `r` counts the rows of all segments together. Where the template size does not divide a
    /// side, the grid covers the next multiple and [`compose`](crate::compose()) crops, each of q, k
    /// and v on its own, so that heads stay aligned.
    pub fn blocks(&self, part: Part, shape: &BlockShape) -> (usize, usize, usize) {
        let t = self.template_size;
        let segments = part.segments();
        let (rows, cols) = part.rows_cols(shape);
        let r = segments * (rows / segments).div_ceil(t);
        (segments, r, cols.div_ceil(t))
    }

    /// The shape `(n_templates, r, c)` of one layer's scalers for a part.
    pub fn scaler_shape(&self, part: Part, shape: &BlockShape) -> [usize; 3] {
        let (_, r, c) = self.blocks(part, shape);
        [self.n_templates(part), r, c]
    }

    /// How many scalers a model of this shape and depth has.
    pub fn scaler_count(&self, shape: &BlockShape, depth: usize) -> usize {
        let parts = self.sets.keys();
        let per_layer: usize = parts
            .map(|&part| self.scaler_shape(part, shape).iter().product::<usize>())
            .sum();
        depth * per_layer
    }

    /// How many parameters all templates have together.
    pub fn template_parameters(&self) -> usize {
        let n: usize = self.counts.values().sum();
        n * self.template_size * self.template_size
    }

    /// The set that composes a part.
    pub(crate) fn set(&self, part: Part) -> Result<&str, PlanError> {
        match self.sets.get(&part) {
            Some(set) => Ok(set),
            None => Err(PlanError::NotCovered(part)),
        }
    }
}

/// A [`Plan`] as written in a file, before its check; without `sets`, every part has its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedPlan {
    template_size: usize,
    #[serde(default)]
    kronecker: Kronecker,
    #[serde(default = "Plan::own_sets")]
    sets: BTreeMap<Part, String>,
    counts: BTreeMap<String, usize>,
}

impl TryFrom<UncheckedPlan> for Plan {
    type Error = PlanError;

    fn try_from(plan: UncheckedPlan) -> Result<Self, PlanError> {
        Self::new(plan.template_size, plan.kronecker, plan.sets, plan.counts)
    }
}

/// What is wrong with a plan, or with tensors that should fit one.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The template size is 0.
    #[error("template size is 0; use a divisor of the widths to compose, such as 64 or 192")]
    TemplateSize,
    /// No part has a set.
    #[error("no part has a set of templates; give at least one of qkv, proj, fc1, fc2 a set")]
    NoParts,
    /// A set's name cannot be part of a tensor's name.
    #[error("set name {0:?}: use letters, digits, `_` and `-` only, and at least one of them")]
    SetName(String),
    /// A part uses a set that has no count.
    #[error("{0}: its set {1:?} has no template count; add one, or name a set that has")]
    MissingCount(Part, String),
    /// A set has no templates.
    #[error("set {0:?} has 0 templates; use 1 or more, or leave its parts out of the plan")]
    ZeroCount(String),
    /// A set is counted but unused.
    #[error(
        "set {0:?} has a template count but composes no part; remove it, or name it for a part"
    )]
    UnusedSet(String),
    /// The number of template parameters overflows.
    #[error("templates of size {0} in these counts are too large; use a size of 1 to 65536")]
    TooLarge(usize),
    /// The default budget cannot be met.
    #[error("no budget for reference width {0} in templates of size {1}; use sizes of 1 to 65536")]
    Budget(usize, usize),
    /// Not the name of a part.
    #[error("unknown part {0:?}; expected qkv, proj, fc1 or fc2")]
    UnknownPart(String),
    /// Not the name of a Kronecker order.
    #[error("unknown Kronecker order {0:?}; expected tile or interleave")]
    UnknownKronecker(String),
    /// Not the formula of a depth rule.
    #[error("unknown depth rule {0:?}; expected l/(L-1) or l/L")]
    UnknownDepthRule(String),
    /// The plan composes no such part.
    #[error("{0}: not covered by the plan; add a set of templates for it")]
    NotCovered(Part),
    /// A side of the block shape is 0.
    #[error("block of width {} and hidden width {}: both must be 1 or more", .0.width, .0.hidden)]
    EmptyBlock(BlockShape),
    /// A set of templates is absent.
    #[error("{0}: the templates of set {1:?} are missing; load the file the plan belongs to")]
    MissingTemplates(Part, String),
    /// A set of templates has the wrong shape.
    #[error(
        "set {set:?}: templates of shape {found:?}, but the plan has {expected:?}; \
         load the file the plan belongs to"
    )]
    TemplateShape {
        /// The set.
        set: String,
        /// The shape of the tensor given.
        found: Vec<usize>,
        /// The shape the plan asks for.
        expected: [usize; 3],
    },
    /// The scalers of a part are absent.
    #[error("{0}: its scalers are missing; every part of the plan needs scalers")]
    MissingScalers(Part),
    /// The scalers of a part have the wrong shape.
    #[error(
        "{part}: scalers of shape {found:?}, but width {} and hidden width {} need \
         [layers, {}, {}, {}] with 1 layer or more; resize the scalers to this shape first",
        shape.width, shape.hidden, expected[0], expected[1], expected[2]
    )]
    ScalerShape {
        /// The part.
        part: Part,
        /// The shape of the tensor given.
        found: Vec<usize>,
        /// The shape of one layer's scalers.
        expected: [usize; 3],
        /// The block to compose.
        shape: BlockShape,
    },
    /// Two parts disagree about the number of layers.
    #[error("{part}: scalers of {found} layers, but other parts have {expected}; use one depth")]
    Depth {
        /// The part.
        part: Part,
        /// Its number of layers.
        found: usize,
        /// The number of layers of the parts before it.
        expected: usize,
    },
    /// A bank without anchors, or a model without layers.
    #[error("cannot read {0} anchors at depth {1}; both must be 1 or more")]
    EmptyBank(usize, usize),
    /// An axis cannot be gathered.
    #[error(
        "axis {axis} of a tensor of shape {found:?} is not {segments} segments of {source_size}, \
         to be read as {target_size}; name the axis and sizes it was made with, all 1 or more"
    )]
    Axis {
        /// The axis to gather along.
        axis: usize,
        /// The shape of the tensor given.
        found: Vec<usize>,
        /// The number of segments asked for.
        segments: usize,
        /// The length of one segment asked for.
        source_size: usize,
        /// The length of one segment wanted.
        target_size: usize,
    },
}

impl From<PlanError> for candle_core::Error {
    fn from(error: PlanError) -> Self {
        candle_core::Error::wrap(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vit(width: usize) -> BlockShape {
        BlockShape {
            width,
            hidden: 4 * width,
        }
    }

    #[test]
    fn default_budget_is_two_layers_of_parameters() {
        for d in [192, 384, 768] {
            let plan = Plan::default_budget(d, d).unwrap();
            assert_eq!(plan.counts.values().sum::<usize>(), 24);
            assert_eq!(plan.template_parameters(), 24 * d * d);
            assert_eq!(plan.scaler_count(&vit(d), 1), 84); // 6*3 + 2*1 + 8*4 + 8*4
            assert_eq!(plan.scaler_count(&vit(d), 12), 1008);
        }
    }

    // The paper's Table 2: 96 templates of 192, six layers, widths 384 to 1536.
    // >>> [6 * (w // 192)**2 * (24*3 + 8 + 32*4 + 32*4) for w in (384, 1536)]
    // [8064, 129024]
    #[test]
    fn smaller_templates_keep_the_budget() {
        let plan = Plan::default_budget(384, 192).unwrap();
        let counts = Part::ALL.map(|part| plan.n_templates(part));
        assert_eq!(counts, [24, 8, 32, 32]);
        assert_eq!(plan.template_parameters(), 24 * 384 * 384);
        assert_eq!(plan.scaler_count(&vit(384), 6), 8064);
        assert_eq!(plan.scaler_count(&vit(1536), 6), 129_024);
    }

    #[test]
    fn a_shared_set_is_counted_once() {
        let mut sets = Plan::own_sets();
        sets.insert(Part::Fc1, "mlp".to_owned());
        sets.insert(Part::Fc2, "mlp".to_owned());
        let counts = [("qkv", 6), ("proj", 2), ("mlp", 16)];
        let counts = counts.map(|(set, n)| (set.to_owned(), n)).into();
        let plan = Plan::new(192, Kronecker::Tile, sets, counts).unwrap();
        assert_eq!(plan.template_parameters(), 24 * 192 * 192);
        assert_eq!(plan.scaler_count(&vit(192), 12), 1776); // 148 per layer
    }

    #[test]
    fn uneven_widths_take_the_next_multiple_per_segment() {
        let plan = Plan::default_budget(64, 64).unwrap();
        let shape = BlockShape {
            width: 96,
            hidden: 200,
        };
        assert_eq!(plan.blocks(Part::Qkv, &shape), (3, 6, 2));
        assert_eq!(plan.blocks(Part::Proj, &shape), (1, 2, 2));
        assert_eq!(plan.blocks(Part::Fc1, &shape), (1, 4, 2));
        assert_eq!(plan.blocks(Part::Fc2, &shape), (1, 2, 4));
    }

    #[test]
    fn a_plan_survives_json_and_is_checked_on_the_way() {
        let plan = Plan::default_budget(192, 96).unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        assert!(json.contains(r#""kronecker":"tile""#), "{json}");
        assert!(json.contains(r#""sets":{"qkv":"qkv","#), "{json}");
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);

        let bare = r#"{"template_size": 8, "counts": {"qkv": 6, "proj": 2, "fc1": 8, "fc2": 8}}"#;
        let expected = Plan::default_budget(8, 8).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(bare).unwrap(), expected);

        let missing = r#"{"template_size": 8, "counts": {"qkv": 6, "proj": 2, "fc1": 8}}"#;
        let error = serde_json::from_str::<Plan>(missing).unwrap_err();
        assert!(error.to_string().contains("fc2"), "{error}");
    }

    #[test]
    fn a_plan_may_leave_parts_out() {
        let sets = BTreeMap::from([(Part::Fc1, "fc1".to_owned())]);
        let counts = BTreeMap::from([("fc1".to_owned(), 8)]);
        let plan = Plan::new(8, Kronecker::Tile, sets, counts).unwrap();
        assert_eq!(plan.n_templates(Part::Qkv), 0);
        assert_eq!(plan.scaler_count(&vit(8), 1), 32);
    }

    #[test]
    fn wrong_plans_name_the_fault_and_the_remedy() {
        let counts = |n: usize, extra: Option<&str>| {
            let mut counts: BTreeMap<_, _> =
                Part::ALL.map(|part| (part.name().to_owned(), n)).into();
            counts.extend(extra.map(|set| (set.to_owned(), 1)));
            counts
        };
        let check = |t, sets, counts, words: &[&str]| {
            let error = Plan::new(t, Kronecker::Tile, sets, counts).unwrap_err();
            let text = error.to_string();
            for word in words {
                assert!(text.contains(word), "{text:?} lacks {word:?}");
            }
        };
        let own = Plan::own_sets;
        let mut slash = own();
        slash.insert(Part::Qkv, "a/b".to_owned());
        check(0, own(), counts(1, None), &["template size is 0"]);
        check(8, BTreeMap::new(), counts(1, None), &["no part", "qkv"]);
        check(8, slash, counts(1, Some("a/b")), &["a/b", "letters"]);
        check(8, own(), counts(0, None), &["0 templates", "1 or more"]);
        check(8, own(), counts(1, Some("x")), &["\"x\"", "remove"]);
        check(usize::MAX, own(), counts(1, None), &["too large"]);
        check(8, own(), counts(usize::MAX, None), &["too large"]);
        assert!(Plan::default_budget(8, 0).is_err());
        assert!(Plan::default_budget(0, 8).is_err());
        assert!(Plan::default_budget(usize::MAX, 1).is_err());
        assert_eq!(
            "Interleave".parse::<Kronecker>().unwrap_err().to_string(),
            "unknown Kronecker order \"Interleave\"; expected tile or interleave"
        );
        assert_eq!("tile".parse::<Kronecker>().unwrap(), Kronecker::Tile);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_grid_covers_every_part_and_no_more(
            t in 1usize..9, width in 1usize..40, hidden in 1usize..80,
        ) {
            let plan = Plan::default_budget(8, t).unwrap();
            let shape = BlockShape { width, hidden };
            for part in Part::ALL {
                let (segments, r, c) = plan.blocks(part, &shape);
                let (rows, cols) = part.rows_cols(&shape);
                let tall = r / segments * t;
                prop_assert_eq!(r % segments, 0);
                prop_assert!(tall >= rows / segments && tall < rows / segments + t);
                prop_assert!(c * t >= cols && c * t < cols + t);
                prop_assert_eq!(plan.scaler_shape(part, &shape), [plan.n_templates(part), r, c]);
            }
        }
    }
}
