//! The initialisation of a population of small networks (thesis, section 3.4): PyTorch's default, with weights and
//! biases uniform between ±1/sqrt(inputs), norms the identity, and small positions.

use super::network::PopulationShape;
use candle_core::{DType, Device, Tensor};
use wave_init::random::{generator, uniform};
use wave_models::{NetworkError, Weights};

/// Bound of the uniform positions of a transformer, about as small as timm's standard deviation of 0.02.
const POSITIONS: f64 = 0.035;

/// Maximum number of tensors of a network, each of which uses a random stream.
const STREAMS: u64 = 1 << 24;

/// Initial weights of a population.
///
/// Every network uses its own random generators: network 3 of 4 equals network 3 of 500.
pub fn start(shape: &PopulationShape, seed: u64) -> Result<Weights, NetworkError> {
    shape.validate()?;
    let mut weights = Weights::new();
    let mut bound = 0.0; // of the map at hand: its weight comes before its bias
    for (place, (name, dims)) in shape.parameters().into_iter().enumerate() {
        let t = if name.contains("norm") {
            match name.ends_with(".weight") {
                true => Tensor::ones(dims, DType::F32, &Device::Cpu)?,
                false => Tensor::zeros(dims, DType::F32, &Device::Cpu)?,
            }
        } else {
            if name == "pos_embed" {
                bound = POSITIONS;
            } else if name.ends_with(".weight") {
                let inputs: usize = dims[2..].iter().product();
                bound = 1.0 / (inputs as f64).sqrt();
            }
            let of_network = |network: usize| {
                let rng = &mut generator(seed, network as u64 * STREAMS + place as u64);
                uniform(&dims[1..], bound, rng)
            };
            let networks = (0..shape.networks).map(of_network);
            Tensor::stack(&networks.collect::<candle_core::Result<Vec<_>>>()?, 0)?
        };
        weights.insert(name, t);
    }
    Ok(weights)
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
