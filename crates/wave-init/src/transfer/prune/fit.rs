//! Least squares from moments accumulated batch by batch.

use crate::mimetic::tensor;
use candle_core::{Error, Result, Tensor};
use faer::linalg::solvers::{DenseSolveCore, Solve};
use faer::{Mat, Side};
use rayon::prelude::*;
use wave_models::fold::Affine;

/// Ridge on the variances of inputs in a fit, relative to their mean.
const RIDGE: f64 = 1e-4;
/// The same for the order in which channels are removed, where the whole covariance is inverted.
const RIDGE_OF_ORDER: f64 = 1e-3;

/// Sums of products of inputs x and outputs y over tokens.
#[derive(Default)]
pub(super) struct Moments {
    /// (x 1)' (x 1 y): (inputs + 1, inputs + 1 + outputs)
    sums: Option<Mat<f64>>,
    /// (tokens, 1): square roots of the tokens' weights.
    share: Option<Tensor>,
}

impl Moments {
    /// Moments over weighted tokens; `share` (tokens, 1) holds the square roots of the weights.
    pub(super) fn weighted(share: &Tensor) -> Moments {
        Moments {
            sums: None,
            share: Some(share.clone()),
        }
    }

    /// Adds inputs (.., inputs) and outputs (.., outputs).
    pub(super) fn add(&mut self, x: &Tensor, y: &Tensor) -> Result<()> {
        let last = x.rank() - 1;
        let one = x.narrow(last, 0, 1)?.ones_like()?;
        let rows = |parts: &[&Tensor]| {
            let mut all = Tensor::cat(parts, last)?;
            if let Some(share) = &self.share {
                all = all.broadcast_mul(share)?;
            }
            all.reshape(((), all.dim(last)?))
        };
        let left = rows(&[x, &one])?;
        let right = rows(&[x, &one, y])?;
        let products = matrix(&left.t()?.matmul(&right)?)?;
        match &mut self.sums {
            Some(sums) => *sums += products,
            none => *none = Some(products),
        }
        Ok(())
    }

    /// Means of inputs (inputs, 1) and of outputs (outputs, 1), and the covariance of inputs (inputs, inputs) and of
    /// inputs and outputs (inputs, outputs).
    fn centred(&self) -> Result<[Mat<f64>; 4]> {
        let sums = self.sums.as_ref();
        let sums = sums.ok_or_else(|| Error::Msg("no images to fit to".into()))?;
        let inputs = sums.nrows() - 1;
        let outputs = sums.ncols() - sums.nrows();
        let total = sums[(inputs, inputs)];
        let mean = |column: usize| sums[(inputs, column)] / total;
        let x = Mat::from_fn(inputs, 1, |i, _| mean(i));
        let y = Mat::from_fn(outputs, 1, |o, _| mean(inputs + 1 + o));
        let within = Mat::from_fn(inputs, inputs, |i, j| {
            sums[(i, j)] / total - x[(i, 0)] * x[(j, 0)]
        });
        let across = Mat::from_fn(inputs, outputs, |i, o| {
            sums[(i, inputs + 1 + o)] / total - x[(i, 0)] * y[(o, 0)]
        });
        Ok([x, y, within, across])
    }

    /// The linear map from inputs to outputs with the smallest squared error, regularised towards `prior`:
    /// ridge regression of the prior's residuals.
    pub(super) fn fit(&self, prior: &Affine) -> Result<Affine> {
        let [x, y, within, across] = self.centred()?;
        let prior = matrix(&prior.weight)?;
        let left = across - &within * prior.transpose(); // (inputs, outputs)
        let more = inverted(within, RIDGE, |factors| factors.solve(&left))?;
        let weight = prior + more.transpose();
        let bias = Mat::from_fn(y.nrows(), 1, |o, _| {
            let products = (0..x.nrows()).map(|i| weight[(o, i)] * x[(i, 0)]);
            y[(o, 0)] - products.sum::<f64>()
        });
        Ok(Affine {
            weight: tensor(weight.as_ref())?,
            bias: tensor(bias.as_ref())?.squeeze(1)?,
        })
    }

    /// The `count` inputs of `weight` that remain after removing one at a time, always the one with the smallest
    /// effect on the outputs once the others compensate for it.
    pub(super) fn kept(&self, weight: &Tensor, count: usize) -> Result<Vec<u32>> {
        let [_, _, within, _] = self.centred()?;
        let inputs = within.nrows();
        if count == inputs {
            return Ok((0..inputs as u32).collect());
        }
        let inverse = inverted(within, RIDGE_OF_ORDER, |factors| factors.inverse())?;
        let columns = |m: &Mat<f64>| -> Vec<f64> {
            let columns = m.col_iter();
            columns.flat_map(|column| column.iter().copied()).collect()
        };
        let (mut inverse, weight) = (columns(&inverse), matrix(weight)?);
        let (outputs, mut weight) = (weight.nrows(), columns(&weight));
        let mut here = vec![true; inputs];
        for _ in count..inputs {
            let cost = |j: usize| {
                let column = &weight[j * outputs..][..outputs];
                column.iter().map(|w| w * w).sum::<f64>() / inverse[j * inputs + j].max(1e-30)
            };
            let left = (0..inputs).filter(|j| here[*j]);
            let costs = left.map(|j| (j, cost(j)));
            let Some((gone, _)) = costs.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                break;
            };
            here[gone] = false;
            let column = inverse[gone * inputs..][..inputs].to_vec();
            let lost = weight[gone * outputs..][..outputs].to_vec();
            let all = inverse
                .par_chunks_mut(inputs)
                .zip(weight.par_chunks_mut(outputs));
            all.zip(&here)
                .zip(&column)
                .filter(|((_, here), _)| **here)
                .for_each(|(((inverse, weight), _), &own)| {
                    let share = own / column[gone];
                    let subtract = |(a, b): (&mut f64, &f64)| *a -= share * b;
                    inverse.iter_mut().zip(&column).for_each(subtract);
                    weight.iter_mut().zip(&lost).for_each(subtract);
                });
        }
        Ok((0..inputs as u32).filter(|j| here[*j as usize]).collect())
    }
}

/// Calls `with` on the Cholesky factors of a covariance, with `ridge` times the mean variance added to its
/// diagonal. If rounding makes it indefinite, as the inputs vary too little, more is added until it is not.
fn inverted(
    covariance: Mat<f64>,
    ridge: f64,
    with: impl Fn(&faer::linalg::solvers::Llt<f64>) -> Mat<f64>,
) -> Result<Mat<f64>> {
    let n = covariance.nrows();
    let mean = (0..n).map(|i| covariance[(i, i)].abs()).sum::<f64>() / n as f64;
    for more in [1.0, 1e2, 1e4, 1e6] {
        let mut raised = covariance.clone();
        for i in 0..n {
            raised[(i, i)] += more * (ridge * mean + 1e-12);
        }
        if let Ok(factors) = raised.llt(Side::Lower) {
            return Ok(with(&factors));
        }
    }
    Err(Error::Msg(
        "some activations are not finite numbers, so nothing can be fitted to them".into(),
    ))
}

pub(super) fn matrix(tensor: &Tensor) -> Result<Mat<f64>> {
    let (rows, columns) = tensor.dims2()?;
    let values = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(Mat::from_fn(rows, columns, |i, j| {
        f64::from(values[i * columns + j])
    }))
}
