//! The plan of learned distributions: settings checked, data and network read.

use super::learned::{self, DistributionFamily};
use super::network::{About, Network, arch};
use super::problem::{self, Source};
use super::settings::{
    Distribution, InnerOptimiser, Meta, MetaArch, MetaMethod, OuterGradient, OuterTraining,
};
use anyhow::Result;
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::recipe::{means_nothing, narrow, to_table};
use wave_run::settings::Checkpointing;
use wave_train::unrolled::{Gradient, Optimiser, Unrolled};

/// Name in messages.
const WHAT: &str = "a learned distribution";

/// A checked plan.
pub(super) struct Plan {
    pub(super) family: DistributionFamily,
    pub(super) about: About,
    pub(super) network: Network,
    pub(super) source: Source,
    pub(super) training: OuterTraining,
    /// The training run that is differentiated.
    pub(super) inner: Unrolled,
    /// Number of steps of the outer loop.
    pub(super) steps: u64,
    /// Learning rate of the distributions.
    pub(super) learning_rate: f64,
    /// Largest norm of the gradient.
    pub(super) clip: f64,
    /// Steps between two checkpoints.
    pub(super) checkpoint_steps: Option<u64>,
    /// Time between two checkpoints.
    pub(super) checkpoint_every: Option<std::time::Duration>,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(settings: &Meta, context: &Context) -> Result<Plan> {
        let own = &settings.distribution;
        wave_run::settings::check(settings)?;
        if let Some(key) = to_table(&settings.hypernetwork)?.keys().next() {
            return Err(means_nothing(key, WHAT));
        }
        let training: OuterTraining = narrow(&settings.training, WHAT)?;
        let family = match settings.method {
            Some(MetaMethod::Plif) => DistributionFamily::Plif {
                pieces: own.pieces.unwrap_or(learned::PIECES),
            },
            _ => DistributionFamily::Normal,
        };
        family.validate()?;
        let spec = training.images.data.as_deref();
        let spec = spec.ok_or_else(|| request("no data; give --data, such as fashion-mnist"))?;
        let like = match arch(own) {
            MetaArch::Scalers => Network::transform(&Network::about(own, None, None)?, context)?,
            _ => None,
        };
        let source = Source::open(spec, own, &training, like, context)?;
        let about = problem::about(own, &source)?;
        let usual = Usual::of(arch(own));
        let inner = inner(own, &usual)?;
        let network = Network::new(&about, context)?;
        if let (Network::Scalers(of), Source::Images(data)) = (&network, &source) {
            let remedy = "give data of as many classes as the templates'";
            data.check_classes(of.shape().classes, remedy)?;
        }
        Ok(Plan {
            family,
            network,
            about,
            source,
            inner,
            steps: training.steps.unwrap_or(usual.outer_steps),
            learning_rate: training.lr.unwrap_or(usual.outer_lr),
            clip: training.clip.unwrap_or(10.0),
            checkpoint_steps: training.checkpoint_steps.filter(|n| *n > 0),
            checkpoint_every: Checkpointing {
                checkpoint_minutes: training.checkpoint_minutes,
                ..Checkpointing::default()
            }
            .every()?,
            seed: training.seed.unwrap_or(0),
            training,
        })
    }
}

/// What a network is trained with, and learned from, unless the settings say otherwise: DIMAML's, section 3; of scalers,
/// which the paper has not, ours.
struct Usual {
    optimiser: InnerOptimiser,
    lr: f64,
    weight_decay: f64,
    steps: u64,
    outer_lr: f64,
    outer_steps: u64,
}

impl Usual {
    fn of(arch: MetaArch) -> Usual {
        let (optimiser, lr, weight_decay) = match arch {
            MetaArch::Autoencoder => (InnerOptimiser::Sgd, 1e-2, 0.0),
            MetaArch::Fixup => (InnerOptimiser::Nesterov, 0.1, 5e-4),
            MetaArch::Lstm => (InnerOptimiser::Adam, 1e-3, 0.0),
            MetaArch::Scalers => (InnerOptimiser::Adam, 1e-2, 0.0),
        };
        let (steps, outer_lr, outer_steps) = match arch {
            MetaArch::Autoencoder => (600, 1e-4, 2000),
            MetaArch::Fixup => (200, 1e-4, 2000),
            MetaArch::Lstm => (200, 3e-4, 2000),
            MetaArch::Scalers => (40, 1e-3, 100),
        };
        Usual {
            optimiser,
            lr,
            weight_decay,
            steps,
            outer_lr,
            outer_steps,
        }
    }
}

/// The training run that is differentiated.
fn inner(own: &Distribution, usual: &Usual) -> Result<Unrolled> {
    let momentum = own.momentum.unwrap_or(0.9);
    let chosen = own.optimiser.unwrap_or(usual.optimiser);
    let weight_decay = own.inner_weight_decay.unwrap_or(match chosen {
        InnerOptimiser::Adam => 0.0,
        _ => usual.weight_decay,
    });
    let sgd = |nesterov| Optimiser::Sgd {
        momentum,
        nesterov,
        weight_decay,
    };
    let optimiser = match chosen {
        InnerOptimiser::Sgd => sgd(false),
        InnerOptimiser::Nesterov => sgd(true),
        InnerOptimiser::Adam => Optimiser::ADAM,
        InnerOptimiser::Lars => Optimiser::Lars {
            momentum,
            weight_decay,
            trust: own.trust.unwrap_or(1e-3),
        },
    };
    let learning_rate = own.inner_lr.unwrap_or(usual.lr);
    let steps = own.inner_steps.unwrap_or(usual.steps);
    Ok(Unrolled {
        optimiser,
        learning_rate,
        steps,
        validate: validated(steps, own.validate_every)?,
        checkpoint: own.keep_every.unwrap_or(5),
        gradient: match own.gradient.unwrap_or_default() {
            OuterGradient::Full => Gradient::Full,
            OuterGradient::FirstOrder => Gradient::FirstOrder,
            OuterGradient::Reptile => Gradient::Reptile,
        },
    })
}

/// The steps with a validation: every so many, and always the last.
pub(super) fn validated(steps: u64, every: Option<u64>) -> Result<Vec<u64>> {
    let every = every.unwrap_or(1);
    if steps == 0 || every == 0 || steps > 100_000 {
        return Err(request(format!(
            "{steps} inner steps with a validation every {every}; expected 1 to 100000, and at least 1"
        )));
    }
    let mut all: Vec<u64> = (1..=steps).filter(|t| t.is_multiple_of(every)).collect();
    if all.last() != Some(&steps) {
        all.push(steps);
    }
    Ok(all)
}

/// Weights drawn from learned distributions.
pub(super) fn draw_weights(
    family: DistributionFamily,
    network: &Network,
    parameters: &Weights,
    seed: u64,
) -> Result<Weights> {
    let noise = learned::Noise::new(family, &network.shapes()?, parameters, seed)?;
    Ok(learned::weights(family, parameters, &noise)?)
}
