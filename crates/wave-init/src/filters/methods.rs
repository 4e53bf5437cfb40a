//! Starts of a ConvMixer or an isotropic ConvNeXt: depthwise filters by covariance, all else PyTorch's
//! default, with a mean shift of the MLPs on request.

use candle_core::Tensor;
use wave_models::{Network, Weights};

use super::statistics::{Statistics, interpolate};
use super::{Negative, Sampler, Schedule, covariance, kronecker_factor, kronecker_square};
use crate::error::{InitError, by_name};
use crate::ledger::Cost;
use crate::mean_shift::{MlpMean, shift_block};
use crate::random::generator;

/// The choices that the methods leave open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterChoices {
    /// The variance over depth, of methods without a donor.
    pub schedule: Schedule,
    /// The treatment of negative eigenvalues.
    pub negative: Negative,
    /// Covariances are replaced by the nearest Kronecker squares (section 3.1.1).
    pub factored: bool,
    /// Mean shift of the first matrix of every MLP, for a network that has MLPs (section 3.4).
    pub mlp_mean: MlpMean,
}

impl Default for FilterChoices {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            negative: Negative::default(),
            factored: false,
            mlp_mean: MlpMean::None,
        }
    }
}

/// The first stream of the MLPs' mean shifts, after those of the filters.
const MEAN_SHIFT: u64 = 1 << 32;

/// The depthwise filters of a network: `blocks.{layer}.{tensor}`, (width, 1, kernel, kernel).
#[derive(Clone, Copy)]
struct FilterTensor {
    depth: usize,
    width: usize,
    kernel: usize,
    tensor: &'static str,
}

impl FilterTensor {
    fn of(network: &Network) -> Result<FilterTensor, InitError> {
        let (depth, width) = network.size();
        let (kernel, tensor) = match network {
            Network::ConvMixer(shape) => (shape.kernel, "0.fn.0.weight"),
            Network::ConvNext(shape) => (shape.kernel, "conv_dw.weight"),
            other => {
                return Err(InitError::Lacks {
                    network: other.family(),
                    part: "depthwise filters in blocks of one kind",
                    remedy: "use a ConvMixer or an isotropic ConvNeXt",
                });
            }
        };
        Ok(FilterTensor {
            depth,
            width,
            kernel,
            tensor,
        })
    }

    fn name(self, layer: usize) -> String {
        format!("blocks.{layer}.{}", self.tensor)
    }

    fn filters(self, weights: &Weights, layer: usize) -> Result<&Tensor, InitError> {
        let name = self.name(layer);
        weights
            .get(&name)
            .ok_or_else(|| candle_core::Error::Msg(format!("tensor {name} is missing")).into())
    }
}

/// A way to start a network with depthwise filters.
#[derive(Clone, Copy, Debug)]
pub struct FilterMethod {
    /// The name on the command line and in recipes.
    pub name: &'static str,
    /// One line on what it does and where it is defined.
    pub description: &'static str,
    /// It starts from a trained network of these.
    pub donor: bool,
}

/// Every way to start a ConvMixer or a ConvNeXt.
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
        description: "filters with mean and covariance of a trained network's, of any depth, width, \
                      patch and kernel (thesis, section 3.1.1)",
        donor: true,
    },
    FilterMethod {
        name: "filters",
        description: "the filters of a trained network, copied: what the others are measured against \
                      (thesis, section 3.1.1)",
        donor: true,
    },
];

/// The method of this name.
///
/// # Errors
/// If there is none; the message lists those that exist.
pub fn find(name: &str) -> Result<FilterMethod, InitError> {
    let named = METHODS.map(|method| (method.name, method));
    by_name("method for a convmixer or convnext", name, &named)
}

/// Weights of a network by the method of this name, and what they take over of `donor`, which may be
/// of the other architecture.
///
/// Every layer draws from a generator of its own; with `donor`, statistics are those of the layers at
/// the same relative depth, and means are kept where the kernels agree.
///
/// # Errors
/// If there is no such method, or a donor is missing, given in vain, or does not fit; if a network has
/// no depthwise filters, or no MLP whose mean could be shifted; if the shape is not valid, or its
/// kernel even.
pub fn start(
    method: &str,
    network: &Network,
    donor: Option<(&Network, &Weights)>,
    choices: &FilterChoices,
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
    let place = FilterTensor::of(network)?;
    let mut weights = match network {
        Network::ConvMixer(shape) => shape.initialise(seed)?,
        Network::ConvNext(shape) => shape.initialise(seed)?,
        _ => Weights::new(), // has no place
    };
    shift_mlps(&mut weights, network, choices.mlp_mean, seed)?;
    let taken = match (method.name, donor) {
        ("default", _) => 0,
        ("filters", Some((donor, of))) => copy(&mut weights, place, FilterTensor::of(donor)?, of)?,
        (_, donor) => sample(&mut weights, place, donor, choices, seed)?,
    };
    Ok((weights, cost(taken)))
}

/// Shifts the mean of every MLP's first matrix.
fn shift_mlps(
    weights: &mut Weights,
    network: &Network,
    shift: MlpMean,
    seed: u64,
) -> Result<(), InitError> {
    if shift == MlpMean::None {
        return Ok(());
    }
    let Network::ConvNext(shape) = network else {
        return Err(InitError::Lacks {
            network: network.family(),
            part: "MLP whose mean could be shifted",
            remedy: "leave out --mlp-mean, or use a ConvNeXt or a transformer",
        });
    };
    for layer in 0..shape.depth {
        let rng = &mut generator(seed, MEAN_SHIFT + layer as u64);
        shift_block(weights, &format!("blocks.{layer}"), shift, rng)?;
    }
    Ok(())
}

/// Draws the filters of every layer; returns how many values of the donor they stand on.
fn sample(
    weights: &mut Weights,
    place: FilterTensor,
    donor: Option<(&Network, &Weights)>,
    choices: &FilterChoices,
    seed: u64,
) -> Result<usize, InitError> {
    let donor = donor
        .map(|(network, weights)| Ok::<_, InitError>((FilterTensor::of(network)?, weights)))
        .transpose()?;
    let trained: Option<Vec<Statistics>> = donor
        .map(|(donor, of)| {
            (0..donor.depth)
                .map(|layer| Statistics::of(donor.filters(of, layer)?))
                .collect()
        })
        .transpose()?;
    for layer in 0..place.depth {
        let mut found = match &trained {
            Some(layers) => interpolate(layers, layer, place.depth)?.resized(place.kernel)?,
            None => {
                let variance = choices.schedule.at(layer, place.depth);
                Statistics::centred(covariance(place.kernel, variance)?)
            }
        };
        if choices.factored {
            let factor = kronecker_factor(&found.covariance)?;
            found.covariance = kronecker_square(&factor, choices.negative)?;
        }
        let sampler = Sampler::new(&found.covariance, choices.negative)?;
        // Stream 0 has drawn all other weights.
        let rng = &mut generator(seed, layer as u64 + 1);
        let filters = sampler.draw(&found.mean, place.width, rng)?;
        weights.insert(place.name(layer), filters);
    }
    Ok(donor.map_or(0, |(donor, _)| {
        let pixels = donor.kernel * donor.kernel;
        donor.depth * (pixels + pixels * (pixels + 1) / 2)
    }))
}

/// The cost of taking over, and keeping, this number of values.
fn cost(taken: usize) -> Cost {
    Cost {
        transferred: taken,
        stored: taken,
        ..Cost::default()
    }
}

/// Copies the first filters of every layer; returns how many values they are.
fn copy(
    weights: &mut Weights,
    place: FilterTensor,
    donor: FilterTensor,
    of: &Weights,
) -> Result<usize, InitError> {
    for (size, donor, target) in [
        ("kernel", donor.kernel, place.kernel),
        ("depth", donor.depth, place.depth),
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
    if donor.width < place.width {
        return Err(InitError::DonorTooSmall {
            method: "filters",
            size: "width",
            donor: donor.width,
            target: place.width,
        });
    }
    for layer in 0..place.depth {
        let some = donor
            .filters(of, layer)?
            .narrow(0, 0, place.width)?
            .contiguous()?;
        weights.insert(place.name(layer), some);
    }
    Ok(place.depth * place.width * place.kernel * place.kernel)
}
