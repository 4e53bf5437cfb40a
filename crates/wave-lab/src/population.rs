//! `wave-lab population`: many small networks that are trained as one, each on its own images, and the
//! statistics of their weights.

mod inspect;
pub mod network;
pub mod start;
pub mod statistics;

use crate::images::{Classifier, OnImages};
use crate::run::{Run, count};
use anyhow::Result;
use clap::{Args, ValueEnum};
use network::{Mixer, PopulationShape};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wave_run::settings::Duration;
use wave_run::train::Defaults;

/// Values for settings that are not given.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(500),
    lr: 1e-2,
    weight_decay: 0.01,
};

/// Default number of images per network in a step.
const BATCH: usize = 16;

/// The kinds of small networks.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// Isotropic ConvNeXts.
    #[default]
    Convnext,
    /// Transformers.
    Vit,
}

/// The settings of a population.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Settings {
    /// Architecture of the networks [default: convnext]
    #[arg(long, value_name = "A")]
    arch: Option<Arch>,
    /// Number of networks [default: 500]
    #[arg(long, value_name = "N")]
    networks: Option<usize>,
    /// Number of blocks per network [default: 4]
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Width of each network; the MLPs have twice as many hidden channels [default: 16]
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Patch size in pixels [default: 7]
    #[arg(long, value_name = "N")]
    patch: Option<usize>,
    #[command(flatten)]
    #[serde(flatten)]
    training: OnImages,
}

pub fn run(settings: &Settings, run: &Run) -> Result<Value> {
    let training = &settings.training;
    let networks = settings.networks.unwrap_or(500);
    let data = training.open(networks, BATCH, run)?;
    let width = settings.width.unwrap_or(16);
    let shape = PopulationShape {
        networks,
        image_size: data.transform.image_size,
        channels: data.transform.channels,
        patch: settings.patch.unwrap_or(7),
        depth: settings.depth.unwrap_or(4),
        width,
        mixer: match settings.arch.unwrap_or_default() {
            Arch::Convnext => Mixer::Convolution { kernel: 3 },
            Arch::Vit => Mixer::Attention { heads: 2 },
        },
        hidden: 2 * width,
        classes: data.class_names.len(),
    };
    let start = start::start(&shape, training.seed())?;
    let logits = |weights: &_, images: &_| network::logits(&shape, weights, images);
    let trainable = Classifier::new(training, DEFAULTS, data, &start, networks, &logits)?;
    let outcome = trainable.train(run)?;
    run.write_network(&shape, &outcome.values)?;
    inspect::draw(&shape, &outcome.values, run)?;
    run.finish(json!({
        "parameters": count(&start),
        "top1": outcome.scores.map(|scores| scores.top1),
        "loss": outcome.scores.map(|scores| scores.loss),
        "images_seen": outcome.steps * (trainable.data.batch / networks) as u64,
        "before": inspect::statistics(&shape, &start)?,
        "after": inspect::statistics(&shape, &outcome.values)?,
    }))
}
