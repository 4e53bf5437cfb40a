//! The gradient quotient, which MetaInit minimises: how much a step changes the gradient.

use candle_core::{Result, Tensor};
use wave_models::Weights;

use super::super::second_order;
use super::{gradient_of, named, scalar, variables};

/// Keeps the quotient finite where the gradient is zero.
const EPS: f64 = 1e-5;

/// The gradient quotient and its derivatives with respect to the weights (Dauphin and Schoenholz 2019,
/// equation 1), where g and H are the gradient and Hessian of `loss` and n the number of values:
///
/// ```text
/// GQ = 1/n sum |(g - H g) / (g + eps sign(g)) - 1|
/// ```
///
/// The derivatives are third derivatives of the loss. Must run inside
/// [`second_order`](super::super::second_order()).
pub fn gradient_quotient(
    weights: &Weights,
    loss: impl FnOnce(&Weights) -> Result<Tensor>,
) -> Result<(f64, Weights)> {
    second_order::check()?;
    let tracked = variables(weights)?;
    let value = loss(&named(&tracked))?;
    let gradients_of = |of: &Tensor| -> Result<Vec<Tensor>> {
        let mut store = of.backward()?;
        let gradients = tracked.values().map(|v| gradient_of(&mut store, v));
        gradients.collect()
    };
    let sum = |terms: Vec<Tensor>| -> Result<Tensor> {
        let zero = Tensor::zeros((), value.dtype(), value.device())?;
        terms.iter().try_fold(zero, |sum, term| sum + term)
    };
    let g = gradients_of(&value)?;
    let squares = g
        .iter()
        .map(|g| g.sqr()?.sum_all())
        .collect::<Result<_>>()?;
    let hg = gradients_of(&(sum(squares)? * 0.5)?)?; // the gradient of |g|² / 2 is H g
    let mut terms = Vec::new();
    for (g, hg) in g.iter().zip(&hg) {
        let sign = ((g.ge(0.0)?.to_dtype(g.dtype())? * 2.0)? - 1.0)?;
        let quotient = ((g - hg)? / (g + (sign * EPS)?)?)?;
        terms.push((quotient - 1.0)?.abs()?.sum_all()?);
    }
    let n: usize = weights.values().map(Tensor::elem_count).sum();
    let quotient = (sum(terms)? / n.max(1) as f64)?;
    let slopes = gradients_of(&quotient)?.into_iter().map(|t| t.detach());
    let slopes = weights.keys().cloned().zip(slopes).collect();
    Ok((scalar(&quotient)?, slopes))
}
