//! PyTorch's default initialisation.

use crate::Weights;
use candle_core::{Device, Result, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Weights with PyTorch's default initialisation: weight and bias of a convolution or a linear layer uniform
/// in `±1 / sqrt(fan_in)`; norms, which `is_norm` selects, the identity, with running mean 0 and variance 1.
/// A layer's weight comes before its bias. The same seed gives the same weights.
pub(crate) fn pytorch_default(
    parameters: Vec<(String, Vec<usize>)>,
    is_norm: impl Fn(&str) -> bool,
    seed: u64,
) -> Result<Weights> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut bound = 0.0; // of the layer at hand
    let mut weights = Weights::new();
    for (name, shape) in parameters {
        let n = shape.iter().product();
        let values: Vec<f32> = if is_norm(&name) {
            let one = name.ends_with(".weight") || name.ends_with(".running_var");
            vec![if one { 1.0 } else { 0.0 }; n]
        } else {
            if name.ends_with(".weight") {
                let fan_in: usize = shape[1..].iter().product();
                bound = 1.0 / (fan_in as f32).sqrt();
            }
            (0..n).map(|_| rng.random_range(-bound..bound)).collect()
        };
        weights.insert(name, Tensor::from_vec(values, shape, &Device::Cpu)?);
    }
    Ok(weights)
}
