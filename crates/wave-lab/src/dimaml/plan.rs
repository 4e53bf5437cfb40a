//! The plan of learned distributions: checked settings, loaded data and network.

use super::learned;
use super::problem::Source;
use super::settings::{Arch, InnerOptimiser, Method, Settings};
use super::small::{AutoencoderShape, FixupShape, LstmShape, Small};
use super::unrolled::{Optimiser, Unrolled};
use anyhow::Result;
use wave_run::context::Context;
use wave_run::error::request;

pub(super) struct Plan {
    /// Pieces of piecewise linear quantile functions; `None` for normal distributions.
    pub(super) pieces: Option<usize>,
    pub(super) network: Small,
    pub(super) source: Source,
    /// The training run that is differentiated.
    pub(super) inner: Unrolled,
    /// Number of steps of the outer loop.
    pub(super) steps: u64,
    pub(super) learning_rate: f64,
    pub(super) clip: f64,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(own: &Settings, context: &Context) -> Result<Plan> {
        let positive = [
            ("inner_lr", own.inner_lr),
            ("lr", own.lr),
            ("clip", own.clip),
        ];
        for (key, value) in positive {
            if value.is_some_and(|value| value <= 0.0) {
                return Err(request(format!("{key}: expected a number above 0")));
            }
        }
        let spec = own.images.data.as_deref();
        let spec = spec.ok_or_else(|| request("no data; give --data, such as fashion-mnist"))?;
        let source = Source::open(spec, own, None, context)?;
        let network = network(own, &source)?;
        network.validate()?;
        let usual_lr = match own.arch {
            Some(Arch::Lstm) => 3e-4,
            _ => 1e-4,
        };
        Ok(Plan {
            pieces: (own.method == Some(Method::Plif)).then_some(learned::PIECES),
            network,
            source,
            inner: inner(own)?,
            steps: own.steps.unwrap_or(2000),
            learning_rate: own.lr.unwrap_or(usual_lr),
            clip: own.clip.unwrap_or(10.0),
            seed: own.seed.unwrap_or(0),
        })
    }
}

/// The network of the settings, with the input of the data.
fn network(own: &Settings, source: &Source) -> Result<Small> {
    Ok(match (own.arch.unwrap_or_default(), source.frame()) {
        (Arch::Autoencoder, Some((image_size, channels, _))) => {
            Small::Autoencoder(AutoencoderShape {
                image_size,
                channels,
                widths: own.conv_widths.clone().unwrap_or_else(|| vec![8, 16]),
                latent: own.latent.unwrap_or(16),
            })
        }
        (Arch::Fixup, Some((image_size, channels, classes))) => Small::Fixup(FixupShape {
            image_size,
            channels,
            width: own.width.unwrap_or(16),
            blocks: own.depth.unwrap_or(2),
            stages: own.stages.unwrap_or(1),
            classes,
        }),
        _ => {
            let width = own.width.unwrap_or(32);
            Small::Lstm(LstmShape {
                vocabulary: source.vocabulary().unwrap_or(0),
                embedding: width.div_ceil(2),
                width,
                layers: own.depth.unwrap_or(2),
            })
        }
    })
}

/// The training run that is differentiated.
fn inner(own: &Settings) -> Result<Unrolled> {
    // DIMAML's settings, section 3.
    let (optimiser, lr, weight_decay, steps) = match own.arch.unwrap_or_default() {
        Arch::Autoencoder => (InnerOptimiser::Sgd, 1e-2, 0.0, 600),
        Arch::Fixup => (InnerOptimiser::Nesterov, 0.1, 5e-4, 200),
        Arch::Lstm => (InnerOptimiser::Adam, 1e-3, 0.0, 200),
    };
    let sgd = |nesterov| Optimiser::Sgd {
        nesterov,
        weight_decay,
    };
    let optimiser = match own.optimiser.unwrap_or(optimiser) {
        InnerOptimiser::Sgd => sgd(false),
        InnerOptimiser::Nesterov => sgd(true),
        InnerOptimiser::Adam => Optimiser::ADAM,
    };
    let steps = own.inner_steps.unwrap_or(steps);
    Ok(Unrolled {
        optimiser,
        learning_rate: own.inner_lr.unwrap_or(lr),
        steps,
        validate: validated(steps, own.validate_every)?,
        checkpoint: own.keep_every.unwrap_or(5).max(1),
        gradient: own.gradient.unwrap_or_default(),
    })
}

/// The steps with a validation: every `every`-th, and always the last.
pub(super) fn validated(steps: u64, every: Option<u64>) -> Result<Vec<u64>> {
    let every = every.unwrap_or(1);
    if steps == 0 || every == 0 || steps > 100_000 {
        return Err(request(format!(
            "{steps} inner steps with a validation every {every}; expected 1 to 100000 steps, and \
             an interval of at least 1"
        )));
    }
    let mut all: Vec<u64> = (1..=steps).filter(|t| t.is_multiple_of(every)).collect();
    if all.last() != Some(&steps) {
        all.push(steps);
    }
    Ok(all)
}
