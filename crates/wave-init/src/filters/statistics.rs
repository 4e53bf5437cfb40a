//! Mean and covariance of trained filters, converted to other depths and kernel sizes.

use candle_core::{DType, Device, Tensor};
use faer::Mat;
use rand_chacha::ChaCha8Rng;

use super::{check_kernel, root};
use crate::error::Result;
use crate::random::standard_normal;

/// The normal distribution of a layer's filters.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    /// Mean of every pixel, (k²).
    pub(super) mean: Vec<f64>,
    /// (k², k²).
    pub(super) covariance: Mat<f64>,
}

impl Statistics {
    /// Statistics of at least 2 filters (n, 1, k, k), with divisor n − 1. The covariance has rank n − 1 at most.
    pub(super) fn of(filters: &Tensor) -> Result<Statistics> {
        let (n, one, k, wide) = filters.dims4()?;
        if n < 2 || one != 1 || k != wide {
            let found = filters.dims();
            let text = format!("filters of shape {found:?}; expected at least 2 of (n, 1, k, k)");
            return Err(candle_core::Error::Msg(text).into());
        }
        let filters = filters.to_dtype(DType::F64)?.flatten_all()?;
        let values = filters.to_vec1::<f64>()?;
        let pixels = k * k;
        let mean = |a: usize| values.iter().skip(a).step_by(pixels).sum::<f64>() / n as f64;
        let mean: Vec<f64> = (0..pixels).map(mean).collect();
        let centred = Mat::from_fn(n, pixels, |f, a| values[f * pixels + a] - mean[a]);
        let sum = centred.transpose() * &centred;
        let covariance = Mat::from_fn(pixels, pixels, |a, b| sum[(a, b)] / (n - 1) as f64);
        Ok(Statistics { mean, covariance })
    }

    /// A distribution with mean zero.
    pub(super) fn centred(covariance: Mat<f64>) -> Statistics {
        Statistics {
            mean: vec![0.0; covariance.nrows()],
            covariance,
        }
    }

    /// Statistics for another kernel size, with mean zero. As a grid of blocks, where block (i, j) holds the covariance of
    /// pixel (i, j) with every other: each block is cropped around its centre, or padded with its mean; then the grid is
    /// interpolated bilinearly with aligned pixel centres. The result is symmetric, but may have small negative
    /// eigenvalues. For the same kernel size, mean and covariance are kept.
    pub(super) fn resized(self, to: usize) -> Result<Statistics> {
        let pixels = self.mean.len();
        let from = pixels.isqrt();
        if from == to {
            return Ok(self);
        }
        check_kernel(from)?;
        check_kernel(to)?;
        // Pixels of the target before the source's, or cut off if negative.
        let offset = to as i64 / 2 - from as i64 / 2;
        let shifted = |x: usize| usize::try_from(x as i64 - offset).ok();
        let inside = |x: usize| shifted(x).filter(|x| *x < from);
        let mean = |row: usize| {
            let values = (0..pixels).map(|col| self.covariance[(row, col)]);
            values.sum::<f64>() / pixels as f64
        };
        let means: Vec<f64> = (0..pixels).map(mean).collect();
        // (from², to²)
        let blocks = Mat::from_fn(pixels, to * to, |row, pixel| {
            match (inside(pixel / to), inside(pixel % to)) {
                (Some(l), Some(m)) => self.covariance[(row, l * from + m)],
                _ => means[row],
            }
        });
        // Neighbours of a target row or column in the source, and the weight of the second.
        let neighbours = |x: usize| {
            let at =
                ((x as f64 + 0.5) * from as f64 / to as f64 - 0.5).clamp(0.0, (from - 1) as f64);
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
        let symmetric = |a: usize, b: usize| 0.5 * (whole[(a, b)] + whole[(b, a)]);
        let covariance = Mat::from_fn(to * to, to * to, symmetric);
        Ok(Statistics::centred(covariance))
    }

    /// Samples `n` filters, (n, 1, k, k).
    pub(super) fn draw(&self, n: usize, rng: &mut ChaCha8Rng) -> Result<Tensor> {
        let root = root(&self.covariance)?;
        let pixels = self.mean.len();
        let mut values = Vec::with_capacity(n * pixels);
        for _ in 0..n {
            let noise = Mat::from_fn(pixels, 1, |_, _| standard_normal(rng));
            let filter = &root * noise;
            values.extend((0..pixels).map(|a| (self.mean[a] + filter[(a, 0)]) as f32));
        }
        let k = pixels.isqrt();
        Ok(Tensor::from_vec(values, (n, 1, k, k), &Device::Cpu)?)
    }
}

/// Statistics for layer `layer` of `depth`, counted from 0: interpolated between the two neighbouring layers
/// of a network of another depth, with first and last layers aligned. A single layer takes the first.
pub(super) fn interpolate(layers: &[Statistics], layer: usize, depth: usize) -> Statistics {
    let last = layers.len() - 1;
    let at = layer as f64 * last as f64 / depth.saturating_sub(1).max(1) as f64;
    let below = (at.floor() as usize).min(last);
    let (share, pixels) = (at - below as f64, layers[below].mean.len());
    let (below, above) = (&layers[below], &layers[(below + 1).min(last)]);
    let mix = |a: f64, b: f64| (1.0 - share) * a + share * b;
    let mean = std::iter::zip(&below.mean, &above.mean).map(|(a, b)| mix(*a, *b));
    Statistics {
        mean: mean.collect(),
        covariance: Mat::from_fn(pixels, pixels, |a, b| {
            mix(below.covariance[(a, b)], above.covariance[(a, b)])
        }),
    }
}
