//! `wave-lab population`: many small networks that are trained as one, each on its own images, and the
//! statistics of their weights.

pub mod network;
pub mod start;
pub mod statistics;

use crate::images::{self, OnImages};
use crate::run::{Panel, Run, count, panel};
use anyhow::Result;
use candle_core::Tensor;
use clap::Args;
use network::{Arch, KERNEL, PopulationShape};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use statistics::{LayerStatistics, off_diagonal};
use wave_models::check::sizes;
use wave_models::{Weights, refuse};
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

/// Hidden channels in the picture of a covariance; the others look the same.
const SHOWN: usize = 4;

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
    #[command(flatten)]
    #[serde(flatten)]
    training: OnImages,
}

pub fn run(settings: &Settings, run: &Run) -> Result<Value> {
    let training = &settings.training;
    let networks = settings.networks.unwrap_or(500);
    sizes(&[("networks", networks)])?; // before a batch that is as many times as large
    if networks < 2 {
        refuse!("networks = 1; statistics over networks need at least 2");
    }
    let data = training.open(networks, BATCH, run)?;
    let shape = PopulationShape {
        networks,
        arch: settings.arch.unwrap_or_default(),
        image_size: data.transform.image_size,
        channels: data.transform.channels,
        patch: 7,
        depth: settings.depth.unwrap_or(4),
        width: settings.width.unwrap_or(16),
        classes: data.class_names.len(),
    };
    let start = start::start(&shape, training.seed())?;
    let logits = |weights: &Weights, images: &Tensor| network::logits(&shape, weights, images);
    let outcome = images::train(training, DEFAULTS, &data, &start, networks, logits, run)?;
    run.write_network(&shape, &outcome.values)?;
    run.finish(json!({
        "parameters": count(&start),
        "top1": outcome.scores.map(|scores| scores.top1),
        "loss": outcome.scores.map(|scores| scores.loss),
        "images_seen": outcome.steps * (data.plan.batch / networks) as u64,
        "before": inspect(&shape, &start, None)?,
        "after": inspect(&shape, &outcome.values, Some(run))?,
    }))
}

/// Statistics over the networks, in numbers and, if there is a run to draw for, in pictures.
fn inspect(shape: &PopulationShape, weights: &Weights, run: Option<&Run>) -> Result<Value> {
    let layers = statistics::layers(shape, weights)?;
    let across = statistics::across_layers(shape, weights)?;
    let whole = statistics::network(shape, weights)?;
    if let Some(run) = run {
        let panels = |of_layers: Vec<Tensor>| -> Result<Vec<Panel>> {
            let panel = |(l, t): (usize, &Tensor)| panel(format!("layer {l}"), t);
            of_layers.iter().enumerate().map(panel).collect()
        };
        let covariances = layers.iter().map(covariance).collect::<Result<_>>()?;
        let across = panel("W2".into(), &off_diagonal(&across)?)?;
        let mut pictures = vec![
            ("covariance", panels(covariances)?),
            ("network", vec![panel("all weights".into(), &whole.shown)?]),
            ("fc2-across-layers", vec![across]),
        ];
        let products = layers.iter().map(|layer| layer.filter_product.clone());
        if let Some(products) = products.collect() {
            pictures.push(("filter-product", panels(products)?));
        }
        for (name, panels) in pictures {
            run.draw(name, &panels, panels.len())?;
        }
    }
    let numbers = layers.iter().map(|layer| {
        let mut out = json!({
            "stripes_fc1": layer.stripes_fc1,
            "stripes_fc2": layer.stripes_fc2,
            "fc1_fc2": layer.fc1_fc2,
        });
        if let Some(product) = &layer.filter_product {
            let centre = product.get(KERNEL / 2)?.get(KERNEL / 2)?;
            out["centre_product"] = json!(centre.to_scalar::<f64>()?);
        }
        Ok(out)
    });
    Ok(json!({
        "layers": numbers.collect::<Result<Vec<_>>>()?,
        "fc2_across_layers": across.to_vec2::<f64>()?,
        "tensors": whole.tensors,
        "between_tensors": whole.between.to_vec2::<f64>()?,
        "bias_with_row": whole.bias_with_row,
    }))
}

/// Correlations of the weights of a few hidden channels, first all of W1, then all of W2, as in figure
/// 3.35 of the thesis. The diagonal is left out.
fn covariance(layer: &LayerStatistics) -> Result<Tensor> {
    let both = layer.within.dim(0)?; // 2 h
    let within = off_diagonal(&layer.within)?;
    let block = |(i, j): (usize, usize)| if i == j { &within } else { &layer.between };
    let pairs = (0..SHOWN * SHOWN).map(|at| (at / SHOWN, at % SHOWN));
    let blocks: Vec<&Tensor> = pairs.map(block).collect();
    let blocks = Tensor::stack(&blocks, 0)?;
    let blocks = blocks.reshape(&[SHOWN, SHOWN, 2, both / 2, 2, both / 2])?;
    let lines = blocks.permute([2, 0, 3, 4, 1, 5])?; // (2, shown, h, 2, shown, h)
    Ok(lines.reshape((SHOWN * both, SHOWN * both))?)
}
