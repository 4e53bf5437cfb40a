//! `wave-lab attention`: initialises and trains a transformer with positions in its attention (thesis,
//! section 3.2.4), of 6 blocks of width 64 with 4 heads, for patches of 7 x 7 pixels.

pub mod network;
pub mod start;

use crate::images::{self, OnImages};
use crate::run::{Run, count};
use anyhow::Result;
use candle_core::Tensor;
use clap::Args;
use network::{PositionalAttention, PositionalShape};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use start::Method;
use wave_models::Weights;
use wave_models::vit::VitShape;
use wave_run::settings::{DEFAULT_BATCH, Duration};
use wave_run::train::Defaults;

/// The defaults of `wave finetune`.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(10.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// The settings of a transformer with positional attention.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Settings {
    /// Kind of attention [default: gpsa]
    #[arg(long, value_name = "A")]
    arch: Option<PositionalAttention>,
    /// Initialisation method [default: mimetic]
    #[arg(long, value_name = "START")]
    method: Option<Method>,
    #[command(flatten)]
    #[serde(flatten)]
    training: OnImages,
}

pub fn run(settings: &Settings, run: &Run) -> Result<Value> {
    let training = &settings.training;
    let data = training.open(1, DEFAULT_BATCH, run)?;
    let shape = PositionalShape {
        vit: VitShape {
            image_size: data.transform.image_size,
            channels: data.transform.channels,
            patch: 7,
            depth: 6,
            width: 64,
            heads: 4,
            classes: data.class_names.len(),
            class_token: false,
            ..VitShape::default()
        },
        attention: settings.arch.unwrap_or_default(),
    };
    let start = start::start(settings.method.unwrap_or_default(), &shape, training.seed())?;
    let logits = |weights: &Weights, images: &Tensor| network::logits(&shape, weights, images);
    let outcome = images::train(training, DEFAULTS, &data, &start, 1, logits, run)?;
    run.write_network(&shape, &outcome.values)?;
    run.finish(json!({
        "parameters": count(&start),
        "top1": outcome.scores.map(|scores| scores.top1),
        "curve": outcome.curve,
        "steps": outcome.steps,
    }))
}
