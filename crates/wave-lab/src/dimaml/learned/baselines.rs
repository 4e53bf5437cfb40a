//! The baselines of learned initialisers (DIMAML, section 3): MetaInit and delta-orthogonal filters.
//! (Fixup is the default initialisation of [`super::super::small::fixup`].)

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
/// ([`gradient_quotient`](crate::dimaml::unrolled::gradient_quotient)). A norm is updated by the sign of its
/// derivative, with a learning rate and momentum.
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
mod tests {
    use super::*;

    fn matrix(t: &Tensor) -> Vec<Vec<f64>> {
        t.to_dtype(DType::F64).unwrap().to_vec2().unwrap()
    }

    /// "zeros except centre tap = gain Q; assert QᵀQ = I".
    #[test]
    fn the_middle_of_delta_orthogonal_filters_is_orthogonal() {
        for (out, inp, k) in [(8, 5, 3), (6, 6, 5), (3, 7, 1), (4, 9, 3)] {
            let filters = delta_orthogonal(&[out, inp, k, k], 2.0, 1, 0).unwrap();
            let middle = filters
                .narrow(2, k / 2, 1)
                .unwrap()
                .narrow(3, k / 2, 1)
                .unwrap();
            let q = (middle.reshape((out, inp)).unwrap() / 2.0).unwrap();
            let gram = match out >= inp {
                true => q.t().unwrap().matmul(&q).unwrap(),
                false => q.matmul(&q.t().unwrap()).unwrap(),
            };
            for (i, row) in matrix(&gram).iter().enumerate() {
                for (j, value) in row.iter().enumerate() {
                    let identity = if i == j { 1.0 } else { 0.0 };
                    assert!((value - identity).abs() < 1e-6, "{value}");
                }
            }
            let all = dot(&filters, &filters).unwrap();
            let within = dot(&middle, &middle).unwrap();
            assert_eq!(all, within, "zeros but in the middle");
        }
        assert!(delta_orthogonal(&[4, 4, 2, 2], 1.0, 0, 0).is_err());
        assert!(delta_orthogonal(&[4], 1.0, 0, 0).is_err());
    }

    /// "Assert direction W/‖W‖ unchanged", and that the norms move as the slope says.
    #[test]
    fn metainit_changes_norms_alone() {
        let t = |values: &[f64]| Tensor::from_slice(values, (values.len() / 2, 2), &Device::Cpu);
        let mut start = Weights::new();
        start.insert("a".into(), t(&[3.0, 4.0, 0.0, 0.0]).unwrap());
        start.insert("b".into(), t(&[-1.0, 2.0]).unwrap());
        start.insert(
            "bias".into(),
            Tensor::new(&[1f64, 2.0], &Device::Cpu).unwrap(),
        );
        start.insert("zero".into(), t(&[0.0, 0.0]).unwrap());
        // (|a| - 2)² and |b|²: the slopes are 2 (|a| - 2) a / |a| and 2 b.
        let slope = |_: u64, w: &Weights| {
            let norm = dot(&w["a"], &w["a"])?.sqrt();
            let mut slopes = Weights::new();
            slopes.insert("a".into(), (&w["a"] * (2.0 * (norm - 2.0) / norm))?);
            slopes.insert("b".into(), (&w["b"] * 2.0)?);
            slopes.insert("bias".into(), w["bias"].clone());
            Ok(slopes)
        };
        let end = metainit(&start, 400, [0.01, 0.5], slope).unwrap();
        let norm = |t: &Tensor| dot(t, t).unwrap().sqrt();
        assert!((norm(&end["a"]) - 2.0).abs() < 0.05);
        assert!((norm(&end["b"]) - LEAST_NORM).abs() < 0.05);
        for name in ["a", "b"] {
            let (from, to) = (&start[name], &end[name]);
            let cosine = dot(from, to).unwrap() / (norm(from) * norm(to));
            assert!((cosine - 1.0).abs() < 1e-12, "{name}: {cosine}");
        }
        for name in ["bias", "zero"] {
            let kept = (&start[name] - &end[name]).unwrap();
            assert_eq!(norm(&kept), 0.0, "{name}");
        }
    }
}
