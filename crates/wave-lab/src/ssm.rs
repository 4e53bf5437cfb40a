//! `wave-lab ssm`: initialises a sequence network, trains it on a task or a text, tests it at multiples of
//! its training length, and plots the attention maps of its layers (thesis, section 3.3.1).

pub mod network;
pub mod start;
pub mod task;

use crate::run::{Keys, Network, Run, check_keys, count, panel, resolved};
use anyhow::Result;
use candle_core::{Device, Tensor};
use clap::{Args, ValueEnum as _};
use network::{Mixer, SequenceShape, attention_maps, logits_at};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use start::{Change, Method};
use std::path::Path;
use task::{Task, TaskKind, TaskLoader, TokenBatch};
use wave_models::check::sizes;
use wave_models::{Weights, refuse};
use wave_run::settings::{Duration, Optimisation};
use wave_run::train::Defaults;

/// Values for settings that are not given.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(1000),
    lr: 5e-3,
    weight_decay: 0.1,
};

/// Default number of sequences in a step.
const BATCH: usize = 32;

/// Default number of test sequences for each length.
const TESTS: usize = 512;

/// Batch size of test sequences.
const TEST_BATCH: usize = 32;

/// Test lengths, as multiples of the longest training length, where the task has sequences that long.
const FACTORS: [usize; 3] = [1, 2, 4];

/// Keys that apply to some architectures.
const OF_ARCH: &Keys = &[
    ("heads", &["mamba2", "attention", "transformer"]),
    ("state", &["mamba2", "mamba", "linear-attention"]),
    ("parts", &["mamba2", "mamba"]),
    (
        "attention_layers",
        &["mamba2", "mamba", "linear-attention", "transformer"],
    ),
];

/// Keys that apply to some methods.
const OF_METHOD: &Keys = &[
    ("parts", &["mimetic"]),
    ("mimetic_layers", &["mimetic"]),
    ("donor_layer", &["pretrained-layer"]),
];

/// The settings of a sequence network and its training.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Settings {
    /// Initialisation method [default: mimetic]
    #[arg(long, value_name = "START")]
    method: Option<Method>,
    /// Kind of layers: mamba2, mamba, attention, linear-attention or transformer [default: mamba2]
    #[arg(long, value_name = "A")]
    arch: Option<String>,
    /// Number of layers; for a transformer, pairs of attention and MLP [default: 2]
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Channels per token [default: 64]
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Number of heads [default: width / 32 for mamba2, width / 64 for attention]
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    /// Task: copy, stack, recall or sort, with sizes such as copy:length=8..16,symbols=16; or text:FILE
    #[arg(long, value_name = "TASK")]
    data: Option<String>,
    /// State size of each channel, and size of the queries and keys of linear attention [default: 16 for
    /// mamba, else 128]
    #[arg(long, value_name = "N")]
    state: Option<usize>,
    /// Layers to replace with softmax attention, counted from 0: a hybrid
    #[arg(long, value_name = "N", value_delimiter = ',')]
    attention_layers: Option<Vec<usize>>,
    /// Parts of the mimetic initialisation [default: all for mamba2, the first three for mamba]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    parts: Option<Vec<Change>>,
    /// Layers with a mimetic start, counted from 0; the others begin by default [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    mimetic_layers: Option<Vec<usize>>,
    /// Output directory of an earlier run, for pretrained-layer
    #[arg(long, value_name = "DIR")]
    from: Option<String>,
    /// Layer of --from to copy to every layer, counted from 0
    #[arg(long, value_name = "N")]
    donor_layer: Option<usize>,
    /// Number of test sequences per length [default: 512]
    #[arg(long, value_name = "N")]
    test_limit: Option<usize>,
    #[command(flatten)]
    #[serde(flatten)]
    optimisation: Optimisation,
}

pub fn run(settings: &Settings, run: &Run) -> Result<Value> {
    let Some(spec) = &settings.data else {
        refuse!("no task; give --data, such as copy:length=16,symbols=16 or text:FILE");
    };
    let optimisation = &settings.optimisation;
    let seed = optimisation.seed.unwrap_or(0);
    let loader = TaskLoader::new(spec.parse()?, optimisation.batch.unwrap_or(BATCH), seed)?;
    let task = &loader.task;
    let shape = shape(settings, task)?;
    let resolved = resolved(optimisation, DEFAULTS, &loader)?;
    let smoothing = resolved.label_smoothing;
    let loss = |weights: &Weights, batch: &TokenBatch, tokens: &Tensor| {
        let m = batch.positions.len();
        let positions = Tensor::from_slice(&batch.positions, m, tokens.device())?;
        let logits = logits_at(&shape, weights, tokens, &positions)?.flatten_to(1)?;
        let targets = wave_train::smoothed_targets(&batch.targets, shape.vocabulary, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    };
    // Scores at a length, and the fraction of sequences without a mistake.
    let scores = |weights: &Weights, length: usize| {
        let tests = task.test_batches(length, settings.test_limit.unwrap_or(TESTS), TEST_BATCH);
        task::evaluate(&tests, |tokens, at| logits_at(&shape, weights, tokens, at))
    };
    let longest = task.lengths.1;
    let network = Network {
        start: &start(settings, &shape, seed)?,
        resolved,
        loss: &loss,
        score: &|weights: &Weights| Ok(scores(weights, longest)?.0),
    };
    let outcome = network.train(&loader, false, run)?;
    let mut lengths = Vec::new();
    for factor in FACTORS {
        let length = factor * longest;
        if !task.has(length) {
            continue;
        }
        let (tokens, exact) = scores(&outcome.values, length)?;
        let mut found = json!({
            "factor": factor,
            "length": length,
            "top1": tokens.top1,
            "exact": exact,
            "loss": tokens.loss,
        });
        if let TaskKind::Text(_) = task.kind {
            let bits = tokens.loss / std::f64::consts::LN_2; // log2 of the perplexity
            found["bits_per_character"] = json!(bits);
        }
        lengths.push(found);
    }
    run.write_network(&shape, &outcome.values)?;
    draw_maps(&shape, task, &outcome.values, run)?;
    run.finish(json!({
        "task": spec,
        "parameters": count(&outcome.values),
        "steps": outcome.steps,
        "top1": lengths[0]["top1"],
        "lengths": lengths,
    }))
}

/// Plots the attention map of each layer that has one, on one test sequence.
fn draw_maps(shape: &SequenceShape, task: &Task, weights: &Weights, run: &Run) -> Result<()> {
    let tokens = &task.test_batches(task.lengths.1, 1, 1)[0].tokens;
    let tokens = Tensor::from_slice(tokens, tokens.len(), &Device::Cpu)?;
    let maps = attention_maps(shape, weights, &tokens)?;
    let of = |(layer, map): &(usize, Tensor)| {
        let kind = shape.mixers[*layer].to_possible_value();
        let kind = kind.as_ref().map_or("", |kind| kind.get_name());
        panel(format!("layer {layer}: {kind}"), map)
    };
    let maps = maps.iter().map(of).collect::<Result<Vec<_>>>()?;
    run.draw("attention-maps", &maps, 4)
}

fn shape(settings: &Settings, task: &Task) -> Result<SequenceShape> {
    let (depth, width) = (settings.depth.unwrap_or(2), settings.width.unwrap_or(64));
    let arch = settings.arch.as_deref().unwrap_or("mamba2");
    sizes(&[("depth", depth)])?; // every layer is listed in the shape
    let mut shape = match Mixer::from_str(arch, false) {
        _ if arch == "transformer" => SequenceShape::transformer(task.vocabulary(), depth, width),
        Ok(mixer) => SequenceShape::new(task.vocabulary(), depth, width, mixer),
        Err(_) => refuse!(
            "arch = {arch}; expected mamba2, mamba, attention, linear-attention or transformer"
        ),
    };
    check_keys(settings, OF_ARCH, "arch", arch)?;
    check_keys(settings, OF_METHOD, "method", "mimetic")?;
    shape.state = settings.state.unwrap_or(shape.state);
    let heads = match shape.mixers.first() {
        Some(Mixer::Attention) => &mut shape.attention_heads,
        _ => &mut shape.heads,
    };
    *heads = settings.heads.unwrap_or(*heads);
    let listed = [
        ("attention_layers", &settings.attention_layers),
        ("mimetic_layers", &settings.mimetic_layers),
    ];
    for (key, layers) in listed {
        let mut layers = layers.iter().flatten();
        if let Some(layer) = layers.find(|layer| **layer >= shape.mixers.len()) {
            refuse!("{key}: there is no layer {layer}; layers are numbered from 0");
        }
    }
    for layer in settings.attention_layers.iter().flatten() {
        shape.mixers[*layer] = Mixer::Attention;
    }
    shape.validate()?;
    Ok(shape)
}

fn start(settings: &Settings, shape: &SequenceShape, seed: u64) -> Result<Weights> {
    let trained = match &settings.from {
        None => None,
        Some(from) => Some(wave_hub::read_tensors(&Path::new(from).join("model.safetensors"))?.0),
    };
    let layer = settings.donor_layer.unwrap_or(0);
    let donor = trained.as_ref().map(|weights| (weights, layer));
    let method = settings.method.unwrap_or_default();
    let parts = settings.parts.as_deref();
    let mut weights = start::start(method, shape, parts, donor, seed)?;
    if let Some(layers) = &settings.mimetic_layers {
        let of_layer = |name: &str, i: &usize| name.starts_with(&format!("backbone.layers.{i}."));
        let mut others = start::start(Method::Default, shape, None, None, seed)?;
        others.retain(|name, _| !layers.iter().any(|i| of_layer(name, i)));
        weights.extend(others);
    }
    Ok(weights)
}

#[cfg(test)]
#[path = "ssm_tests.rs"]
mod tests;
