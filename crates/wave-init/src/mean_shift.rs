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
use wave_models::{NetworkError, Weights, refuse};

use crate::error::finite;
use crate::random::standard_normal;

/// Initialisation of an MLP's first layer: with a mean shift, or one of the paper's baselines (section 2, and
/// figure 4).
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

/// Weight (p, n), `f32` or `f64`, and bias (p) of an MLP's first layer after `shift`, from its plain weight
/// and bias and its second matrix (n, p). The results keep their dtypes.
///
/// # Errors
/// If a weight to be shifted is not such a matrix, the shift is not finite, or `sigma` is negative.
pub fn first_layer(
    weight: &Tensor,
    bias: &Tensor,
    second: &Tensor,
    shift: MlpMean,
    rng: &mut ChaCha8Rng,
) -> Result<(Tensor, Tensor), NetworkError> {
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
) -> Result<(), NetworkError> {
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

/// The standard deviation of the entries of a matrix.
fn standard_deviation(weight: &Tensor) -> Result<f64, NetworkError> {
    if weight.rank() != 2
        || weight.elem_count() == 0
        || !matches!(weight.dtype(), DType::F32 | DType::F64)
    {
        refuse!(
            "found {:?} of shape {:?}, expected an f32 or f64 matrix of shape (rows, columns)",
            weight.dtype(),
            weight.dims()
        );
    }
    let w: Vec<f64> = weight.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?;
    let count = w.len() as f64;
    let mean = w.iter().sum::<f64>() / count;
    let variance = w.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / count;
    Ok(variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{generator, normal, uniform};

    /// PyTorch's default for a linear layer, in f64: uniform in ±1/sqrt(n).
    fn default_weight(p: usize, n: usize, seed: u64) -> Tensor {
        let w = uniform((p, n), 1.0 / (n as f64).sqrt(), &mut generator(seed, 0)).unwrap();
        w.to_dtype(DType::F64).unwrap()
    }

    /// The shifted weight, for a shift that changes only the weight.
    fn shifted(weight: &Tensor, shift: MlpMean, seed: u64) -> Result<Tensor, NetworkError> {
        let layer = first_layer(weight, weight, weight, shift, &mut generator(seed, 0));
        layer.map(|(weight, _)| weight)
    }

    fn eq1(weight: &Tensor, sigma: f64, seed: u64) -> Result<Tensor, NetworkError> {
        shifted(weight, MlpMean::Eq1 { sigma }, seed)
    }

    fn eq2(weight: &Tensor, b: f64) -> Result<Tensor, NetworkError> {
        shifted(weight, MlpMean::Eq2 { b }, 0)
    }

    fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
        tensor.to_dtype(DType::F64).unwrap().to_vec2().unwrap()
    }

    fn mean(tensor: &Tensor) -> f64 {
        tensor.mean_all().unwrap().to_scalar().unwrap()
    }

    fn largest(tensor: &Tensor) -> f64 {
        tensor
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar()
            .unwrap()
    }

    #[test]
    fn equation_2_adds_one_number_and_keeps_the_variance() {
        for b in [-1.0, -0.25, 0.5, 1.0] {
            let w = default_weight(160, 64, 0);
            let sd = standard_deviation(&w).unwrap();
            assert!((sd * (3.0f64 * 64.0).sqrt() - 1.0).abs() < 0.02); // 1/sqrt(3n)
            let shifted = eq2(&w, b).unwrap();
            // The rounding error of a plain sum over 10,240 entries, hence 1e-12 and not 1e-15.
            assert!((mean(&shifted) - mean(&w) - b * sd).abs() < 1e-12);
            assert!((standard_deviation(&shifted).unwrap() - sd).abs() < 1e-12);
            let change = (shifted - &w).unwrap();
            assert!(largest(&(change - b * sd).unwrap()) < 1e-15);
        }
    }

    #[test]
    fn equation_1_adds_the_same_row_everywhere() {
        let w = default_weight(160, 400, 1);
        let shifted = eq1(&w, 0.5, 9).unwrap();
        let change = rows(&(shifted - &w).unwrap());
        for row in &change {
            assert!(
                row.iter()
                    .zip(&change[0])
                    .all(|(a, b)| (a - b).abs() < 1e-15)
            );
        }
        let tau = (change[0].iter().map(|b| b * b).sum::<f64>() / 400.0).sqrt();
        let ratio = tau / standard_deviation(&w).unwrap();
        assert!((ratio - 0.5).abs() < 0.06, "{ratio}"); // 0.5 ± 3 * 0.5 / sqrt(800)
    }

    #[test]
    fn equation_1_draws_stripes_of_the_predicted_strength() {
        // Stripe score p Var(column mean) / Var(entry): 1 for independent entries, and
        // (1 + p r) / (1 + r) with r = sigma² after equation 1.
        let score = |w: &Tensor| {
            let columns = w.mean_keepdim(0).unwrap(); // (1, n)
            let ratio = standard_deviation(&columns).unwrap() / standard_deviation(w).unwrap();
            w.dim(0).unwrap() as f64 * ratio.powi(2)
        };
        let (w, r) = (default_weight(64, 4000, 2), 0.2f64.powi(2));
        let shifted = eq1(&w, 0.2, 1).unwrap();
        let predicted = (1.0 + 64.0 * r) / (1.0 + r);
        assert!((score(&w) - 1.0).abs() < 0.1, "{}", score(&w));
        assert!(
            (score(&shifted) / predicted - 1.0).abs() < 0.1,
            "{} {predicted}",
            score(&shifted)
        );
    }

    #[test]
    fn baselines_change_the_bias_or_take_half_of_the_difference() {
        let (w, second) = (default_weight(6, 4, 0), default_weight(4, 6, 1));
        let bias = default_weight(6, 1, 2).squeeze(1).unwrap();
        let of = |shift| first_layer(&w, &bias, &second, shift, &mut generator(0, 0)).unwrap();
        let sd = standard_deviation(&w).unwrap();
        let (weight, constant) = of(MlpMean::Bias { b: -2.0 });
        assert_eq!(rows(&weight), rows(&w));
        for b in constant.to_vec1::<f64>().unwrap() {
            assert!((b + 2.0 * sd).abs() < 1e-15);
        }
        let (weight, same) = of(MlpMean::Half);
        assert_eq!(
            same.to_vec1::<f64>().unwrap(),
            bias.to_vec1::<f64>().unwrap()
        );
        let (found, w, second) = (rows(&weight), rows(&w), rows(&second));
        for (p, n) in (0..6).flat_map(|p| (0..4).map(move |n| (p, n))) {
            assert_eq!(found[p][n], (w[p][n] - second[n][p]) * 0.5);
        }
    }

    #[test]
    fn the_type_of_the_matrix_is_kept() {
        let w = normal((4, 3), 1.0, &mut generator(0, 0)).unwrap();
        for shift in [
            MlpMean::None,
            MlpMean::Eq1 { sigma: 1.0 },
            MlpMean::Eq2 { b: 1.0 },
        ] {
            let shifted = shifted(&w, shift, 0).unwrap();
            assert_eq!((shifted.dtype(), shifted.dims()), (DType::F32, w.dims()));
        }
    }

    #[test]
    fn what_cannot_be_shifted_is_refused() {
        let w = default_weight(3, 3, 0);
        let (flat, integers) = (w.flatten_all().unwrap(), w.to_dtype(DType::U32).unwrap());
        for (refused, part) in [
            (eq2(&w, f64::NAN), "b is NaN"),
            (eq1(&w, -1.0, 0), "is -1: use a number that is 0"),
            (eq2(&flat, 1.0), "found F64 of shape [9]"),
            (eq1(&integers, 1.0, 0), "found U32 of shape"),
        ] {
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
