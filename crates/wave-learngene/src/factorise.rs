//! The templates nearest to given weights, in closed form.
//!
//! Take the weights of all layers of all parts that share a set, cut into blocks of template size. They
//! are the rows of one matrix `B (m, t t)`, and composition is a product of two factors,
//! `S (m, N) . T (N, t t)`. The nearest such product in the Frobenius norm is the singular value
//! decomposition of `B` truncated to `N` terms (Eckart and Young). `T` holds the first right singular
//! vectors, `S` the first left ones, each times the square root of its singular value.

use crate::compose::{Scalers, Templates};
use crate::{Part, Plan, PlanError};
use candle_core::{DType, Device, Result, Tensor};
use faer::{Mat, Side};
use std::collections::BTreeMap;
use wave_models::vit::VitShape;
use wave_ops::Kronecker;

#[cfg(test)]
mod tests;

/// Templates and scalers that compose to nearly the weights they were made from.
#[derive(Clone, Debug)]
pub struct Factorised {
    /// `(N, t, t)` by set.
    pub templates: Templates,
    /// `(layers, N, r, c)` by part.
    pub scalers: Scalers,
    /// The share of the sum of squares of the weights that the templates keep, 0 to 1, by set.
    /// Weights without structure keep some too: compare with random ones of the same shape.
    pub energy: BTreeMap<String, f64>,
}

/// Factorises the weights of all layers.
///
/// Exact, up to rounding, for weights that as many templates composed. Where a set has more
/// templates than its blocks have dimensions, those left over are zero. Where the template size
/// does not divide a side, weights are filled up with zeros.
///
/// # Shapes
/// `weights`: `(layers, rows, columns)` for every part of the plan.
///
/// # Errors
/// A [`PlanError`] if a part is missing or has another shape; or if a decomposition does not
/// converge.
pub fn factorise(
    plan: &Plan,
    weights: &BTreeMap<Part, Tensor>,
    shape: &VitShape,
) -> Result<Factorised> {
    let t = plan.template_size;
    let mut templates = BTreeMap::new();
    let mut scalers = Scalers::new();
    let mut energy = BTreeMap::new();
    for (set, &n) in &plan.counts {
        let parts: Vec<Part> = plan
            .sets
            .iter()
            .filter(|(_, s)| *s == set)
            .map(|(part, _)| *part)
            .collect();
        let mut cut = Vec::with_capacity(parts.len());
        for &part in &parts {
            let w = weights.get(&part).ok_or(PlanError::MissingScalers(part))?;
            cut.push(blocks(plan, part, w, shape)?); // (L r c, t t)
        }
        let (s, t_flat, kept) = truncated(&Tensor::cat(&cut, 0)?, n)?; // (m, N), (N, t t)
        templates.insert(set.clone(), t_flat.reshape((n, t, t))?);
        energy.insert(set.clone(), kept);
        let mut row = 0;
        for (part, cut) in parts.iter().zip(&cut) {
            let m = cut.dim(0)?;
            let (_, r, c) = plan.blocks(*part, shape);
            let own = s.narrow(0, row, m)?.reshape((m / (r * c), r * c, n))?;
            let own = own.transpose(1, 2)?.contiguous()?; // (L, N, r c)
            scalers.insert(*part, own.reshape((m / (r * c), n, r, c))?);
            row += m;
        }
    }
    Ok(Factorised {
        templates,
        scalers,
        energy,
    })
}

/// Weights of all layers, `(L, rows, columns)`, cut into blocks of template size: `(L r c, t t)`.
pub(crate) fn blocks(plan: &Plan, part: Part, w: &Tensor, shape: &VitShape) -> Result<Tensor> {
    let (rows, cols) = part.rows_cols(shape);
    let layers = match w.dims() {
        [layers, r, c] if (*r, *c) == (rows, cols) && *layers > 0 => *layers,
        found => candle_core::bail!(
            "weights of {part} have shape {found:?}; expected [layers, {rows}, {cols}]"
        ),
    };
    let t = plan.template_size;
    let (q, r, c) = plan.blocks(part, shape);
    let w = w.reshape((layers, q, rows / q, cols))?;
    let w = w.pad_with_zeros(2, 0, r / q * t - rows / q)?;
    let w = w.pad_with_zeros(3, 0, c * t - cols)?;
    let w = match plan.kronecker {
        Kronecker::Tile => w.reshape((layers, r, t, c, t))?.permute((0, 1, 3, 2, 4))?,
        Kronecker::Interleave => w.reshape((layers, t, r, t, c))?.permute((0, 2, 4, 1, 3))?,
    }; // (L, r, c, t, t)
    w.contiguous()?.reshape((layers * r * c, t * t))
}

/// `B ≈ S T` with `n` terms, and the share of `|B|^2` they keep: `S (m, n)`, `T (n, d)`.
///
/// Through the eigenvectors of the smaller Gram matrix, in double precision:
/// `B B' = U s^2 U'` gives `T = s^-½ U' B`, `S = U s^½`; `B' B = V s^2 V'` gives the mirror image.
fn truncated(b: &Tensor, n: usize) -> Result<(Tensor, Tensor, f64)> {
    let (m, d) = b.dims2()?;
    let values: Vec<f32> = b.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    let b = Mat::from_fn(m, d, |i, j| f64::from(values[i * d + j]));
    let wide = m <= d;
    let gram = if wide {
        &b * b.transpose()
    } else {
        b.transpose() * &b
    };
    let decomposition = gram
        .self_adjoint_eigen(Side::Lower)
        .map_err(|e| candle_core::Error::Msg(format!("no eigenvalues: {e:?}")))?;
    let (vectors, squares) = (decomposition.U(), decomposition.S().column_vector());
    let k = m.min(d);
    let total: f64 = (0..k).map(|i| squares[i].max(0.0)).sum();
    // Ascending: the last are the largest.
    let kept: f64 = (0..n.min(k)).map(|i| squares[k - 1 - i].max(0.0)).sum();
    let root = |i: usize| squares[k - 1 - i].max(0.0).sqrt().sqrt(); // of the singular value
    // Directions of no weight at all stay zero.
    let floor = squares[k - 1].max(0.0).sqrt().sqrt() * 1e-7;
    let chosen = vectors.subcols(k - n.min(k), n.min(k));
    let product = if wide {
        chosen.transpose() * &b // (n, d)
    } else {
        &b * chosen // (m, n)
    };
    let last = n.min(k);
    let entry = |small: bool, i: usize, j: usize| {
        // i-th term; `chosen` is in ascending order.
        if i >= last || root(i) <= floor {
            0.0
        } else if small {
            chosen[(j, last - 1 - i)] * root(i)
        } else if wide {
            product[(last - 1 - i, j)] / root(i)
        } else {
            product[(j, last - 1 - i)] / root(i)
        }
    };
    let s: Vec<f32> = (0..m * n)
        .map(|x| entry(wide, x % n, x / n) as f32)
        .collect();
    let t: Vec<f32> = (0..n * d)
        .map(|x| entry(!wide, x / d, x % d) as f32)
        .collect();
    let share = if total > 0.0 { kept / total } else { 1.0 };
    Ok((
        Tensor::from_vec(s, (m, n), &Device::Cpu)?,
        Tensor::from_vec(t, (n, d), &Device::Cpu)?,
        share,
    ))
}
