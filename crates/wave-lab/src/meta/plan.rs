//! Learned distributions before the work: settings checked, data and network at hand.

use super::network::{About, Network, arch};
use super::problem::{self, Source};
use anyhow::Result;
use wave_init::learned::{self, DistributionFamily};
use wave_models::Weights;
use wave_run::error::request;
use wave_run::settings::{Distribution, Meta};
use wave_train::unrolled::{Optimiser, Unrolled};

/// Keys of the training that mean something here.
const KEYS: [&str; 14] = [
    "data",
    "train_limit",
    "test_limit",
    "hold_out",
    "steps",
    "batch",
    "lr",
    "clip",
    "mean",
    "std",
    "checkpoint_steps",
    "checkpoint_minutes",
    "seed",
    "method",
];

/// Everything that is to be done, checked.
pub(super) struct Plan {
    pub(super) family: DistributionFamily,
    pub(super) about: About,
    pub(super) network: Network,
    pub(super) source: Source,
    /// What is differentiated.
    pub(super) inner: Unrolled,
    /// How often.
    pub(super) steps: u64,
    /// Learning rate of the distributions.
    pub(super) learning_rate: f64,
    /// Largest norm of their gradient.
    pub(super) clip: f64,
    /// Trainings between two checkpoints.
    pub(super) checkpoint_steps: Option<u64>,
    /// Time between two checkpoints.
    pub(super) checkpoint_every: Option<std::time::Duration>,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(settings: &Meta) -> Result<Plan> {
        let own = &settings.distribution;
        check_keys(settings)?;
        wave_run::settings::check(settings)?;
        let mut family: DistributionFamily =
            settings.method.as_deref().unwrap_or("normal").parse()?;
        if let (DistributionFamily::Plif { pieces }, Some(given)) = (&mut family, own.pieces) {
            *pieces = given;
        }
        family.validate()?;
        let training = &settings.training;
        let spec = training.data.as_deref();
        let spec = spec.ok_or_else(|| request("no data; give --data, such as fashion-mnist"))?;
        let like = match arch(own) {
            "scalers" => Network::transform(&Network::about(own, None, None)?)?,
            _ => None,
        };
        let source = Source::open(spec, own, training, like)?;
        let about = problem::about(own, &source)?;
        let inner = inner(own)?;
        let network = Network::new(&about)?;
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
            checkpoint_every: wave_run::train::checkpoint_every(training.checkpoint_minutes)?,
            seed: training.seed.unwrap_or(0),
        })
    }
}

/// Refuses keys of the training that mean nothing here.
fn check_keys(settings: &Meta) -> Result<()> {
    let table = wave_run::recipe::to_table(settings)?;
    let own = wave_run::recipe::to_table(&settings.distribution)?;
    let strange = |key: &&String| !KEYS.contains(&key.as_str()) && !own.contains_key(*key);
    match table.keys().find(strange) {
        None => Ok(()),
        Some(key) => Err(request(format!(
            "{key} means nothing to a learned distribution; leave it out (of the training it knows: {})",
            KEYS[..KEYS.len() - 1].join(", ")
        ))),
    }
}

/// The training that is differentiated.
fn inner(own: &Distribution) -> Result<Unrolled> {
    let arch = arch(own);
    let usual = match arch {
        "lstm" | "scalers" => "adam",
        _ => "sgd",
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
    let optimiser = match own.optimiser.as_deref().unwrap_or(usual) {
        "sgd" => sgd(false),
        "nesterov" => sgd(true),
        "adam" => Optimiser::ADAM,
        "lars" => Optimiser::Lars {
            momentum,
            weight_decay,
            trust: own.trust.unwrap_or(1e-3),
        },
        other => {
            return Err(request(format!(
                "optimiser = {other}; expected sgd, nesterov, adam or lars"
            )));
        }
    };
    let learning_rate = own.inner_lr.unwrap_or(match arch {
        "fixup" => 0.1,
        "lstm" => 1e-3,
        _ => 1e-2,
    });
    let steps = own.inner_steps.unwrap_or(40);
    Ok(Unrolled {
        optimiser,
        learning_rate,
        steps,
        validate: validated(steps, own.validate_every)?,
        checkpoint: own.keep_every.unwrap_or(5),
    })
}

/// Every so many steps; the last always.
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
