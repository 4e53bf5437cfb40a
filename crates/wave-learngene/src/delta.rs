//! Deltas: the changes to a learngene made by one adaptation to other data, for models of all sizes.
//!
//! A delta holds differences from some of the tensors of [`Learngene::tensors`], under their names. The
//! bank and the block weights have K anchors in the learngene but only a few in the delta, from which they
//! are interpolated to K. A delta holds the classifier itself rather than a difference, since other data
//! may have other classes. For templates it may hold low-rank differences: `templates.{set}.left` (N, t,
//! R) times `templates.{set}.right` (N, R, t).

use crate::bank::interpolate_depth;
use crate::levels::has_anchors;
use crate::{DepthRule, Learngene};
use candle_core::{DType, Device, Result, Tensor};
use wave_models::Weights;
use wave_models::vit::VitShape;

#[cfg(test)]
mod tests;

impl Learngene {
    /// A delta that changes nothing, with `anchors` anchors, for the bank and the tensors that `adapts`
    /// selects. If `classes` differs from the learngene's, the classifier is 0. With a `rank` above 0 it
    /// also holds template differences of that rank, with left factors sampled from `normal`.
    pub fn no_delta(
        &self,
        anchors: usize,
        classes: usize,
        rank: usize,
        normal: &mut impl FnMut() -> f32,
        adapts: impl Fn(&str) -> bool,
    ) -> Result<Weights> {
        let zeros = |dims: Vec<usize>| Tensor::zeros(dims, DType::F32, &Device::Cpu);
        let mut delta = Weights::new();
        for (name, t) in self.tensors() {
            if !is_head(&name) && (name.starts_with("bank.") || adapts(&name)) {
                delta.insert(name.clone(), zeros(delta_shape(&name, t.dims(), anchors))?);
            }
        }
        let factors = self.templates.iter().filter(|_| rank > 0);
        for (set, t) in factors {
            let (n, side, _) = t.dims3()?;
            let scale = (side as f32).sqrt().recip();
            let left = (0..n * side * rank).map(|_| scale * normal()).collect();
            let left = Tensor::from_vec::<_, f32>(left, (n, side, rank), &Device::Cpu)?;
            let right = zeros(vec![n, rank, side])?;
            delta.insert(format!("templates.{set}{LEFT}"), left);
            delta.insert(format!("templates.{set}{RIGHT}"), right);
        }
        for (name, dims) in self.heads(classes) {
            let own = self.inherited.get(&name);
            let own = own.filter(|t| t.dims() == dims).cloned();
            delta.insert(name, own.map_or_else(|| zeros(dims), Ok)?);
        }
        Ok(delta)
    }

    /// Applies a delta to the learngene. Differentiable in both. Fails if a tensor of the delta is not in this
    /// learngene or has another shape.
    pub fn with_delta(&self, delta: &Weights) -> Result<Learngene> {
        let classes = delta.get("head.weight").and_then(|t| t.dims().first());
        let classes = classes.copied().unwrap_or(self.auxiliary.classes);
        let heads = self.heads(classes);
        let own: Weights = self.tensors().into_iter().collect();
        let mut changes = Weights::new();
        for (set, t) in &self.templates {
            if let Some(change) = product(delta, set, t.dims())? {
                changes.insert(format!("templates.{set}"), change);
            }
        }
        for (name, change) in delta {
            let of_templates = |set: &str| set.starts_with("templates.") && own.contains_key(set);
            let factor = name.strip_suffix(LEFT).or(name.strip_suffix(RIGHT));
            if factor.is_some_and(of_templates) {
                continue; // in `product`
            }
            let anchors = change.dims().first().copied().unwrap_or(0).max(1);
            let head = heads.iter().find(|(head, _)| head == name);
            let expected = match (head, own.get(name)) {
                (Some((_, dims)), _) => dims.clone(),
                (None, Some(t)) => delta_shape(name, t.dims(), anchors),
                (None, None) => return Err(unknown(name)),
            };
            check_shape(name, change, &expected)?;
            let change = match own.get(name).filter(|_| has_anchors(name)) {
                Some(t) => interpolate_depth(change, t.dim(0)?, DepthRule::LastIsOne)?,
                None => change.clone(),
            };
            changes.insert(name.clone(), change);
        }
        self.changed(&changes, classes)
    }

    /// Applies differences to its tensors, and replaces the classifier, for `classes` classes; smaller levels take
    /// their part of the differences.
    fn changed(&self, changes: &Weights, classes: usize) -> Result<Learngene> {
        let mut changed = self.each(|name, t| match changes.get(name) {
            Some(change) if !is_head(name) => t + change,
            _ => Ok(t.clone()),
        })?;
        for (gene, level) in changed.smaller.iter_mut().zip(&self.plan.levels) {
            let mut cut = changes.clone();
            for (name, t) in &mut cut {
                *t = self.cut(name, t, level)?;
            }
            *gene = gene.changed(&cut, classes)?;
        }
        let heads = changes.iter().filter(|(name, _)| is_head(name));
        let heads = heads.map(|(name, t)| (name.clone(), t.clone()));
        changed.inherited.extend(heads);
        changed.auxiliary.classes = classes;
        Ok(changed)
    }

    /// Names and shapes of the classifier's weights.
    fn heads(&self, classes: usize) -> Vec<(String, Vec<usize>)> {
        let shape = VitShape {
            classes,
            ..self.auxiliary.clone()
        };
        let mut all = shape.stacked_parameters();
        all.retain(|(name, _)| is_head(name));
        all
    }
}

/// Name suffixes of the low-rank factors of a set's differences.
const LEFT: &str = ".left";
const RIGHT: &str = ".right";

/// The low-rank differences of a set of templates in a delta, if any.
fn product(delta: &Weights, set: &str, templates: &[usize]) -> Result<Option<Tensor>> {
    let factor = |end: &str| delta.get(&format!("templates.{set}{end}"));
    let (left, right) = match (factor(LEFT), factor(RIGHT)) {
        (None, None) => return Ok(None),
        (Some(left), Some(right)) => (left, right),
        _ => return Err(unknown(&format!("one factor of templates.{set}"))),
    };
    let rank = right.dims().get(1).copied().unwrap_or(0).max(1);
    let (n, t) = (templates[0], templates[1]);
    for (end, found, expected) in [(LEFT, left, [n, t, rank]), (RIGHT, right, [n, rank, t])] {
        check_shape(&format!("templates.{set}{end}"), found, &expected)?;
    }
    left.matmul(right).map(Some)
}

/// The error for a tensor that the templates do not have.
fn unknown(name: &str) -> candle_core::Error {
    candle_core::Error::Msg(format!(
        "the delta holds {name}, which these templates do not have; use it with the templates it \
         was made for"
    ))
}

/// Refuses a delta tensor of the wrong shape.
fn check_shape(name: &str, found: &Tensor, expected: &[usize]) -> Result<()> {
    if found.dims() != expected {
        candle_core::bail!(
            "the delta holds {name} of shape {:?}, expected {expected:?}; use it with the templates it was made for",
            found.dims()
        );
    }
    Ok(())
}

/// True for the tensors that [`Learngene::headless`] removes.
fn is_head(name: &str) -> bool {
    name.starts_with("head")
}

/// The delta's shape for a tensor of shape `dims` in the learngene.
fn delta_shape(name: &str, dims: &[usize], anchors: usize) -> Vec<usize> {
    match (has_anchors(name), dims) {
        (true, [_, rest @ ..]) => [&[anchors], rest].concat(),
        _ => dims.to_vec(),
    }
}
