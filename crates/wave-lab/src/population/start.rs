//! Starts of a population of small networks, and statistics of its weights.
//!
//! The start of the thesis' section 3.4: PyTorch's default, weights and biases uniform between
//! ±1/sqrt(inputs), norms the identity, positions small; with or without a mean shift of every W1 ([`wave_init::mean_shift`]).

use super::network::PopulationShape;
use candle_core::{DType, Device, Tensor};
use wave_init::InitError;
use wave_init::direct::mlp_mean::DEFAULT_SHIFT;
use wave_init::error::by_name;
use wave_init::mean_shift::{MlpMean, shift_mean};
use wave_init::random::{generator, uniform};
use wave_models::Weights;

/// A way to start a population.
#[derive(Clone, Copy, Debug)]
pub struct PopulationMethod {
    /// The name on the command line and in recipes.
    pub name: &'static str,
    /// One line on what it does and where it is defined.
    pub description: &'static str,
}

/// Every way to start a population.
pub const METHODS: [PopulationMethod; 2] = [
    PopulationMethod {
        name: "default",
        description: "every network as PyTorch starts its layers",
    },
    PopulationMethod {
        name: "mlp-mean",
        description: "the same with a mean shift of every W1: equation 1 or 2 of the thesis' section \
                      3.4 (--mlp-mean)",
    },
];

/// Positions of a transformer are uniform between these two, as small as timm's of deviation 0.02.
const POSITIONS: f64 = 0.035;

/// The most tensors of a network, of those that draw from a stream each.
const STREAMS: u64 = 1 << 24;

/// Weights of a population by the method of this name; `shift` is that of `mlp-mean`.
///
/// Every network draws from generators of its own: network 3 of 4 equals network 3 of 500.
///
/// # Errors
/// If there is no such method, the shape is not valid, or the shift not finite.
pub fn start(
    method: &str,
    shape: &PopulationShape,
    shift: Option<MlpMean>,
    seed: u64,
) -> Result<Weights, InitError> {
    let named = METHODS.map(|method| (method.name, method));
    let method = by_name("method for a population", method, &named)?;
    shape.validate()?;
    let shift = match method.name {
        "mlp-mean" => shift.unwrap_or(DEFAULT_SHIFT),
        _ => MlpMean::None,
    };
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
            let of_network = |network: usize| -> Result<Tensor, InitError> {
                let rng = &mut generator(seed, network as u64 * STREAMS + place as u64);
                let t = uniform(&dims[1..], bound, rng)?;
                match name.ends_with("fc1.weight") {
                    true => shift_mean(&t, shift, rng),
                    false => Ok(t),
                }
            };
            let networks: Vec<Tensor> = (0..shape.networks)
                .map(of_network)
                .collect::<Result<_, _>>()?;
            Tensor::stack(&networks, 0)?
        };
        weights.insert(name, t);
    }
    Ok(weights)
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
