//! Helpers of the unit tests.

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

/// Checks the gradients of a function of three arguments, summed with the fourth as weights, against
/// central differences in `f64` with this step: every entry within 1e-4, and none of them zero.
pub(crate) fn check_slopes(
    f: impl Fn(&Tensor, &Tensor, &Tensor) -> candle_core::Result<Tensor>,
    case: &[Var; 4],
    gradients: &[Tensor],
    step: f64,
) {
    let loss = |v: &[Tensor; 4]| -> f64 {
        let y = f(&v[0], &v[1], &v[2]).unwrap();
        (y * &v[3]).unwrap().sum_all().unwrap().to_scalar().unwrap()
    };
    let exact = case.each_ref().map(|v| v.to_dtype(DType::F64).unwrap());
    for argument in 0..3 {
        let (shape, grad) = (exact[argument].shape(), values(&gradients[argument]));
        let flat: Vec<f64> = exact[argument].flatten_all().unwrap().to_vec1().unwrap();
        for i in 0..flat.len() {
            let at = |by: f64| {
                let (mut moved, mut v) = (flat.clone(), exact.clone());
                moved[i] += by;
                v[argument] = Tensor::from_vec(moved, shape, &Device::Cpu).unwrap();
                loss(&v)
            };
            let slope = (at(step) - at(-step)) / (2.0 * step);
            let error = (slope - grad[i] as f64).abs();
            assert!(
                error < 1e-4,
                "argument {argument}, entry {i}: off by {error}"
            );
            assert_ne!(grad[i], 0.0);
        }
    }
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
