//! What the unit tests share.

use candle_core::{DType, Device, Shape, Tensor, Var};
use rand::{Rng, SeedableRng};

/// Seeded values between -1 and 1.
pub(crate) fn random(seed: u64, shape: impl Into<Shape>) -> Var {
    let shape = shape.into();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..shape.elem_count())
        .map(|_| rng.random_range(-1.0..1.0))
        .collect();
    Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
}

/// All values as `f32`, in order.
pub(crate) fn values(t: &Tensor) -> Vec<f32> {
    let flat = t.flatten_all().unwrap().to_dtype(DType::F32).unwrap();
    flat.to_vec1().unwrap()
}

/// The largest absolute difference of two tensors of one shape.
pub(crate) fn difference(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.dims(), b.dims());
    values(a)
        .iter()
        .zip(values(b))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}
