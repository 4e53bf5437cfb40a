//! Covariances of weights over a population of networks (thesis, sections 3.4.1 and 3.4.3).
//!
//! W1 (m, h) and W2 (h, m) of a layer share m hidden channels. A hidden channel has a row of W1 and
//! a column of W2: 2 h values. Networks that differ only in the order of their hidden channels are equivalent.
//! So the covariance of all 2 h m values consists of two matrices (2 h, 2 h): one within a hidden
//! channel and one between two of them. Both are averaged over channels, so that hundreds of networks
//! show as much as thousands without averaging.
//!
//! ```text
//! stripe score     s = m Var(mean over rows of W1) / Var(entry)       1 for independent entries,
//!                    = 1 + (m - 1) Corr(two entries of a column)      m for equal rows
//! after Eq. 1      s = (1 + m tau²/v) / (1 + tau²/v)                  tau the shift's deviation,
//!                                                                     v the variance of W1 before
//! ```

use super::network::{Arch, KERNEL, PopulationShape};
use candle_core::{D, DType, Result, Tensor};
use std::collections::BTreeMap;
use wave_models::Weights;
use wave_models::fold::get;

/// Statistics of one layer. Variances and correlations are over the networks.
#[derive(Clone, Debug)]
pub struct LayerStatistics {
    /// Stripe score of W1: for entries in the same column, which multiply the same input.
    pub stripes_fc1: f64,
    /// Stripe score of W2: for entries in the same row, which sum to the same output.
    pub stripes_fc2: f64,
    /// Correlation of an entry of W1 with that of W2 between the same two channels: the diagonal of Corr(W1, W2^T).
    pub fc1_fc2: f64,
    /// ConvNeXts only: correlation of each pixel of a filter with the entry of W2 W1 that maps its
    /// channel to itself, (KERNEL, KERNEL).
    pub filter_product: Option<Tensor>,
    /// Correlation of the 2 h weights of a hidden channel, its row of W1 and then its column of W2, with each other:
    /// (2 h, 2 h).
    pub within: Tensor,
    /// Correlation of these with another hidden channel's.
    pub between: Tensor,
}

pub fn layers(shape: &PopulationShape, weights: &Weights) -> Result<Vec<LayerStatistics>> {
    let layer = |layer| of_layer(shape, weights, layer);
    (0..shape.depth).map(layer).collect()
}

/// Correlation over networks and channels of the mean of W2 over hidden channels, between layers: (depth, depth).
pub fn across_layers(shape: &PopulationShape, weights: &Weights) -> Result<Tensor> {
    let means = (0..shape.depth).map(|layer| {
        let w2 = centred(weights, &format!("blocks.{layer}.mlp.fc2.weight"))?;
        w2.mean(D::Minus1)?.flatten_all()
    });
    let means = Tensor::stack(&means.collect::<Result<Vec<_>>>()?, 0)?; // (depth, n h)
    let covariance = means.matmul(&means.t()?)?;
    scaled(&covariance, &covariance)
}

/// Correlations of all weights of a network, across tensors (figure 3.39).
#[derive(Clone, Debug)]
pub struct NetworkStatistics {
    /// Names of the tensors, in the order of the forward pass.
    pub tensors: Vec<String>,
    /// Root mean square correlation of the values of two tensors beyond chance, whose square is 1 / (n - 1)
    /// without any correlation; 0 if it is not above chance. Pairs of a value with itself are left out.
    /// (tensors, tensors).
    pub between: Tensor,
    /// The same for every bias with the weights of its own row, by the weight's name.
    pub bias_with_row: BTreeMap<String, f64>,
    /// Correlations between at most [`SHOWN`] evenly spaced values of a network, in the order of the forward
    /// pass; the diagonal is 0.
    pub shown: Tensor,
}

/// Maximum number of values in [`NetworkStatistics::shown`].
pub const SHOWN: usize = 800;

/// Correlations over a whole network. Values that are the same in all networks have none.
pub fn network(shape: &PopulationShape, weights: &Weights) -> Result<NetworkStatistics> {
    let n = shape.networks;
    let chance = 1.0 / (n as f64 - 1.0);
    let beyond = |mean_square: f64| (mean_square - chance).max(0.0).sqrt();
    let mut tensors: Vec<(String, Tensor)> = Vec::new(); // (n, values), of variance 1 / n
    for (name, _) in shape.parameters() {
        let t = standardised(&centred(weights, &name)?.flatten_from(1)?)?;
        tensors.push((name, t));
    }
    // Number of values that vary: each has norm 1.
    let count = |(_, t): &(String, Tensor)| t.sqr()?.sum_all()?.to_scalar::<f64>();
    let counts: Vec<f64> = tensors.iter().map(count).collect::<Result<_>>()?;
    let mut between = Vec::new();
    for (a, (_, x)) in tensors.iter().enumerate() {
        for (b, (_, y)) in tensors.iter().enumerate() {
            let own = if a == b { counts[a] } else { 0.0 };
            let pairs = (counts[a] * counts[b] - own).max(1.0);
            between.push(beyond((squares(x, y)? - own) / pairs));
        }
    }
    let mut bias_with_row = BTreeMap::new();
    for pair in tensors.windows(2) {
        let [(weight, w), (bias, b)] = pair else {
            continue;
        };
        let of = weight.strip_suffix(".weight");
        if of.is_none() || of != bias.strip_suffix(".bias") || weight.contains("norm") {
            continue;
        }
        let rows = b.dim(1)?;
        let w = w.reshape((n, rows, ()))?;
        let found = w.broadcast_mul(&b.unsqueeze(2)?)?.sum(0)?; // (rows, columns)
        let mean_square = found.sqr()?.mean_all()?.to_scalar()?;
        bias_with_row.insert(weight.clone(), beyond(mean_square));
    }
    let values: Vec<&Tensor> = tensors.iter().map(|(_, t)| t).collect();
    let all = Tensor::cat(&values, 1)?;
    let count = all.dim(1)?;
    let stride = count.div_ceil(SHOWN);
    let some: Vec<u32> = (0..count as u32).step_by(stride).collect();
    let some = all.index_select(&Tensor::new(some, all.device())?, 1)?;
    let shown = off_diagonal(&some.t()?.matmul(&some)?)?;
    let tensors: Vec<String> = tensors.into_iter().map(|(name, _)| name).collect();
    let count = tensors.len();
    Ok(NetworkStatistics {
        between: Tensor::from_vec(between, (count, count), shown.device())?,
        tensors,
        bias_with_row,
        shown,
    })
}

/// The sum of all squares of X' Y, for X (n, p) and Y (n, q); by X X' and Y Y' where that is less work.
fn squares(x: &Tensor, y: &Tensor) -> Result<f64> {
    let ((n, p), (_, q)) = (x.dims2()?, y.dims2()?);
    let products = if n * (p + q) < p * q {
        (x.matmul(&x.t()?)? * y.matmul(&y.t()?)?)?
    } else {
        x.t()?.matmul(y)?.sqr()?
    };
    products.sum_all()?.to_scalar()
}

/// Columns of mean 0 (n, values) divided by their norm; zero columns stay 0.
fn standardised(centred: &Tensor) -> Result<Tensor> {
    let norm = centred.sqr()?.sum_keepdim(0)?.sqrt()?;
    let none = norm.le(1e-12)?.to_dtype(DType::F64)?;
    centred.broadcast_div(&(norm + none)?)
}

fn of_layer(shape: &PopulationShape, weights: &Weights, layer: usize) -> Result<LayerStatistics> {
    let (n, h, m) = (shape.networks, shape.width, shape.hidden());
    let w = |name: &str| centred(weights, &format!("blocks.{layer}.{name}.weight"));
    let (w1, w2) = (w("mlp.fc1")?, w("mlp.fc2")?); // (n, m, h), (n, h, m)
    let both = Tensor::cat(&[&w1, &w2.transpose(1, 2)?], 2)?; // (n, m, 2 h)
    let free = (n - 1) as f64; // degrees of freedom
    let second_moment = |t: &Tensor| t.t()?.contiguous()?.matmul(t);
    let within = (second_moment(&both.flatten_to(1)?)? / (m as f64 * free))?;
    let all = (second_moment(&both.sum(1)?)? / (m as f64 * free))?;
    let between = ((all - &within)? / (m as f64 - 1.0))?;

    let diagonal = |t: &Tensor, from: usize| -> Result<f64> {
        trace(&t.narrow(0, from, h)?.narrow(1, from, h)?)
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
        filter_product: match shape.arch {
            Arch::Convnext => Some(filter_product(shape, weights, layer)?),
            Arch::Vit => None,
        },
        between: scaled(&between, &within)?,
        within: scaled(&within, &within)?,
    })
}

fn filter_product(shape: &PopulationShape, weights: &Weights, layer: usize) -> Result<Tensor> {
    let (n, h) = (shape.networks, shape.width);
    let w = |name: &str| values(weights, &format!("blocks.{layer}.{name}.weight"));
    let filters = w("conv_dw")?.reshape((n * h, ()))?;
    // (W2 W1)_cc, the sum over j of W2_cj W1_jc.
    let own = (w("mlp.fc2")? * w("mlp.fc1")?.transpose(1, 2)?)?.sum(D::Minus1)?;
    let own = own.reshape((n * h, 1))?;
    let centred = |t: &Tensor| t.broadcast_sub(&t.mean_keepdim(0)?);
    let (filters, own) = (centred(&filters)?, centred(&own)?);
    let products = filters.broadcast_mul(&own)?.sum(0)?; // (k k)
    let squares = (filters.sqr()?.sum(0)?.sqrt()?).broadcast_mul(&own.sqr()?.sum(0)?.sqrt()?)?;
    (products / squares)?.reshape((KERNEL, KERNEL))
}

fn values(weights: &Weights, name: &str) -> Result<Tensor> {
    get(weights, name)?.to_dtype(DType::F64)
}

/// A weight minus its mean over the networks.
fn centred(weights: &Weights, name: &str) -> Result<Tensor> {
    let t = values(weights, name)?;
    t.broadcast_sub(&t.mean_keepdim(0)?)
}

fn trace(t: &Tensor) -> Result<f64> {
    let eye = Tensor::eye(t.dim(0)?, t.dtype(), t.device())?;
    (t * eye)?.sum_all()?.to_scalar()
}

/// A covariance divided by the standard deviations from the diagonal of another.
fn scaled(covariance: &Tensor, variances: &Tensor) -> Result<Tensor> {
    let eye = Tensor::eye(variances.dim(0)?, variances.dtype(), variances.device())?;
    let deviations = (variances * eye)?.sum(1)?.sqrt()?; // (d)
    let columns = deviations.unsqueeze(0)?;
    let by_column = covariance.broadcast_div(&columns)?;
    by_column.broadcast_div(&columns.t()?)
}

/// A square matrix without its diagonal.
pub(super) fn off_diagonal(t: &Tensor) -> Result<Tensor> {
    let eye = Tensor::eye(t.dim(0)?, t.dtype(), t.device())?;
    t * (1.0 - eye)?
}
