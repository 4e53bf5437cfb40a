//! The rank-one mean shift of an MLP's first matrix.
//!
//! ```text
//! Eq. 1    W1' = W1 + 1_p bᵀ        b ~ N(0, tau² I_n)      one offset per column, identical rows
//! Eq. 2    W1' = W1 + b 1_p 1_nᵀ                            one offset for all
//! ```
//!
//! W1 is (p, n), (outputs, inputs), as in PyTorch (thesis, section 3.4). The papers give no value for either
//! offset, so both are in units of the standard deviation of the given W1: a sweep over ±0.25, ±0.5 and ±1
//! covers the useful range.
//!
//! If a layer norm with weight 1 and bias 0 precedes W1, its output sums to 0 and Eq. 2 leaves the function
//! unchanged: it acts only through the gradients of that norm. Eq. 1 changes the function.

use candle_core::{DType, Tensor};
use rand_chacha::ChaCha8Rng;
use wave_models::{Weights, refuse};

use crate::error::{Result, finite};
use crate::random::standard_normal;

/// Initialisation of an MLP's first layer: a mean shift, or one of the paper's baselines (section 2, and figure 4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MlpMean {
    /// No shift.
    #[default]
    None,
    /// Equation 1: an offset per column.
    Eq1 {
        /// Standard deviation of the offsets, in units of the standard deviation of W1; at least 0.
        sigma: f64,
    },
    /// Equation 2: one offset for all.
    Eq2 {
        /// The offset, in units of the standard deviation of W1; may be negative.
        b: f64,
    },
    /// A baseline: W1 unchanged, and one constant as the bias of all outputs.
    Bias {
        /// The constant, in units of the standard deviation of W1; may be negative.
        b: f64,
    },
    /// A baseline: `(W1 - W2ᵀ) / 2`, anticorrelated with the second matrix. (The paper omits the
    /// transposition, without which the shapes do not match.)
    Half,
}

/// Weight (p, n), `f32` or `f64`, and bias (p) of an MLP's first layer after `shift`, from its plain weight and bias
/// and its second matrix (n, p). The results keep their dtypes. Refuses `sigma` below 0 and shifts that are not finite.
pub fn first_layer(
    weight: &Tensor,
    bias: &Tensor,
    second: &Tensor,
    shift: MlpMean,
    rng: &mut ChaCha8Rng,
) -> Result<(Tensor, Tensor)> {
    let shifted = match shift {
        MlpMean::None => weight.clone(),
        MlpMean::Eq1 { sigma } => {
            if finite("sigma", sigma)? < 0.0 {
                refuse!("sigma is {sigma}: use a number that is 0 or greater");
            }
            let tau = sigma * standard_deviation(weight)?;
            let n = weight.dim(1)?;
            let b: Vec<f64> = (0..n).map(|_| tau * standard_normal(rng)).collect();
            let b = Tensor::from_vec(b, (1, n), weight.device())?; // (1, n)
            weight.broadcast_add(&b.to_dtype(weight.dtype())?)? // (p, n)
        }
        MlpMean::Eq2 { b } => (weight + finite("b", b)? * standard_deviation(weight)?)?,
        MlpMean::Bias { b } => {
            let b = finite("b", b)? * standard_deviation(weight)?;
            return Ok((weight.clone(), (bias.zeros_like()? + b)?));
        }
        MlpMean::Half => ((weight - second.t()?)? * 0.5)?,
    };
    Ok((shifted, bias.clone()))
}

/// Initialises the first MLP layer in `block`, such as `blocks.0`, under timm's names by [`first_layer`].
pub(crate) fn shift_block(
    weights: &mut Weights,
    block: &str,
    shift: MlpMean,
    rng: &mut ChaCha8Rng,
) -> Result<()> {
    let name = |part: &str| format!("{block}.mlp.{part}");
    let (weight, bias) = first_layer(
        &weights[&name("fc1.weight")],
        &weights[&name("fc1.bias")],
        &weights[&name("fc2.weight")],
        shift,
        rng,
    )?;
    weights.insert(name("fc1.weight"), weight);
    weights.insert(name("fc1.bias"), bias);
    Ok(())
}

fn standard_deviation(weight: &Tensor) -> Result<f64> {
    let w: Vec<f64> = weight.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?;
    let count = w.len() as f64;
    let mean = w.iter().sum::<f64>() / count;
    let variance = w.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / count;
    Ok(variance.sqrt())
}

#[cfg(test)]
#[path = "mean_shift_tests.rs"]
mod tests;
