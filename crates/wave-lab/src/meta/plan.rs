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
        let inner = inner(own)?;
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
            steps: training.steps.unwrap_or(100),
            learning_rate: training.lr.unwrap_or(1e-3),
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

/// The training run that is differentiated.
fn inner(own: &Distribution) -> Result<Unrolled> {
    let arch = arch(own);
    let usual = match arch {
        MetaArch::Lstm | MetaArch::Scalers => InnerOptimiser::Adam,
        _ => InnerOptimiser::Sgd,
    };
    let (momentum, weight_decay) = (
        own.momentum.unwrap_or(0.9),
        own.inner_weight_decay.unwrap_or(0.0),
    );
    let sgd = |nesterov| Optimiser::Sgd {
        momentum,
        nesterov,
        weight_decay,
    };
    let optimiser = match own.optimiser.unwrap_or(usual) {
        InnerOptimiser::Sgd => sgd(false),
        InnerOptimiser::Nesterov => sgd(true),
        InnerOptimiser::Adam => Optimiser::ADAM,
        InnerOptimiser::Lars => Optimiser::Lars {
            momentum,
            weight_decay,
            trust: own.trust.unwrap_or(1e-3),
        },
    };
    let learning_rate = own.inner_lr.unwrap_or(match arch {
        MetaArch::Fixup => 0.1,
        MetaArch::Lstm => 1e-3,
        _ => 1e-2,
    });
    let steps = own.inner_steps.unwrap_or(40);
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
