//! Optimisers as pure functions of tensors, so that a step can be differentiated.

use candle_core::{Result, Tensor};

/// rho of Sgd and Lars.
const MOMENTUM: f64 = 0.9;

/// Adam's b1.
const BETA1: f64 = 0.9;

/// Added to the root of Adam's second moment.
const EPS: f64 = 1e-8;

/// The update rule of a step, in the papers' notation:
///
/// ```text
/// Sgd    v = rho v + g + wd w          w = w - lr v            (Nesterov: w - lr (g + wd w + rho v))
/// Adam   m = b1 m + (1 - b1) g         s = b2 s + (1 - b2) g²
///        w = w - lr m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + eps)
/// Lars   v = rho v + lr r g            w = w - v               r = trust |w| / |g|
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimiser {
    /// Gradient descent with momentum.
    Sgd {
        /// True for Nesterov momentum, in PyTorch's form.
        nesterov: bool,
        /// wd, of all weights.
        weight_decay: f64,
    },
    /// Kingma and Ba 2015, algorithm 1.
    Adam {
        /// b2
        beta2: f64,
    },
    /// Layer-wise rates: You et al. 2017, algorithm 1. A tensor whose norm or gradient is zero uses
    /// r = 1: otherwise it would never leave zero.
    Lars {
        /// Trust coefficient: the size of a step relative to the size of the weights.
        trust: f64,
    },
}

impl Optimiser {
    /// Adam with the default decay rates.
    pub const ADAM: Optimiser = Optimiser::Adam { beta2: 0.999 };

    /// Number of state tensors per weight, all zero at first.
    pub fn slots(&self) -> usize {
        match self {
            Optimiser::Sgd { .. } | Optimiser::Lars { .. } => 1,
            Optimiser::Adam { .. } => 2,
        }
    }

    /// The weight after step `t` (counted from 1) at learning rate `lr`, and the new slots.
    /// All are differentiable functions of `w`, its gradient `g` and the `slots`.
    pub fn update(
        &self,
        lr: f64,
        t: u64,
        w: &Tensor,
        g: &Tensor,
        slots: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        match *self {
            Optimiser::Sgd {
                nesterov,
                weight_decay,
            } => {
                let g = match weight_decay {
                    0.0 => g.clone(),
                    _ => (g + (w * weight_decay)?)?,
                };
                let v = ((&slots[0] * MOMENTUM)? + &g)?;
                let step = match nesterov {
                    true => (g + (&v * MOMENTUM)?)?,
                    false => v.clone(),
                };
                Ok(((w - (step * lr)?)?, vec![v]))
            }
            Optimiser::Adam { beta2 } => {
                let m = ((&slots[0] * BETA1)? + (g * (1.0 - BETA1))?)?;
                let s = ((&slots[1] * beta2)? + (g.sqr()? * (1.0 - beta2))?)?;
                let t = i32::try_from(t).unwrap_or(i32::MAX);
                let m_hat = (&m * (1.0 / (1.0 - BETA1.powi(t))))?;
                let s_hat = (&s * (1.0 / (1.0 - beta2.powi(t))))?;
                let step = (m_hat / (root(&s_hat)? + EPS)?)?;
                Ok(((w - (step * lr)?)?, vec![m, s]))
            }
            Optimiser::Lars { trust } => {
                let (w_norm, g_norm) = (norm(w)?, norm(g)?);
                let rated = match zero(&w_norm)? || zero(&g_norm)? {
                    true => g.clone(),
                    false => g.broadcast_mul(&((w_norm * trust)? / g_norm)?)?,
                };
                let v = ((&slots[0] * MOMENTUM)? + (rated * lr)?)?;
                Ok(((w - &v)?, vec![v]))
            }
        }
    }
}

/// The square root, with slope 0 at 0: there Adam's step has the slope of its numerator alone, and the
/// root's own infinite slope would make it NaN.
fn root(x: &Tensor) -> Result<Tensor> {
    let positive = x.gt(0.0)?;
    let safe = positive.where_cond(x, &x.ones_like()?)?;
    safe.sqrt()? * positive.to_dtype(x.dtype())?
}

/// The norm of a whole tensor, a scalar.
pub(crate) fn norm(x: &Tensor) -> Result<Tensor> {
    let squares = x.sqr()?.sum_all()?;
    match zero(&squares)? {
        true => Ok(squares.detach()), // its root has no slope
        false => squares.sqrt(),
    }
}

fn zero(x: &Tensor) -> Result<bool> {
    Ok(super::scalar(x)? == 0.0)
}
