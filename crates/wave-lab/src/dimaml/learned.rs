//! Learned initialisers: a distribution for each weight tensor, whose parameters are trained (DIMAML, section 2).
//!
//! ```text
//! normal   w = mean + std z                               z ~ N(0, 1)
//! plif     w = softplus(scale) Q(z)                       z ~ U(0, 1)
//!          Q(x) = start + sum_{j < k} softplus(v_j) + softplus(v_k) (K x - k),   k = floor(K x)
//! ```
//!
//! Q is a quantile function, piecewise linear and increasing, with K pieces of equal length. (The paper has
//! K + 1 pieces between K + 1 points; there are K.) A standard deviation may become negative, as in the
//! authors' code: the distribution is symmetric.
//!
//! Parameters start from the moments, or the range, of the default initialisation's tensors. A tensor that is
//! initialised to a constant (norms, zeros of Fixup, a single bias) stays constant: its distribution has
//! no width to learn.

pub mod baselines;

use super::small::{Parameter, Usual};
use super::unrolled::scalar;
use crate::run::{inverse_softplus, softplus};
use candle_core::{DType, Device, Result, Tensor};
use rand::Rng;
use wave_init::random::{generator, standard_normal, uniform};
use wave_models::Weights;
use wave_models::fold::get;

/// Number of pieces of a quantile function, from the authors' code.
pub const PIECES: usize = 100;

/// The default initialisation of a small network: every tensor from its own random stream.
pub fn usual(parameters: &[Parameter], seed: u64) -> Result<Weights> {
    let tensors = parameters.iter().enumerate();
    let tensor = |(i, p): (usize, &Parameter)| {
        let rng = &mut generator(seed, i as u64);
        let dims = p.dims.as_slice();
        let t = match p.usual {
            Usual::Uniform(bound) => uniform(dims, bound, rng)?,
            Usual::Normal(std) => wave_init::random::normal(dims, std, rng)?,
            Usual::Constant(value) => Tensor::full(value as f32, dims, &Device::Cpu)?,
        };
        Ok((p.name.clone(), t))
    };
    tensors.map(tensor).collect()
}

/// Initial parameters of the distributions, from initialised tensors: `KIND.NAME` for each tensor `NAME`, all
/// `f32`. Without `pieces` they are normal: `mean` and `std`; otherwise `start`, `slopes` (pieces) and `scale`.
///
/// Normal ones have the tensor's mean and standard deviation; quantiles are the uniform's between ±1/2, times
/// its range, as in the authors' code. A constant tensor is kept as `constant.NAME`.
pub fn first_parameters(pieces: Option<usize>, start: &Weights) -> Result<Weights> {
    let mut all = Weights::new();
    for (name, t) in start {
        let values: Vec<f64> = t.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?;
        let n = values.len() as f64;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut put = |kind: &str, values: Vec<f64>| -> Result<()> {
            let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
            let t = Tensor::from_vec(values.clone(), values.len(), &Device::Cpu)?;
            all.insert(format!("{kind}.{name}"), t);
            Ok(())
        };
        if least == most {
            put("constant", vec![least])?;
            continue;
        }
        match pieces {
            None => {
                let (mean, std) = mean_and_std(&values, n);
                put("mean", vec![mean])?;
                put("std", vec![std])?;
            }
            Some(pieces) => {
                let rise = inverse_softplus(1.0 / pieces as f64);
                put("start", vec![-0.5])?;
                put("slopes", vec![rise; pieces])?;
                put("scale", vec![inverse_softplus(most - least)])?;
            }
        }
    }
    Ok(all)
}

/// The random part of a sample: names and shapes, and `z` for each tensor that is not constant.
pub type Noise = Vec<(String, Vec<usize>, Option<Tensor>)>;

/// Random numbers for tensors of these names and shapes, each from its own stream.
pub fn noise(shapes: Vec<(String, Vec<usize>)>, parameters: &Weights, seed: u64) -> Result<Noise> {
    let tensor = |(i, (name, dims)): (usize, (String, Vec<usize>))| {
        let mut rng = generator(seed, i as u64);
        let has = |kind: &str| parameters.contains_key(&format!("{kind}.{name}"));
        let n: usize = dims.iter().product();
        let values: Option<Vec<f64>> = match (has("constant"), has("mean")) {
            (true, _) => None,
            (false, true) => Some((0..n).map(|_| standard_normal(&mut rng)).collect()),
            (false, false) => Some((0..n).map(|_| rng.random()).collect()),
        };
        let z = values.map(|values| Tensor::from_vec(values, n, &Device::Cpu));
        Ok((name, dims, z.transpose()?))
    };
    shapes.into_iter().enumerate().map(tensor).collect()
}

/// Weights by name, in the dtype of the parameters, as a differentiable function of them.
pub fn weights(parameters: &Weights, noise: &Noise) -> Result<Weights> {
    let mut all = Weights::new();
    for (name, dims, z) in noise {
        let p = |kind: &str| of(parameters, kind, name);
        let mean = parameters.get(&format!("mean.{name}"));
        let t = match (z, mean) {
            (None, _) => p("constant")?.broadcast_as(dims.as_slice())?.contiguous()?,
            (Some(z), Some(mean)) => {
                let z = z.to_dtype(mean.dtype())?;
                z.broadcast_mul(p("std")?)?.broadcast_add(mean)?
            }
            (Some(z), None) => piecewise_linear(parameters, name, z)?,
        };
        all.insert(name.clone(), t.reshape(dims.as_slice())?);
    }
    Ok(all)
}

/// Samples of a piecewise linear distribution, for `z` (n) in 0..=1.
fn piecewise_linear(parameters: &Weights, name: &str, z: &Tensor) -> Result<Tensor> {
    let p = |kind: &str| of(parameters, kind, name);
    quantile(p("start")?, p("slopes")?, z)?.broadcast_mul(&softplus(p("scale")?)?)
}

/// Q at the points `x` (n) in 0..=1, for `start` (1) and the slopes `v` (pieces), in their dtype.
pub fn quantile(start: &Tensor, v: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (pieces, places) = (v.elem_count(), x.elem_count());
    let x: Vec<f64> = x.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?;
    if let Some(x) = x.iter().find(|x| !(0.0..=1.0).contains(*x)) {
        candle_core::bail!("the quantile at {x}: expected 0 to 1");
    }
    let piece = |x: &f64| ((x * pieces as f64) as usize).min(pieces.saturating_sub(1));
    let index: Vec<u32> = x.iter().map(|x| piece(x) as u32).collect();
    let share = |x: &f64| x * pieces as f64 - piece(x) as f64;
    let share: Vec<f64> = x.iter().map(share).collect();
    let index = Tensor::from_vec(index, places, v.device())?;
    let share = Tensor::from_vec(share, places, v.device())?.to_dtype(v.dtype())?;
    let rises = softplus(v)?; // (pieces)
    let below = (rises.cumsum(0)? - &rises)?; // of the pieces before each
    (below.index_select(&index, 0)? + (rises.index_select(&index, 0)? * share)?)?
        .broadcast_add(start)
}

/// Mean and standard deviation of each tensor's distribution, by name, for the report.
pub fn moments(parameters: &Weights) -> Result<Vec<(String, f64, f64)>> {
    let mut all = Vec::new();
    let first = |t: &Tensor| scalar(&t.get(0)?);
    for (key, t) in parameters {
        let Some((kind @ ("constant" | "mean" | "start"), name)) = key.split_once('.') else {
            continue;
        };
        let (mean, std) = match kind {
            "constant" => (first(t)?, 0.0),
            "mean" => (first(t)?, first(of(parameters, "std", name)?)?.abs()),
            _ => {
                let q = quantiles(parameters, name, 20_000)?;
                mean_and_std(&q, q.len() as f64)
            }
        };
        all.push((name.to_string(), mean, std));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

/// The mean, and the root of the sum of all squared deviations from it over `freedom`.
pub(super) fn mean_and_std(values: &[f64], freedom: f64) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / freedom).sqrt())
}

/// The quantiles of a piecewise linear distribution at the midpoints of `n` equal parts of 0..=1.
pub fn quantiles(parameters: &Weights, name: &str, n: usize) -> Result<Vec<f64>> {
    let x: Vec<f64> = (0..n).map(|i| (i as f64 + 0.5) / n as f64).collect();
    let q = piecewise_linear(parameters, name, &Tensor::from_vec(x, n, &Device::Cpu)?)?;
    q.to_dtype(DType::F64)?.to_vec1()
}

fn of<'a>(parameters: &'a Weights, kind: &str, name: &str) -> Result<&'a Tensor> {
    get(parameters, &format!("{kind}.{name}"))
}

#[cfg(test)]
mod tests;
