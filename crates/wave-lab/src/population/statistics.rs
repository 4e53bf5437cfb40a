//! Covariances of weights over a population of networks (thesis, sections 3.4.1 and 3.4.3).
//!
//! W1 (m, h) and W2 (h, m) of a layer meet in its m hidden channels. A hidden channel has a row of W1 and
//! a column of W2: 2 h values. Networks that differ by the order of their hidden channels are the same.
//! So the covariance of all 2 h m values consists of two matrices (2 h, 2 h): that within a hidden
//! channel and that between two of them. Both are averaged over channels, so that hundreds of networks
//! show as much as thousands without.
//!
//! ```text
//! stripe score     s = m Var(mean over rows of W1) / Var(entry)       1 for independent entries,
//!                    = 1 + (m - 1) Corr(two entries of a column)      m for equal rows
//! after Eq. 1      s = (1 + m tau²/v) / (1 + tau²/v)                  tau the shift's deviation,
//!                                                                     v the variance of W1 before
//! ```

use super::network::{Mixer, PopulationShape};
use candle_core::{D, DType, Result, Tensor};
use wave_models::Weights;

/// Of one layer. Variances and correlations are over the networks.
#[derive(Clone, Debug)]
pub struct LayerStatistics {
    /// Stripe score of W1: of the entries in a column, which multiply the same input.
    pub stripes_fc1: f64,
    /// Stripe score of W2: of the entries in a row, which sum to the same output.
    pub stripes_fc2: f64,
    /// Correlation of an entry of W1 with the one of W2 between the same two channels: the diagonal
    /// of Corr(W1, W2^T).
    pub fc1_fc2: f64,
    /// Of ConvNeXts, correlation of each pixel of a filter with the entry of W2 W1 that leads from its
    /// channel to itself, (k, k).
    pub filter_product: Option<Tensor>,
    /// Correlation of the 2 h weights of a hidden channel, its row of W1 and then its column of W2,
    /// with each other: (2 h, 2 h).
    pub within: Tensor,
    /// With those of another hidden channel.
    pub between: Tensor,
}

/// The middle of a matrix (k, k).
///
/// # Errors
/// If it is not a matrix.
pub fn centre(of_pixels: &Tensor) -> Result<f64> {
    let (k, wide) = of_pixels.dims2()?;
    of_pixels.get((k - 1) / 2)?.get((wide - 1) / 2)?.to_scalar()
}

/// The statistics of a population, layer by layer.
///
/// # Errors
/// If there are fewer than 2 networks or hidden channels, or a weight is missing.
pub fn layers(shape: &PopulationShape, weights: &Weights) -> Result<Vec<LayerStatistics>> {
    (0..shape.depth)
        .map(|layer| of_layer(shape, weights, layer))
        .collect()
}

/// Correlation over networks and channels of the mean over hidden channels of W2 in every layer with
/// that of every other layer: (depth, depth).
///
/// # Errors
/// As [`layers`].
pub fn across_layers(shape: &PopulationShape, weights: &Weights) -> Result<Tensor> {
    let means = (0..shape.depth).map(|layer| {
        let w2 = centred(shape, weights, &format!("blocks.{layer}.mlp.fc2.weight"))?;
        w2.mean(D::Minus1)?.flatten_all()
    });
    let means = Tensor::stack(&means.collect::<Result<Vec<_>>>()?, 0)?; // (depth, n h)
    correlation(&means.matmul(&means.t()?)?)
}

fn of_layer(shape: &PopulationShape, weights: &Weights, layer: usize) -> Result<LayerStatistics> {
    let (n, h, m) = (shape.networks, shape.width, shape.hidden);
    if m < 2 {
        candle_core::bail!("stripes need at least 2 hidden channels, found {m}");
    }
    let w = |name: &str| centred(shape, weights, &format!("blocks.{layer}.{name}.weight"));
    let (w1, w2) = (w("mlp.fc1")?, w("mlp.fc2")?); // (n, m, h), (n, h, m)
    let both = Tensor::cat(&[&w1, &w2.transpose(1, 2)?], 2)?; // (n, m, 2 h)
    let free = (n - 1) as f64; // degrees of freedom
    let second_moment = |t: &Tensor| t.t()?.contiguous()?.matmul(t);
    let within = (second_moment(&both.flatten_to(1)?)? / (m as f64 * free))?;
    let all = (second_moment(&both.sum(1)?)? / (m as f64 * free))?;
    let between = ((all - &within)? / (m as f64 - 1.0))?;

    let diagonal = |t: &Tensor, from: usize| -> Result<f64> {
        let part = t.narrow(0, from, h)?.narrow(1, from, h)?;
        trace(&part)
    };
    let stripes = |from: usize| -> Result<f64> {
        let share = diagonal(&between, from)? / diagonal(&within, from)?;
        Ok(1.0 + (m as f64 - 1.0) * share)
    };
    let product = trace(&within.narrow(0, 0, h)?.narrow(1, h, h)?)?;
    let scale = (diagonal(&within, 0)? * diagonal(&within, h)?).sqrt();
    Ok(LayerStatistics {
        stripes_fc1: stripes(0)?,
        stripes_fc2: stripes(h)?,
        fc1_fc2: product / scale,
        filter_product: match shape.mixer {
            Mixer::Convolution { kernel } => Some(filter_product(shape, kernel, weights, layer)?),
            Mixer::Attention { .. } => None,
        },
        between: scaled(&between, &within)?,
        within: correlation(&within)?,
    })
}

fn filter_product(
    shape: &PopulationShape,
    k: usize,
    weights: &Weights,
    layer: usize,
) -> Result<Tensor> {
    let (n, h) = (shape.networks, shape.width);
    let w = |name: &str| values(weights, &format!("blocks.{layer}.{name}.weight"));
    let filters = w("conv_dw")?.reshape((n * h, k * k))?;
    // (W2 W1)_cc, the sum over j of W2_cj W1_jc.
    let own = (w("mlp.fc2")? * w("mlp.fc1")?.transpose(1, 2)?)?.sum(D::Minus1)?;
    let own = own.reshape((n * h, 1))?;
    let centred = |t: &Tensor| t.broadcast_sub(&t.mean_keepdim(0)?);
    let (filters, own) = (centred(&filters)?, centred(&own)?);
    let products = filters.broadcast_mul(&own)?.sum(0)?; // (k k)
    let squares = (filters.sqr()?.sum(0)?.sqrt()?).broadcast_mul(&own.sqr()?.sum(0)?.sqrt()?)?;
    (products / squares)?.reshape((k, k))
}

fn values(weights: &Weights, name: &str) -> Result<Tensor> {
    match weights.get(name) {
        Some(t) => t.to_dtype(DType::F64),
        None => candle_core::bail!("weight {name} is missing"),
    }
}

/// A weight without its mean over the networks.
fn centred(shape: &PopulationShape, weights: &Weights, name: &str) -> Result<Tensor> {
    if shape.networks < 2 {
        candle_core::bail!("variances over networks need at least 2, found 1");
    }
    let t = values(weights, name)?;
    t.broadcast_sub(&t.mean_keepdim(0)?)
}

fn trace(t: &Tensor) -> Result<f64> {
    let n = t.dim(0)?;
    let eye = Tensor::eye(n, t.dtype(), t.device())?;
    (t * eye)?.sum_all()?.to_scalar()
}

/// A covariance as correlations.
fn correlation(covariance: &Tensor) -> Result<Tensor> {
    scaled(covariance, covariance)
}

/// A covariance over the standard deviations on the diagonal of another.
fn scaled(covariance: &Tensor, variances: &Tensor) -> Result<Tensor> {
    let eye = Tensor::eye(variances.dim(0)?, variances.dtype(), variances.device())?;
    let deviations = (variances * eye)?.sum(1)?.sqrt()?; // (d)
    let columns = deviations.unsqueeze(0)?;
    covariance
        .broadcast_div(&columns)?
        .broadcast_div(&columns.t()?)
}
