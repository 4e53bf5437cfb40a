//! Mean and covariance of trained filters, converted to other depths and kernel sizes.

use candle_core::{DType, Tensor};
use faer::Mat;

use super::check_kernel;
use crate::error::Result;
use wave_models::refuse;

/// The distribution of a layer's filters.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Mean of every pixel, (k²).
    pub mean: Vec<f64>,
    /// (k², k²).
    pub covariance: Mat<f64>,
}

impl Statistics {
    /// Statistics of filters (n, 1, k, k), with divisor n − 1. The covariance has rank n − 1 at most.
    ///
    /// # Errors
    /// If there are fewer than 2 filters, or they are not square.
    pub fn of(filters: &Tensor) -> Result<Statistics> {
        let (n, one, k, wide) = filters.dims4()?;
        if n < 2 || one != 1 || k != wide {
            let found = filters.dims();
            let text = format!("filters of shape {found:?}; expected at least 2 of (n, 1, k, k)");
            return Err(candle_core::Error::Msg(text).into());
        }
        let filters = filters.to_dtype(DType::F64)?.flatten_all()?;
        let values = filters.to_vec1::<f64>()?;
        let pixels = k * k;
        let mean: Vec<f64> = (0..pixels)
            .map(|a| values.iter().skip(a).step_by(pixels).sum::<f64>() / n as f64)
            .collect();
        let centred = Mat::from_fn(n, pixels, |f, a| values[f * pixels + a] - mean[a]);
        let sum = centred.transpose() * &centred;
        let covariance = Mat::from_fn(pixels, pixels, |a, b| sum[(a, b)] / (n - 1) as f64);
        Ok(Statistics { mean, covariance })
    }

    /// A distribution with mean zero.
    pub fn centred(covariance: Mat<f64>) -> Statistics {
        Statistics {
            mean: vec![0.0; covariance.nrows()],
            covariance,
        }
    }

    /// Statistics for another kernel size: the covariance resized by [`resize`], the mean zero. For the same
    /// kernel size, both are kept.
    ///
    /// # Errors
    /// If the kernel sizes differ and one of them is even.
    pub fn resized(self, kernel: usize) -> Result<Statistics> {
        let own = self.mean.len().isqrt();
        if own == kernel {
            return Ok(self);
        }
        Ok(Statistics::centred(resize(&self.covariance, own, kernel)?))
    }

    /// Linear interpolation from `self` to `other`, with weight `share` on `other`; both have the same kernel size.
    fn towards(&self, other: &Statistics, share: f64) -> Statistics {
        let mix = |a: f64, b: f64| (1.0 - share) * a + share * b;
        let pixels = self.mean.len();
        let mean = std::iter::zip(&self.mean, &other.mean).map(|(a, b)| mix(*a, *b));
        Statistics {
            mean: mean.collect(),
            covariance: Mat::from_fn(pixels, pixels, |a, b| {
                mix(self.covariance[(a, b)], other.covariance[(a, b)])
            }),
        }
    }
}

/// Statistics for layer `layer` of `depth`, counted from 0: interpolated between the two neighbouring layers
/// of a network of another depth, with first and last layers aligned. A single layer takes the first.
///
/// # Errors
/// If `layers` is empty.
pub fn interpolate(layers: &[Statistics], layer: usize, depth: usize) -> Result<Statistics> {
    let Some(last) = layers.len().checked_sub(1) else {
        refuse!("the depth is 0: a network needs at least 1 layer");
    };
    let at = layer as f64 * last as f64 / depth.saturating_sub(1).max(1) as f64;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Ok(layers[below].towards(&layers[above], at - below as f64))
}

/// A covariance of filters for another kernel size. As a grid of blocks, where block (i, j) holds the
/// covariance of pixel (i, j) with every other: each block is cropped around its centre, or padded with its
/// mean; then the grid is interpolated bilinearly with aligned pixel centres. The result is symmetric, but
/// may have small negative eigenvalues.
///
/// # Errors
/// If a kernel is even, or `covariance` does not belong to kernel size `from`.
pub fn resize(covariance: &Mat<f64>, from: usize, to: usize) -> Result<Mat<f64>> {
    check_kernel(from)?;
    check_kernel(to)?;
    let pixels = covariance.nrows();
    if pixels != from * from {
        let text = format!("the covariance has {pixels} pixels; expected {from} x {from}");
        return Err(candle_core::Error::Msg(text).into());
    }
    // Pixels of the target before the source's, or cut off if negative.
    let offset = to as i64 / 2 - from as i64 / 2;
    let shifted = |x: usize| usize::try_from(x as i64 - offset).ok();
    let inside = |x: usize| shifted(x).filter(|x| *x < from);
    let sum = |row: usize| (0..pixels).map(|col| covariance[(row, col)]).sum::<f64>();
    let means: Vec<f64> = (0..pixels).map(|row| sum(row) / pixels as f64).collect();
    // (from², to²)
    let blocks = Mat::from_fn(pixels, to * to, |row, pixel| {
        match (inside(pixel / to), inside(pixel % to)) {
            (Some(l), Some(m)) => covariance[(row, l * from + m)],
            _ => means[row],
        }
    });
    // Neighbours of a target row or column in the source, and the weight of the second.
    let neighbours = |x: usize| {
        let at = ((x as f64 + 0.5) * from as f64 / to as f64 - 0.5).clamp(0.0, (from - 1) as f64);
        let below = at.floor() as usize;
        (below, (below + 1).min(from - 1), at - below as f64)
    };
    let whole = Mat::from_fn(to * to, to * to, |row, pixel| {
        let (i0, i1, v) = neighbours(row / to);
        let (j0, j1, u) = neighbours(row % to);
        let block = |i: usize, j: usize| blocks[(i * from + j, pixel)];
        let upper = (1.0 - u) * block(i0, j0) + u * block(i0, j1);
        let lower = (1.0 - u) * block(i1, j0) + u * block(i1, j1);
        (1.0 - v) * upper + v * lower
    });
    Ok(Mat::from_fn(to * to, to * to, |a, b| {
        0.5 * (whole[(a, b)] + whole[(b, a)])
    }))
}
