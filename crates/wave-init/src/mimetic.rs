//! Mimetic attention: weights whose products resemble those of a trained transformer.
//!
//! ```text
//! per head     A = alpha Z + beta I ≈ U_k S_k V_kᵀ     W_Q = U_k S_k^½    W_K    = V_k S_k^½     (d, k)
//! per layer    A = alpha Z − beta I = U S Vᵀ           W_V = U S^½        W_proj = S^½ Vᵀ        (d, d)
//! ```
//!
//! with Z (d, d) of independent N(0, 1/d) entries, sampled separately for every head and layer, d the width
//! of the network, k the width of a head and y = x W. Thus W_Q W_Kᵀ is the best rank-k approximation of its
//! A, and W_V W_proj equals its A. (Trockman and Kolter 2023, section 4; the thesis' section 3.2.3, whose
//! equation 3.15 prints S where the product needs S^½.)
//!
//! The simpler method of the same section uses the same random matrix twice ([`Attention::Equal`]):
//!
//! ```text
//! per head     W_Q = W_K = Z    (d, k) of N(0, 1/k)     W_Q W_Kᵀ = Z Zᵀ: 1 on the diagonal on average
//! per layer    W_V = Z    (d, d) of N(0, 1/d)           W_proj = −Zᵀ, so that W_V W_proj = −Z Zᵀ
//! ```
//!
//! The thesis prints W_proj = −Z, whose product with Z has almost no diagonal. Noise and diagonal cannot be
//! chosen separately.
//!
//! A network stores the transposes, (outputs, inputs), and these functions return them.

use candle_core::{Device, Tensor};
use faer::{Mat, MatRef, Scale};
use rand_chacha::ChaCha8Rng;

use crate::error::{Result, named, no_convergence};
use crate::random::standard_normal;

/// Factorisation of mimetic attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// Products near the identity and its negative, factored by singular value decomposition (equations 3.12 to 3.18).
    #[default]
    Products,
    /// The same random normal matrix for query and key; likewise for value and, negated, projection. Only the sign
    /// of beta applies, not the mixing factors.
    Equal,
}

named!(Attention, "mimetic attention", "products" => Products, "equal" => Equal);

/// One head's Q and K rows, each (head_width, width), with W_Q W_Kᵀ ≈ alpha Z + beta I for a `mix` (alpha, beta).
///
/// Both Gram matrices over the rows of [`Attention::Products`] equal S_k: diagonal and descending. The signs of the two
/// matrices are only determined jointly, so compare products and never factors. With alpha 0 all singular
/// values are equal and their vectors are not unique; each head gets its own random ones.
///
/// # Errors
/// If the singular value decomposition does not converge.
pub fn query_key(
    attention: Attention,
    width: usize,
    head_width: usize,
    mix: (f64, f64),
    rng: &mut ChaCha8Rng,
) -> Result<(Tensor, Tensor)> {
    let (w_q, w_k) = factors(attention, width, head_width, mix, rng)?; // (d, k), (d, k)
    Ok((tensor(w_q.transpose())?, tensor(w_k.transpose())?)) // (k, d), (k, d)
}

/// One layer's V and projection, each (width, width), with W_V W_proj = alpha Z − beta I. Fails as [`query_key`] does.
pub fn value_projection(
    attention: Attention,
    width: usize,
    (alpha, beta): (f64, f64),
    rng: &mut ChaCha8Rng,
) -> Result<(Tensor, Tensor)> {
    let (w_v, w_proj_t) = factors(attention, width, width, (alpha, -beta), rng)?; // (d, d), (d, d)
    Ok((tensor(w_v.transpose())?, tensor(w_proj_t.as_ref())?))
}

/// Two (width, rank) matrices. The product left rightᵀ of [`Attention::Products`], U S^½ and V S^½, is the best
/// approximation of alpha Z + beta I of that rank; that of [`Attention::Equal`] is Z Zᵀ with the sign of beta.
fn factors(
    attention: Attention,
    width: usize,
    rank: usize,
    (alpha, beta): (f64, f64),
    rng: &mut ChaCha8Rng,
) -> Result<(Mat<f64>, Mat<f64>)> {
    if attention == Attention::Equal {
        let z = gaussian(width, rank, rng) * Scale(1.0 / (rank as f64).sqrt());
        let signed = &z * Scale(beta.signum());
        return Ok((z, signed));
    }
    if alpha == 0.0 {
        let u = gaussian(width, rank, rng).qr().compute_thin_Q(); // (d, k)
        let root = beta.abs().sqrt();
        return Ok((&u * Scale(root), &u * Scale(root * beta.signum())));
    }
    let svd = mixture(width, alpha, beta, rng).svd();
    let svd = svd.map_err(|_| no_convergence(width))?;
    let (u, s, v) = (svd.U(), svd.S().column_vector(), svd.V());
    Ok((
        Mat::from_fn(width, rank, |i, j| u[(i, j)] * s[j].sqrt()),
        Mat::from_fn(width, rank, |i, j| v[(i, j)] * s[j].sqrt()),
    ))
}

/// alpha Z + beta I, with Z of N(0, 1/width) entries.
fn mixture(width: usize, alpha: f64, beta: f64, rng: &mut ChaCha8Rng) -> Mat<f64> {
    let mut a = gaussian(width, width, rng) * Scale(alpha / (width as f64).sqrt());
    for j in 0..width {
        a[(j, j)] += beta;
    }
    a
}

/// Standard normal numbers, sampled column by column.
fn gaussian(n_rows: usize, n_columns: usize, rng: &mut ChaCha8Rng) -> Mat<f64> {
    Mat::from_fn(n_rows, n_columns, |_, _| standard_normal(rng))
}

/// Converts a matrix to a tensor, row by row.
pub(crate) fn tensor(matrix: MatRef<f64>) -> candle_core::Result<Tensor> {
    let rows = matrix.row_iter();
    let values = rows.flat_map(|row| row.iter().map(|v| *v as f32));
    Tensor::from_vec(values.collect(), matrix.shape(), &Device::Cpu)
}

#[cfg(test)]
mod tests;
