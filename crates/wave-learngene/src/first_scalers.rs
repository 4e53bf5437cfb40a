//! Initial scalers: a ramp over depth between two layers' worth of templates, noise, and the two
//! earlier learngenes that are special cases of templates with scalers.
//!
//! A part has `B = r c` blocks, numbered row by row: block `j` is at row `j / c` and column
//! `j mod c`. Template indices wrap around at the size of the set. Parts that share a set start at
//! different templates, each after the `2 B` of the parts before it.

use crate::nearest::blocks;
use crate::{DepthRule, Part, Plan, Scalers, Templates};
use candle_core::{Device, Result, Tensor};
use wave_models::vit::VitShape;

#[cfg(test)]
mod tests;

/// A ramp over depth: at anchor `k` of `K`, block `j` is `1 - k / (K - 1)` of template `j` and
/// `k / (K - 1)` of template `j + B`, plus `noise` times a sample of `normal` in every scaler.
///
/// `unit` is the narrowest transformer block to be made, and has the `B` blocks; a wider one repeats
/// it along the diagonal (`S = I` in the Kronecker product), so that properties of a narrow block's
/// weight products carry over to a wide one. Off the diagonal there is only noise.
///
/// The default budget of templates holds exactly two layers of the unit, so the first anchor starts as one of them and
/// the last as the other. A single anchor starts as the first. Samples are drawn part by part, entry by entry.
pub fn ramp_scalers(
    plan: &Plan,
    shape: &VitShape,
    unit: &VitShape,
    anchors: usize,
    noise: f32,
    normal: &mut dyn FnMut() -> f32,
) -> Result<Scalers> {
    let steps = anchors.saturating_sub(1).max(1) as f32;
    let ramp = |k: usize| (1.0 - k as f32 / steps, k as f32 / steps);
    let mut draw = || noise * normal();
    blockwise(plan, shape, unit, anchors, ramp, &mut draw)
}

/// Replaces the first templates (N, t, t) of a part's set with the blocks of `weights` (layers, rows, columns), layer
/// after layer, in the order in which [`ramp_scalers`] reads them: with two layers, a network of this shape starts as
/// the first layer at one end of its depth, and as the second at the other.
pub fn seed_templates(
    plan: &Plan,
    part: Part,
    templates: &Tensor,
    weights: &Tensor,
    shape: &VitShape,
) -> Result<Tensor> {
    let t = plan.template_size;
    let blocks = blocks(plan, part, weights, shape)?.reshape(((), t, t))?; // (L r c, t, t)
    let n = templates.dim(0)?;
    let start = first_template(plan, part, shape).min(n);
    let taken = blocks.dim(0)?.min(n - start);
    let parts = [
        templates.narrow(0, 0, start)?,
        blocks.narrow(0, 0, taken)?,
        templates.narrow(0, start + taken, n - start - taken)?,
    ];
    Tensor::cat(&parts, 0)
}

/// Independent samples of variance `deviation² / sum_i mean(T_i²)`, so that composed weights have standard deviation
/// `deviation` for any templates. `normal` returns standard normal numbers, used as in [`ramp_scalers`].
pub fn random_scalers(
    plan: &Plan,
    templates: &Templates,
    shape: &VitShape,
    depth: usize,
    deviation: f64,
    normal: &mut dyn FnMut() -> f32,
) -> Result<Scalers> {
    let of_part = |(&part, set): (&Part, &String)| {
        let squares = templates[set].sqr()?.mean((1, 2))?;
        let energy = squares.sum_all()?.to_scalar::<f32>()?;
        let sigma = (deviation / f64::from(energy).sqrt().max(1e-12)) as f32;
        let [n, r, c] = plan.scaler_shape(part, shape);
        let s = (0..depth * n * r * c).map(|_| sigma * normal()).collect();
        let s = Tensor::from_vec::<_, f32>(s, (depth, n, r, c), &Device::Cpu)?; // (L, N, r, c)
        Ok((part, s))
    };
    plan.sets.iter().map(of_part).collect()
}

/// The linear learngene TLEG (the WAVE paper's TELG), `W_l = B + (l / L) A`, as a special case:
/// template `j` is block `j` of `B`, template `j + B` block `j` of `A`.
///
/// With [`DepthRule::Tleg`], two or more anchors are exact at every depth `L`. With the other rule they are exact
/// only where there is one per layer.
pub fn telg_scalers(
    plan: &Plan,
    shape: &VitShape,
    anchors: usize,
    rule: DepthRule,
) -> Result<Scalers> {
    let last = match rule {
        DepthRule::LastIsOne => anchors,
        DepthRule::Tleg => anchors.saturating_sub(1).max(1),
    };
    let linear = |k: usize| (1.0, k as f32 / last as f32);
    blockwise(plan, shape, shape, anchors, linear, &mut || 0.0)
}

/// Share Init, one block of weights for every layer, as a special case: template `j` is block `j`.
pub fn share_scalers(plan: &Plan, shape: &VitShape, depth: usize) -> Result<Scalers> {
    blockwise(plan, shape, shape, depth, |_| (1.0, 0.0), &mut || 0.0)
}

/// Scalers that compose block `j` of the unit in layer `l` from templates `j` and `j + B`, weighted
/// by `weights(l)`, plus `draw` in every scaler, and repeat the unit along the diagonal.
fn blockwise(
    plan: &Plan,
    shape: &VitShape,
    unit: &VitShape,
    depth: usize,
    weights: impl Fn(usize) -> (f32, f32),
    draw: &mut dyn FnMut() -> f32,
) -> Result<Scalers> {
    let of_part = |&part: &Part| {
        let [n, r, c] = plan.scaler_shape(part, shape);
        let (segments, rows, columns) = plan.blocks(part, unit);
        let (height, unit_height) = (r / segments, rows / segments);
        let start = first_template(plan, part, unit);
        let mut s: Vec<f32> = (0..depth * n * r * c).map(|_| draw()).collect(); // (L, N, r, c)
        for (l, s) in s.chunks_mut(n * r * c).enumerate() {
            let (first, second) = weights(l);
            for at in 0..r * c {
                let (segment, a, b) = (at / c / height, at / c % height, at % c);
                if a / unit_height != b / columns {
                    continue;
                }
                let j = (segment * unit_height + a % unit_height) * columns + b % columns;
                s[(start + j) % n * r * c + at] += first;
                s[(start + j + rows * columns) % n * r * c + at] += second;
            }
        }
        let s = Tensor::from_vec(s, (depth, n, r, c), &Device::Cpu)?;
        Ok((part, s))
    };
    plan.sets.keys().map(of_part).collect()
}

/// The first template of a part within its set: after those of earlier parts that share the set.
fn first_template(plan: &Plan, part: Part, shape: &VitShape) -> usize {
    let earlier = plan.parts(plan.set(part)).filter(|other| *other < part);
    earlier
        .map(|other| 2 * plan.block_count(other, shape))
        .sum()
}
