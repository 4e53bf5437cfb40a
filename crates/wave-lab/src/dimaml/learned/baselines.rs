//! The baselines of learned initialisers (DIMAML, section 3): MetaInit and delta-orthogonal filters.
//! (Fixup is the default initialisation of [`super::super::small::fixup`].)

use crate::dimaml::unrolled::{gradient_of, named, scalar, variables};
use candle_core::{DType, Device, Result, Tensor};
use faer::Mat;
use wave_init::random::{generator, standard_normal};
use wave_models::Weights;

/// The smallest norm that MetaInit gives a tensor: at 0 its direction would be lost.
const LEAST_NORM: f64 = 1e-5;

/// MetaInit (Dauphin and Schoenholz 2019, algorithm 1): changes only the norms of all tensors of rank 2 and
/// more, so that the gradient quotient falls.
///
/// `slope` maps the step and the weights to the derivatives of the quotient with respect to the weights
/// ([`gradient_quotient`]). A norm is updated by the sign of its derivative, with a learning rate and momentum.
pub fn metainit(
    start: &Weights,
    steps: u64,
    [learning_rate, momentum]: [f64; 2],
    mut slope: impl FnMut(u64, &Weights) -> Result<Weights>,
) -> Result<Weights> {
    let mut weights = start.clone();
    // Direction, norm, and the norm's last change.
    let mut tuned: Vec<(String, Tensor, f64, f64)> = Vec::new();
    for (name, w) in start.iter().filter(|(_, w)| w.rank() >= 2) {
        let norm = dot(w, w)?.sqrt();
        if norm > 0.0 {
            tuned.push((name.clone(), (w / norm)?, norm, 0.0));
        }
    }
    for step in 1..=steps {
        let slopes = slope(step, &weights)?;
        for (name, direction, norm, change) in &mut tuned {
            let Some(slope) = slopes.get(name) else {
                continue;
            };
            // The derivative of the weight with respect to its norm is its direction.
            let slope = dot(slope, direction)?;
            let sign = if slope == 0.0 { 0.0 } else { slope.signum() };
            *change = momentum * *change - learning_rate * sign;
            *norm = (*norm + *change).max(LEAST_NORM);
            weights.insert(name.clone(), (&*direction * *norm)?);
        }
    }
    Ok(weights)
}

/// Keeps the quotient finite where the gradient is zero.
const EPS: f64 = 1e-5;

/// The gradient quotient and its derivatives with respect to the weights (Dauphin and Schoenholz 2019,
/// equation 1), where g and H are the gradient and Hessian of `loss` and n the number of values:
///
/// ```text
/// GQ = 1/n sum |(g - H g) / (g + eps sign(g)) - 1|
/// ```
///
/// The derivatives are third derivatives of the loss. Must run inside [`second_order`](crate::dimaml::second_order()).
pub fn gradient_quotient(
    weights: &Weights,
    loss: impl FnOnce(&Weights) -> Result<Tensor>,
) -> Result<(f64, Weights)> {
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
    let squares: Result<_> = g.iter().map(|g| g.sqr()?.sum_all()).collect();
    let hg = gradients_of(&(sum(squares?)? * 0.5)?)?; // the gradient of |g|² / 2 is H g
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

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    let product = (a.to_dtype(DType::F64)? * b.to_dtype(DType::F64)?)?;
    product.sum_all()?.to_scalar()
}

/// Delta-orthogonal filters (out, in, k, k): `gain` times a matrix with orthonormal columns at the
/// centre, zeros around it (Xiao et al. 2018, algorithm 2). With more inputs than outputs its rows are
/// orthonormal instead: our reading, since the paper has no such layers. A matrix (out, in) is
/// its own centre.
pub fn delta_orthogonal(dims: &[usize], gain: f64, seed: u64, stream: u64) -> Result<Tensor> {
    let (out, inp, side) = match *dims {
        [out, inp] if out * inp > 0 => (out, inp, 1),
        [out, inp, k, other] if out * inp > 0 && k == other && k % 2 == 1 => (out, inp, k),
        _ => candle_core::bail!(
            "delta-orthogonal filters of shape {dims:?}: expected (out, in, k, k) with an odd k, or \
             (out, in)"
        ),
    };
    let mut rng = generator(seed, stream);
    let (long, short) = (out.max(inp), out.min(inp));
    let g = Mat::from_fn(long, short, |_, _| standard_normal(&mut rng));
    let q = g.qr().compute_thin_Q(); // (long, short)
    let middle = (side * side) / 2;
    let mut values = vec![0f32; out * inp * side * side];
    for o in 0..out {
        for i in 0..inp {
            let entry = if out >= inp { q[(o, i)] } else { q[(i, o)] };
            values[(o * inp + i) * side * side + middle] = (gain * entry) as f32;
        }
    }
    Tensor::from_vec(values, dims, &Device::Cpu)
}

#[cfg(test)]
#[path = "baselines_tests.rs"]
mod tests;
