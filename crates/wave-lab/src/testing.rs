//! Helpers of the tests.

#[path = "../../wave-ancestors/src/testing.rs"]
mod ancestors;

pub(crate) use ancestors::{assert_close, images, tensor, weights};
use candle_core::{DType, Device, Tensor, Var};
use std::ops::Range;
use wave_models::Weights;

/// All values, in order.
pub(crate) fn values(t: &Tensor) -> Vec<f64> {
    let flat = t.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

/// The expected values of a case from a file of `tests/fixtures`.
pub(crate) fn fixture(file: &str, case: &str) -> Tensor {
    let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()[case].clone()
}

/// Irregular numbers in -1..1.
pub(crate) fn noise(shape: &[usize], seed: u64) -> Tensor {
    let n = shape.iter().product::<usize>() as u64;
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let values: Vec<f64> = (0..n).map(|_| draw()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// The weights in double precision.
pub(crate) fn double(weights: Weights) -> Weights {
    let double = |(name, t): (String, Tensor)| (name, t.to_dtype(DType::F64).unwrap());
    weights.into_iter().map(double).collect()
}

/// The gradients of a scalar with respect to the tensors that it depends on.
pub(crate) fn gradients(at: &Weights, f: impl Fn(&Weights) -> Tensor) -> Weights {
    let variable = |(name, t): (&String, &Tensor)| (name.clone(), Var::from_tensor(t).unwrap());
    let variables: Vec<(String, Var)> = at.iter().map(variable).collect();
    let tracked = variables.iter();
    let tracked = tracked.map(|(name, v)| (name.clone(), v.as_tensor().clone()));
    let mut store = f(&tracked.collect()).backward().unwrap();
    let found = variables.into_iter();
    let found = found.filter_map(|(name, v)| Some((name, store.remove(&v)?)));
    found.collect()
}

/// Checks gradients at some `entries` of each tensor with this many values against central differences of `f` with this
/// `step`: they differ by less than `tolerance` times the slope, or times `least`. Returns the slopes.
#[track_caller]
pub(crate) fn check_slopes(
    at: &Weights,
    gradients: &Weights,
    entries: impl Fn(usize) -> Range<usize>,
    [step, tolerance, least]: [f64; 3],
    f: impl Fn(&Weights) -> f64,
) -> Vec<f64> {
    let mut slopes = Vec::new();
    for (name, gradient) in gradients {
        let gradient = values(gradient);
        for i in entries(gradient.len()) {
            let moved = |by: f64| {
                let (mut all, t) = (at.clone(), &at[name]);
                let mut values = values(t);
                values[i] += by;
                let moved = Tensor::from_vec(values, t.shape(), &Device::Cpu).unwrap();
                all.insert(name.clone(), moved);
                f(&all)
            };
            let slope = (moved(step) - moved(-step)) / (2.0 * step);
            let error = (gradient[i] - slope).abs() / slope.abs().max(least);
            assert!(error < tolerance, "{name} {i}: {}, {slope}", gradient[i]);
            slopes.push(slope);
        }
    }
    slopes
}
