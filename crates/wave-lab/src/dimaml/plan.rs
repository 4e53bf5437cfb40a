//! The plan of learned distributions: checked settings, loaded data and network.

use super::learned;
use super::problem::Source;
use super::settings::{Arch, InnerOptimiser, Method, Settings};
use super::small::{AutoencoderShape, FixupShape, LstmShape, Small};
use super::unrolled::{Optimiser, Unrolled};
use crate::run::{Keys, check_keys};
use anyhow::Result;
use wave_models::check::sizes;
use wave_models::refuse;
use wave_run::context::Context;

/// Keys that apply to some networks.
const OF_ARCH: &Keys = &[
    ("conv_widths", &["autoencoder"]),
    ("latent", &["autoencoder"]),
    ("width", &["fixup", "lstm"]),
    ("depth", &["fixup", "lstm"]),
    ("stages", &["fixup"]),
];

/// Every fifth state is kept for the backward pass.
const CHECKPOINT: u64 = 5;

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
    pub(super) seed: u64,
    /// Initialisations to compare, the learned one first.
    pub(super) starts: Vec<Start>,
    /// The training run of a test.
    pub(super) tested: Unrolled,
}

/// The initialisation that was learned.
pub(super) const LEARNED: &str = "learned";

/// An initialisation and the training from it, as `NAME`, `NAME@lars=TRUST` or `NAME@learned-rates`.
pub(super) struct Start {
    /// As given.
    pub(super) name: String,
    /// `NAME` alone.
    pub(super) kind: String,
    pub(super) optimiser: Optimiser,
    /// Gradients are rescaled, per tensor and step, to the update rates of the training from the learned start on
    /// the same batches (DIMAML LR, figure 3).
    pub(super) learned_rates: bool,
}

impl Plan {
    pub(super) fn new(own: &Settings, context: &Context) -> Result<Plan> {
        check_keys(own, OF_ARCH, "arch", "autoencoder")?;
        let inner = inner(own);
        let steps = own.test_steps.unwrap_or(inner.steps);
        sizes(&[
            ("inner_steps", inner.steps as usize),
            ("validate_every", own.validate_every.unwrap_or(1) as usize),
            ("test_steps", steps as usize),
            (
                "number of test_seeds",
                own.test_seeds.as_ref().map_or(1, Vec::len),
            ),
        ])?;
        let Some(spec) = &own.images.data else {
            refuse!("no data; give --data, such as fashion-mnist");
        };
        let source = Source::open(spec, own, None, context)?;
        let network = network(own, &source);
        network.validate()?;
        let usual_lr = match own.arch {
            Some(Arch::Lstm) => 3e-4,
            _ => 1e-4,
        };
        let usual = vec!["usual".to_owned()];
        let mut starts = vec![Start {
            name: LEARNED.to_owned(),
            kind: LEARNED.to_owned(),
            optimiser: inner.optimiser,
            learned_rates: false,
        }];
        for name in own.against.as_ref().unwrap_or(&usual) {
            starts.push(start(name, &network, inner.optimiser)?);
        }
        Ok(Plan {
            pieces: (own.method == Some(Method::Plif)).then_some(learned::PIECES),
            starts,
            tested: Unrolled {
                steps,
                validate: validated(steps, own),
                ..inner.clone()
            },
            network,
            source,
            inner,
            steps: own.steps.unwrap_or(2000),
            learning_rate: own.lr.unwrap_or(usual_lr),
            seed: own.seed.unwrap_or(0),
        })
    }
}

/// The network of the settings, with the input of the data and as many outputs as it has classes or tokens.
pub(super) fn network(own: &Settings, source: &Source) -> Small {
    match source {
        Source::Images(data) if own.arch == Some(Arch::Fixup) => Small::Fixup(FixupShape {
            image_size: data.transform.image_size,
            channels: data.transform.channels,
            width: own.width.unwrap_or(16),
            blocks: own.depth.unwrap_or(2),
            stages: own.stages.unwrap_or(1),
            classes: data.class_names.len(),
        }),
        Source::Images(data) => Small::Autoencoder(AutoencoderShape {
            image_size: data.transform.image_size,
            channels: data.transform.channels,
            widths: own.conv_widths.clone().unwrap_or_else(|| vec![8, 16]),
            latent: own.latent.unwrap_or(16),
        }),
        Source::Tokens(task, _) => {
            let width = own.width.unwrap_or(32);
            Small::Lstm(LstmShape {
                vocabulary: task.vocabulary(),
                embedding: width.div_ceil(2),
                width,
                layers: own.depth.unwrap_or(2),
            })
        }
    }
}

/// The training run that is differentiated.
fn inner(own: &Settings) -> Unrolled {
    // DIMAML's settings, section 3.
    let (optimiser, lr, weight_decay, steps) = match own.arch.unwrap_or_default() {
        Arch::Autoencoder => (InnerOptimiser::Sgd, 1e-2, 0.0, 600),
        Arch::Fixup => (InnerOptimiser::Nesterov, 0.1, 5e-4, 200),
        Arch::Lstm => (InnerOptimiser::Adam, 1e-3, 0.0, 200),
    };
    let optimiser = match own.optimiser.unwrap_or(optimiser) {
        InnerOptimiser::Adam => Optimiser::ADAM,
        sgd => Optimiser::Sgd {
            nesterov: sgd == InnerOptimiser::Nesterov,
            weight_decay,
        },
    };
    let steps = own.inner_steps.unwrap_or(steps);
    Unrolled {
        optimiser,
        learning_rate: own.inner_lr.unwrap_or(lr),
        steps,
        validate: validated(steps, own),
        checkpoint: CHECKPOINT,
        gradient: own.gradient.unwrap_or_default(),
    }
}

/// The steps with a validation: every n-th, and always the last.
fn validated(steps: u64, own: &Settings) -> Vec<u64> {
    let every = own.validate_every.unwrap_or(1);
    let all = (1..=steps).filter(|t| t.is_multiple_of(every) || *t == steps);
    all.collect()
}

fn start(name: &str, network: &Small, usual: Optimiser) -> Result<Start> {
    let known = match network {
        Small::Autoencoder(_) => &["usual", "kaiming", "metainit", "delta-orthogonal"][..],
        Small::Fixup(_) => &["usual", "metainit"], // usual is Fixup
        Small::Lstm(_) => &["usual", "kaiming", "delta-orthogonal", "orthogonal-hidden"],
    };
    let (kind, rule) = name.split_once('@').unwrap_or((name, ""));
    let trust = rule.strip_prefix("lars=").and_then(|t| t.parse().ok());
    let lars = trust.filter(|t: &f64| *t > 0.0 && t.is_finite());
    let learned_rates = rule == "learned-rates";
    if !known.contains(&kind) || !(rule.is_empty() || learned_rates || lars.is_some()) {
        let known = known.join(", ");
        refuse!(
            "against = {name}; expected {known}, alone or with @lars=TRUST, a positive number, or @learned-rates"
        );
    }
    Ok(Start {
        name: name.to_owned(),
        kind: kind.to_owned(),
        optimiser: lars.map_or(usual, |trust| Optimiser::Lars { trust }),
        learned_rates,
    })
}
