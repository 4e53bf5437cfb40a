//! Initialisation of a ConvMixer or a ConvNeXt: depthwise filters by covariance, everything else PyTorch's
//! default, optionally with a mean shift of the MLPs.

use wave_models::fold::get;
use wave_models::{Network, Refusal, Weights, refuse};

use super::statistics::{Statistics, interpolate};
use super::{Schedule, covariance, kronecker_factor, kronecker_square};
use crate::error::{Result, by_name, wrong_donor};
use crate::mean_shift::{MlpMean, shift_block};
use crate::random::generator;
use crate::start::Cost;
use crate::transfer::{at_least, same};

/// The choices that the methods leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FilterChoices {
    /// The variance over depth, for methods without a donor.
    pub schedule: Schedule,
    /// In a four-stage ConvNeXt, halve the variance whenever the resolution is halved: our interpretation of
    /// the thesis' Fig. B.5, which gives no numbers.
    pub sawtooth: bool,
    /// Replace covariances by the nearest Kronecker squares (section 3.1.1).
    pub factored: bool,
    /// Mean shift of the first matrix of every MLP, for networks with MLPs (section 3.4).
    pub mlp_mean: MlpMean,
}

/// The first random stream for the MLPs' mean shifts, after the filters' streams.
const MEAN_SHIFT: u64 = 1 << 32;

/// The filters of a layer, (width, 1, kernel, kernel).
struct Layer {
    name: String,
    width: usize,
    stage: usize,
}

/// The depthwise filters of a network, and the side of their kernels.
fn filters_of(network: &Network) -> Result<(Vec<Layer>, usize)> {
    match network {
        Network::ConvMixer(shape) => {
            let layer = |l: usize| Layer {
                name: format!("blocks.{l}.0.fn.0.weight"),
                width: shape.width,
                stage: 0,
            };
            Ok(((0..shape.depth).map(layer).collect(), shape.kernel))
        }
        Network::ConvNext(shape) => {
            let layer = |(block, width, stage): (String, usize, usize)| Layer {
                name: format!("{block}.conv_dw.weight"),
                width,
                stage,
            };
            let layers = shape.blocks().into_iter().map(layer);
            Ok((layers.collect(), shape.kernel))
        }
        other => refuse!(
            "{} has no uniform blocks with depthwise filters: use a ConvMixer or a ConvNeXt",
            other.family()
        ),
    }
}

/// A way to initialise a network's depthwise filters.
#[derive(Clone, Copy, Debug)]
pub struct FilterMethod {
    /// The name on the command line and in recipes.
    pub name: &'static str,
    /// One line: its effect and paper.
    pub description: &'static str,
    /// True if it needs a trained ConvMixer or ConvNeXt.
    pub donor: bool,
}

/// All ways to initialise a ConvMixer or a ConvNeXt.
pub const METHODS: [FilterMethod; 4] = [
    FilterMethod {
        name: "default",
        description: "PyTorch's default: uniform in ±1/sqrt(fan-in)",
        donor: false,
    },
    FilterMethod {
        name: "covariance",
        description: "filters with the covariance of trained filters, in closed form (thesis, \
                      section 3.1.2)",
        donor: false,
    },
    FilterMethod {
        name: "covariance-transfer",
        description: "filters with the mean and covariance of a trained network's filters, for any \
                      depth, width, patch and kernel size (thesis, section 3.1.1)",
        donor: true,
    },
    FilterMethod {
        name: "filters",
        description: "the filters of a trained network, copied: the reference for the other \
                      methods (thesis, section 3.1.1)",
        donor: true,
    },
];

/// The method of this name; if there is none, the error lists all names.
pub fn find(name: &str) -> Result<FilterMethod, Refusal> {
    let named = METHODS.map(|method| (method.name, method));
    by_name("method for a convmixer or convnext", name, &named)
}

/// Initialises a network by the method of this name. Returns the weights and the cost in values
/// taken from `donor`, which may have the other architecture.
///
/// Every layer has its own generator. With `donor`, statistics come from the layers at the same relative
/// depth, and means are kept if the kernel sizes are equal.
///
/// # Errors
/// If there is no such method; a donor is missing, unused, or does not fit; the network has no depthwise
/// filters, or no MLP whose mean could be shifted; or the shape is not valid, or its kernel even.
pub fn start(
    method: &str,
    network: &Network,
    donor: Option<(&Network, &Weights)>,
    choices: &FilterChoices,
    seed: u64,
) -> Result<(Weights, Cost)> {
    let method = find(method)?;
    if method.donor != donor.is_some() {
        return Err(wrong_donor(method.name, method.donor).into());
    }
    let filters = filters_of(network)?;
    let mut weights = match network {
        Network::ConvMixer(shape) => shape.initialise(seed)?,
        Network::ConvNext(shape) => shape.initialise(seed)?,
        _ => Weights::new(), // has no filters
    };
    if choices.mlp_mean != MlpMean::None {
        shift_mlps(&mut weights, network, choices.mlp_mean, seed)?;
    }
    let taken = match (method.name, donor) {
        ("default", _) => 0,
        ("filters", Some(donor)) => copy(&mut weights, filters, donor)?,
        (_, donor) => sample(&mut weights, filters, donor, choices, seed)?,
    };
    let cost = Cost {
        transferred: taken,
        stored: taken,
        ..Cost::default()
    };
    Ok((weights, cost))
}

/// Shifts the mean of every MLP's first matrix.
fn shift_mlps(weights: &mut Weights, network: &Network, shift: MlpMean, seed: u64) -> Result<()> {
    let Network::ConvNext(shape) = network else {
        refuse!(
            "{} has no MLP for a mean shift: drop --mlp-mean, or use a ConvNeXt or a transformer",
            network.family()
        );
    };
    for (layer, (block, ..)) in shape.blocks().into_iter().enumerate() {
        let rng = &mut generator(seed, MEAN_SHIFT + layer as u64);
        shift_block(weights, &block, shift, rng)?;
    }
    Ok(())
}

/// Samples the filters of every layer; returns the number of donor values that they depend on.
fn sample(
    weights: &mut Weights,
    (layers, kernel): (Vec<Layer>, usize),
    donor: Option<(&Network, &Weights)>,
    choices: &FilterChoices,
    seed: u64,
) -> Result<usize> {
    let mut taken = 0;
    let trained: Option<Vec<Statistics>> = match donor {
        None => None,
        Some((donor, of)) => {
            let (layers, kernel) = filters_of(donor)?;
            let pixels = kernel * kernel;
            taken = layers.len() * (pixels + pixels * (pixels + 1) / 2);
            let statistics = |layer: &Layer| Statistics::of(get(of, &layer.name)?);
            Some(layers.iter().map(statistics).collect::<Result<_>>()?)
        }
    };
    let depth = layers.len();
    for (i, layer) in layers.into_iter().enumerate() {
        let mut found = match &trained {
            Some(trained) => interpolate(trained, i, depth).resized(kernel)?,
            None => {
                let mut variance = choices.schedule.at(i, depth);
                if choices.sawtooth {
                    variance /= f64::from(1 << layer.stage);
                }
                Statistics::centred(covariance(kernel, variance)?)
            }
        };
        if choices.factored {
            found.covariance = kronecker_square(&kronecker_factor(&found.covariance)?)?;
        }
        // Stream 0 was used for all other weights.
        let rng = &mut generator(seed, i as u64 + 1);
        weights.insert(layer.name, found.draw(layer.width, rng)?);
    }
    Ok(taken)
}

/// Copies the first filters of every layer; returns the number of values.
fn copy(
    weights: &mut Weights,
    (layers, kernel): (Vec<Layer>, usize),
    (donor, of): (&Network, &Weights),
) -> Result<usize> {
    let (donors, donor_kernel) = filters_of(donor)?;
    let depth = ("depth", donors.len(), layers.len());
    same("filters", &[("kernel", donor_kernel, kernel), depth])?;
    let mut taken = 0;
    for (layer, donor) in std::iter::zip(layers, donors) {
        at_least("filters", "width", donor.width, layer.width)?;
        let some = get(of, &donor.name)?.narrow(0, 0, layer.width)?;
        taken += some.elem_count();
        weights.insert(layer.name, some.contiguous()?);
    }
    Ok(taken)
}
