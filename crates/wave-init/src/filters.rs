//! Depthwise filters sampled with the covariance of trained ones (Trockman, Willmott and Kolter 2022,
//! "Understanding the Covariance Structure of Convolutional Filters"; the thesis' chapter 3).
//!
//! The filters of a layer, k x k with k odd, are independent samples of a normal distribution over the k²
//! pixels a = (i, j), with mean 0 and the covariance
//!
//! ```text
//! Σ_ab = ½ ((z_a + z_b) C_ab − z_a z_b)
//! z_a  = exp(−‖a − r‖² / 2σ)          a bump around the centre, r = ⌊k/2⌋
//! C_ab = exp(−‖wrap(a − b)‖² / 2σ)    neighbours are alike; differences wrap into −r..=r
//! ```
//!
//! This is the closed form of the block construction of the thesis' section 3.1.2 (the last form of its
//! equation 3.9 lacks the ½). σ is a variance, in pixels², and grows with depth: see [`Schedule`]. Every Σ
//! has ½ at the centre of its diagonal, and a few percent of negative eigenvalues, which become 0: the nearest
//! covariance, as in the papers.
//!
//! - `covariance` is Σ, `kronecker_factor` computes the nearest A ⊗ A;
//! - `Statistics` are mean and covariance of trained filters, for other depths and kernels too, from which filters are
//!   sampled;
//! - [`METHODS`] and [`start()`] initialise a ConvMixer or a ConvNeXt.

use faer::{Mat, Side};

use crate::error::{Result, finite, no_convergence};
use wave_models::refuse;

mod methods;
mod statistics;

pub use methods::{FilterChoices, FilterMethod, METHODS, find, start};

/// The variance σ over depth: `start + velocity t + acceleration t² / 2`, where t runs from 0 at the
/// first layer to 1 at the last, and is 0 for a single layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Variance at the first layer.
    pub start: f64,
    /// Increase over the whole depth at the first layer's rate.
    pub velocity: f64,
    /// Increase of the velocity over the whole depth.
    pub acceleration: f64,
}

impl Default for Schedule {
    /// The papers' values for CIFAR-10 with patches of 2: 0.08 at the first layer, 1.90 at the last.
    fn default() -> Self {
        Self {
            start: 0.08,
            velocity: 0.37,
            acceleration: 2.9,
        }
    }
}

impl Schedule {
    /// σ at a layer, counted from 0, of `depth` layers.
    pub fn at(&self, layer: usize, depth: usize) -> f64 {
        let t = layer as f64 / depth.saturating_sub(1).max(1) as f64;
        self.start + self.velocity * t + self.acceleration * t * t / 2.0
    }
}

/// Σ of k x k filters, (k², k²), with pixel (i, j) at row and column `i k + j`.
fn covariance(kernel: usize, variance: f64) -> Result<Mat<f64>> {
    check_kernel(kernel)?;
    if finite("the filters' variance", variance)? <= 0.0 {
        refuse!("the filters' variance is {variance}: use a number above 0 at every layer");
    }
    let (k, r) = (kernel as i64, kernel as i64 / 2);
    let bump = |dy: i64, dx: i64| (-((dy * dy + dx * dx) as f64) / (2.0 * variance)).exp();
    let at = |pixel: usize| (pixel as i64 / k, pixel as i64 % k);
    let wrap = |d: i64| (d + r).rem_euclid(k) - r;
    let centre = |(i, j): (i64, i64)| bump(i - r, j - r);
    Ok(Mat::from_fn(kernel * kernel, kernel * kernel, |a, b| {
        let (a, b) = (at(a), at(b));
        let (z_a, z_b) = (centre(a), centre(b));
        let near = bump(wrap(a.0 - b.0), wrap(a.1 - b.1));
        0.5 * ((z_a + z_b) * near - z_a * z_b)
    }))
}

fn check_kernel(kernel: usize) -> Result<()> {
    if kernel.is_multiple_of(2) || kernel > 63 {
        refuse!("the kernel is {kernel}: use an odd size up to 63: filters need a centre");
    }
    Ok(())
}

/// `Q max(Λ, 0)^½` from the eigendecomposition `Q Λ Qᵀ` of a symmetric matrix. Multiplied with its transpose, it is the
/// nearest covariance.
fn root(symmetric: &Mat<f64>) -> Result<Mat<f64>> {
    let (vectors, values) = eigen(symmetric)?;
    Ok(Mat::from_fn(vectors.nrows(), vectors.ncols(), |i, j| {
        vectors[(i, j)] * values[j].max(0.0).sqrt()
    }))
}

/// A (k, k) for which A ⊗ A is nearest to a covariance (k², k²) of filters in the Frobenius norm: pixels
/// (i, j) and (l, m) covary by `A_il A_jm`, and a filter is `A^½ G A^½` with independent standard normal entries
/// in G.
///
/// In closed form: rearrange the covariance to rows (i, l) and columns (j, m); A is its leading eigenvector
/// times the square root of the eigenvalue.
fn kronecker_factor(covariance: &Mat<f64>) -> Result<Mat<f64>> {
    let pixels = covariance.nrows();
    let k = pixels.isqrt();
    let rearranged = |x: usize, y: usize| {
        let ((i, l), (j, m)) = ((x / k, x % k), (y / k, y % k));
        covariance[(i * k + j, l * k + m)]
    };
    let symmetric = Mat::from_fn(pixels, pixels, |x, y| {
        0.5 * (rearranged(x, y) + rearranged(y, x))
    });
    let (vectors, values) = eigen(&symmetric)?;
    let (first, scale) = (pixels - 1, values[pixels - 1].max(0.0).sqrt());
    let a = |i: usize, l: usize| vectors[(i * k + l, first)];
    let trace: f64 = (0..k).map(|i| a(i, i)).sum();
    let scale = if trace < 0.0 { -scale } else { scale };
    Ok(Mat::from_fn(k, k, |i, l| 0.5 * scale * (a(i, l) + a(l, i))))
}

/// A ⊗ A for A of [`kronecker_factor`], (k², k²), with A's negative eigenvalues set to 0.
fn kronecker_square(a: &Mat<f64>) -> Result<Mat<f64>> {
    let root = root(a)?;
    let (a, k) = (&root * root.transpose(), root.nrows());
    Ok(Mat::from_fn(k * k, k * k, |x, y| {
        a[(x / k, y / k)] * a[(x % k, y % k)]
    }))
}

/// Eigenvectors as columns, and eigenvalues in ascending order.
fn eigen(symmetric: &Mat<f64>) -> Result<(Mat<f64>, Vec<f64>)> {
    let width = symmetric.nrows();
    let eigen = symmetric.self_adjoint_eigen(Side::Lower);
    let eigen = eigen.map_err(|_| no_convergence(width))?;
    let values = eigen.S().column_vector();
    Ok((eigen.U().to_owned(), values.iter().copied().collect()))
}

#[cfg(test)]
mod tests;
