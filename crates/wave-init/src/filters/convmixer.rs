//! Starts of a ConvMixer: its depthwise filters by covariance, all else as PyTorch draws it.

use candle_core::Tensor;
use wave_models::Weights;
use wave_models::convmixer::ConvMixerShape;

use super::statistics::{Statistics, interpolate};
use super::{Negative, Sampler, Schedule, covariance, kronecker_factor, kronecker_square};
use crate::error::InitError;
use crate::ledger::Cost;
use crate::options::by_name;
use crate::random::generator;

/// What the methods leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choices {
    /// The variance over depth, of methods without a donor.
    pub schedule: Schedule,
    /// What becomes of negative eigenvalues.
    pub negative: Negative,
    /// Whether covariances are replaced by the nearest Kronecker squares (section 3.1.1).
    pub factored: bool,
}

/// A way to start a ConvMixer.
#[derive(Clone, Copy, Debug)]
pub struct FilterMethod {
    /// The name on the command line and in recipes.
    pub name: &'static str,
    /// One line on what it does and where it is defined.
    pub description: &'static str,
    /// Whether it starts from a trained ConvMixer.
    pub donor: bool,
}

/// Every way to start a ConvMixer.
pub const METHODS: [FilterMethod; 4] = [
    FilterMethod {
        name: "default",
        description: "PyTorch's own: uniform, ±1/sqrt(inputs)",
        donor: false,
    },
    FilterMethod {
        name: "covariance",
        description: "filters with the covariance of trained ones, in closed form (thesis, section \
                      3.1.2)",
        donor: false,
    },
    FilterMethod {
        name: "covariance-transfer",
        description: "filters with mean and covariance of another ConvMixer's, of any depth, width, \
                      patch and kernel (thesis, section 3.1.1)",
        donor: true,
    },
    FilterMethod {
        name: "filters",
        description: "the filters of another ConvMixer, copied: what the others are measured against",
        donor: true,
    },
];

/// The method of this name.
///
/// # Errors
/// If there is none; the message lists those that exist.
pub fn find(name: &str) -> Result<FilterMethod, InitError> {
    let named = METHODS.map(|method| (method.name, method));
    by_name("method for a convmixer", name, &named)
}

/// Weights of a ConvMixer by the method of this name, and what they take over of `donor`.
///
/// Every layer draws from a generator of its own; with `donor`, statistics are those of the layers at
/// the same relative depth, and means are kept where the kernels agree.
///
/// # Errors
/// If there is no such method, or a donor is missing, given in vain, or does not fit; if the shape is
/// not valid, or its kernel even.
pub fn start(
    method: &str,
    shape: &ConvMixerShape,
    donor: Option<(&ConvMixerShape, &Weights)>,
    choices: &Choices,
    seed: u64,
) -> Result<(Weights, Cost), InitError> {
    let method = find(method)?;
    if method.donor != donor.is_some() {
        return Err(InitError::Donors {
            method: method.name,
            expected: usize::from(method.donor),
            found: usize::from(donor.is_some()),
        });
    }
    let mut weights = shape.initialise(seed)?;
    if method.name == "default" {
        return Ok((weights, Cost::default()));
    }
    if let (Some((donor, of)), "filters") = (donor, method.name) {
        let taken = copy(&mut weights, shape, donor, of)?;
        return Ok((weights, cost(taken)));
    }
    let trained: Option<Vec<Statistics>> = donor
        .map(|(donor, of)| {
            (0..donor.depth)
                .map(|layer| Statistics::of(filters(of, layer)?))
                .collect()
        })
        .transpose()?;
    for layer in 0..shape.depth {
        let mut found = match &trained {
            Some(layers) => interpolate(layers, layer, shape.depth)?.resized(shape.kernel)?,
            None => {
                let variance = choices.schedule.at(layer, shape.depth);
                Statistics::centred(covariance(shape.kernel, variance)?)
            }
        };
        if choices.factored {
            let factor = kronecker_factor(&found.covariance)?;
            found.covariance = kronecker_square(&factor, choices.negative)?;
        }
        let sampler = Sampler::new(&found.covariance, choices.negative)?;
        // Stream 0 has drawn all other weights.
        let rng = &mut generator(seed, layer as u64 + 1);
        weights.insert(name(layer), sampler.draw(&found.mean, shape.width, rng)?);
    }
    let taken = donor.map_or(0, |(donor, _)| {
        let pixels = donor.kernel * donor.kernel;
        donor.depth * (pixels + pixels * (pixels + 1) / 2)
    });
    Ok((weights, cost(taken)))
}

/// What it costs to take over, and to keep, so many values.
fn cost(taken: usize) -> Cost {
    Cost {
        transferred: taken,
        stored: taken,
        ..Cost::default()
    }
}

/// The name of a layer's filters, (width, 1, k, k).
fn name(layer: usize) -> String {
    format!("blocks.{layer}.0.fn.0.weight")
}

fn filters(weights: &Weights, layer: usize) -> Result<&Tensor, InitError> {
    let name = name(layer);
    weights
        .get(&name)
        .ok_or_else(|| candle_core::Error::Msg(format!("tensor {name} is missing")).into())
}

/// Copies the first filters of every layer; returns how many values they are.
fn copy(
    weights: &mut Weights,
    shape: &ConvMixerShape,
    donor: &ConvMixerShape,
    of: &Weights,
) -> Result<usize, InitError> {
    for (size, donor, target) in [
        ("kernel", donor.kernel, shape.kernel),
        ("depth", donor.depth, shape.depth),
    ] {
        if donor != target {
            return Err(InitError::DonorDiffers {
                method: "filters",
                size,
                donor,
                target,
            });
        }
    }
    if donor.width < shape.width {
        return Err(InitError::DonorTooSmall {
            method: "filters",
            size: "width",
            donor: donor.width,
            target: shape.width,
        });
    }
    for layer in 0..shape.depth {
        let some = filters(of, layer)?
            .narrow(0, 0, shape.width)?
            .contiguous()?;
        weights.insert(name(layer), some);
    }
    Ok(shape.depth * shape.width * shape.kernel * shape.kernel)
}
