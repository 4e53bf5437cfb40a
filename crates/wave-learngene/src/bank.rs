//! The scaler bank: scalers stored at a few depths and one width, and resampled to any depth and width.
//!
//! *Depth.* Layer `l` of an `L`-layer model sits at relative depth `l / (L - 1)` (in TLEG at `l / L`, see
//! [`DepthRule`]), and anchor `k` of `K` at `k / (K - 1)`. A layer interpolates linearly between its two
//! neighbouring anchors.
//!
//! *Width.* The width is divided into blocks. Block `j` of the target copies block `j mod n` of the
//! source's `n`: a prefix when narrower, cyclic copies when wider. On an input axis, each copy is
//! divided by the number of copies, so a model widened by an integer factor computes the same
//! function (the duplication of Net2Net; layer norm keeps mean and variance when every entry is
//! repeated equally often). A copy that would be cropped is set to 0, since the rest of it could not
//! make up for the lost part.

use crate::{Part, Plan};
use candle_core::{Result, Tensor};
use std::fmt;
use wave_models::vit::VitShape;
use wave_ops::Kronecker;

#[cfg(test)]
mod tests;

/// The relative depth of layer `l` of `L`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DepthRule {
    /// `l / (L - 1)`: the last layer reads the last anchor.
    #[default]
    LastIsOne,
    /// `l / L`, as in TLEG: the last anchor lies one layer past the last.
    Tleg,
}

/// The formula, as written in a template file.
impl fmt::Display for DepthRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DepthRule::LastIsOne => "l/(L-1)",
            DepthRule::Tleg => "l/L",
        })
    }
}

impl DepthRule {
    /// The rule with this formula.
    pub fn from_formula(text: &str) -> Option<DepthRule> {
        let all = [DepthRule::LastIsOne, DepthRule::Tleg];
        all.into_iter().find(|rule| rule.to_string() == text)
    }
}

/// Interpolation weights `(depth, anchors)` of each layer over the anchors: at most two adjacent nonzero entries per
/// row, summing to 1. With [`DepthRule::LastIsOne`] and as many layers as anchors, they are exactly the identity.
pub(crate) fn depth_matrix(depth: usize, anchors: usize, rule: DepthRule) -> Vec<Vec<f32>> {
    let mut rows = vec![vec![0.0; anchors]; depth];
    // Position l (K - 1) / steps, split into quotient and remainder in integers, so that both ends are exact.
    let steps = match rule {
        DepthRule::LastIsOne => depth.saturating_sub(1).max(1),
        DepthRule::Tleg => depth,
    };
    for (l, row) in rows.iter_mut().enumerate() {
        let position = l * (anchors - 1);
        let (k, rest) = (position / steps, position % steps);
        let f = rest as f32 / steps as f32;
        row[k] = 1.0 - f;
        if rest > 0 {
            row[k + 1] = f;
        }
    }
    rows
}

/// Interpolates scalers, or per-layer biases and norms, from anchors `(K, ...)` to `(depth, ...)`. Returns the bank
/// itself when each layer reads its own anchor.
pub(crate) fn interpolate_depth(bank: &Tensor, depth: usize, rule: DepthRule) -> Result<Tensor> {
    let anchors = bank.dim(0)?;
    if anchors == depth && (rule == DepthRule::LastIsOne || depth == 1) {
        return Ok(bank.clone());
    }
    let matrix = depth_matrix(depth, anchors, rule).concat();
    let matrix = Tensor::from_vec(matrix, (depth, anchors), bank.device())?; // (L, K)
    let flat = bank.reshape((anchors, ()))?; // (K, ...)
    let read = matrix.to_dtype(bank.dtype())?.matmul(&flat)?; // (L, ...)
    let mut dims = bank.dims().to_vec();
    dims[0] = depth;
    read.reshape(dims)
}

/// Resizes the scalers `(layers, n_templates, r, c)` of one shape to another: [`gather_width`] over block rows (q, k
/// and v separately) and, divided by the number of copies, over block columns.
///
/// If the template size divides the source's columns but not the wider target's, the last block of
/// columns is a copy that will be cropped: its scalers are 0, and it is not counted as a copy.
pub(crate) fn resize_scalers(
    plan: &Plan,
    part: Part,
    scalers: &Tensor,
    from: &VitShape,
    to: &VitShape,
) -> Result<Tensor> {
    let (q, r_from, c_from) = plan.blocks(part, from);
    let (_, r_to, c_to) = plan.blocks(part, to);
    let rows = gather_width(scalers, 2, q, 1, r_from / q, r_to / q, false)?;
    let t = plan.template_size;
    let ((_, from), (_, to)) = (part.rows_cols(from), part.rows_cols(to));
    let whole = to / t;
    let cropped_copy = c_from <= whole && !to.is_multiple_of(t) && from.is_multiple_of(t);
    if !cropped_copy || plan.kronecker == Kronecker::Interleave {
        return gather_width(&rows, 3, 1, 1, c_from, c_to, true);
    }
    let read = gather_width(&rows, 3, 1, 1, c_from, whole, true)?;
    read.pad_with_zeros(3, 0, c_to - whole)
}

/// Resizes an axis of scalers (a block is one entry) or inherited weights from `segments * from_width` to
/// `segments * to_width` entries: entry `i` of the target copies entry `i mod from_width`. Equal widths return the
/// tensor itself.
///
/// The axis holds `segments` runs, each resized on its own: three for rows of q, k and v, otherwise one.
/// `unit` is the size of a block: where it divides both widths, whole blocks are moved. With `divide`, each entry is
/// divided by its number of copies in the result, as an input axis needs, such as the head's.
pub(crate) fn gather_width(
    x: &Tensor,
    axis: usize,
    segments: usize,
    unit: usize,
    from_width: usize,
    to_width: usize,
    divide: bool,
) -> Result<Tensor> {
    let dims = x.dims();
    // Moving whole blocks is the same gather with fewer indices.
    let whole = from_width.is_multiple_of(unit) && to_width.is_multiple_of(unit);
    let unit = if whole { unit } else { 1 };
    let (source, target) = (from_width / unit, to_width / unit);
    if source == target {
        return Ok(x.clone());
    }
    let outer: usize = dims[..axis].iter().product();
    let inner: usize = dims[axis + 1..].iter().product();
    let blocks = x.reshape((outer * segments, source, unit * inner))?; // (outer q, n, unit inner)
    let read = if target < source {
        blocks.narrow(1, 0, target)? // (outer q, m, unit inner)
    } else {
        copies(&blocks, target, divide)? // (outer q, m, unit inner)
    };
    let mut to = dims.to_vec();
    to[axis] = segments * target * unit;
    // In the backward pass this reshape gives the index select the contiguous gradient that it needs.
    read.reshape(to)
}

/// Repeats the `n` blocks of `(outer, n, inner)` cyclically up to `m > n` of them.
fn copies(blocks: &Tensor, m: usize, divide: bool) -> Result<Tensor> {
    let n = blocks.dim(1)?;
    let device = blocks.device();
    let indices: Vec<u32> = (0..n as u32).cycle().take(m).collect();
    let read = blocks.index_select(&Tensor::from_vec(indices, m, device)?, 1)?;
    if !divide {
        return Ok(read);
    }
    if m.is_multiple_of(n) {
        return read / (m / n) as f64;
    }
    // The first m mod n blocks have one copy more than the rest.
    let share = |j: usize| 1.0 / (m / n + usize::from(j % n < m % n)) as f64;
    let share: Vec<f64> = (0..m).map(share).collect();
    let share = Tensor::from_vec(share, (1, m, 1), device)?.to_dtype(blocks.dtype())?;
    read.broadcast_mul(&share)
}
