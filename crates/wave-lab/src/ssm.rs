//! `wave-lab ssm`: initialises a sequence network, trains it on a task or a text, tests it at multiples of
//! its training length, and plots the attention maps of its layers (thesis, section 3.3.1).

pub mod network;
pub mod start;
pub mod task;

use crate::run::{Run, batch, count, panel, variables};
use anyhow::Result;
use candle_core::{Device, Tensor};
use clap::{Args, ValueEnum as _};
use network::{Mixer, SequenceShape, attention_maps, logits_at};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use start::{Change, Donor};
use std::path::Path;
use task::{Task, TaskLoader, TokenBatch};
use wave_models::{Weights, check_weights};
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::settings::{Duration, Optimisation, Training};
use wave_run::train::{
    self, Defaults, Parameters, Resolved, TrainRun, Trainable, TrainingData, TrainingPlan,
};
use wave_train::{MicroBatch, Scores, Variable};

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

/// Test lengths, as multiples of the longest training length.
const FACTORS: [usize; 3] = [1, 2, 4];

/// The architecture with layers of two kinds.
const TRANSFORMER: &str = "transformer";

/// The settings of a sequence network and its training.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub struct Settings {
    /// Initialisation method: default, as by the layers' authors; mimetic; or pretrained-layer, which
    /// copies one layer of --from to every layer [default: mimetic]
    #[arg(long, value_name = "START")]
    method: Option<String>,
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
    /// Parts of the mimetic initialisation: state, step, correlation, convolution [default: all for
    /// mamba2, the first three for mamba]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    parts: Option<Vec<String>>,
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
    let spec = settings.data.as_deref().ok_or_else(|| {
        request("no task; give --data, such as copy:length=16,symbols=16 or text:FILE")
    })?;
    let optimisation = &settings.optimisation;
    let training = Training {
        optimisation: optimisation.clone(),
        ..Training::default()
    };
    let plan = TrainingPlan::new(&training, DEFAULTS)?;
    let batch = batch(optimisation, BATCH)?;
    let task: Task = spec.parse()?;
    let shape = shape(settings, &task)?;
    let data = TaskData {
        loader: TaskLoader::new(task, batch, plan.seed)?,
        tests: settings.test_limit.unwrap_or(TESTS),
        context: run.options.context.clone(),
    };
    let trainable = Network {
        weights: start(settings, &shape, plan.seed)?,
        resolved: plan.resolve(&data)?,
        shape,
        data,
    };
    let train_run = TrainRun {
        label: "training",
        data: &trainable.data,
        resolved: &trainable.resolved,
        every_epoch: false,
    };
    let outcome = train::train(&trainable, &train_run, None, &run.options)?;
    let lengths = trainable.lengths(&outcome.values)?;
    run.write_network(&trainable.shape, &outcome.values)?;
    trainable.draw_maps(&outcome.values, run)?;
    run.finish(json!({
        "task": trainable.data.loader.task.to_string(),
        "parameters": count(&outcome.values),
        "steps": outcome.steps,
        "top1": lengths[0]["top1"],
        "lengths": lengths,
    }))
}

fn shape(settings: &Settings, task: &Task) -> Result<SequenceShape> {
    let (depth, width) = (settings.depth.unwrap_or(2), settings.width.unwrap_or(64));
    for (name, size) in [("depth", depth), ("width", width)] {
        if !(1..=65536).contains(&size) {
            return Err(request(format!("{name} = {size}; expected 1 to 65536")));
        }
    }
    let arch = settings.arch.as_deref().unwrap_or("mamba2");
    let mixer = Mixer::from_str(arch, false).ok();
    let mixer = mixer.filter(|mixer| *mixer != Mixer::Mlp);
    let mut shape = match (arch, mixer) {
        (TRANSFORMER, _) => SequenceShape::transformer(task.vocabulary(), depth, width),
        (_, Some(mixer)) => SequenceShape::new(task.vocabulary(), depth, width, mixer),
        _ => {
            return Err(request(format!(
                "arch = {arch}; expected mamba2, mamba, attention, linear-attention or {TRANSFORMER}"
            )));
        }
    };
    shape.state = settings.state.unwrap_or(shape.state);
    let heads = match shape.mixers.first() {
        Some(Mixer::Attention) => &mut shape.attention_heads,
        _ => &mut shape.heads,
    };
    *heads = settings.heads.unwrap_or(*heads);
    let last = shape.depth() - 1;
    for layer in settings.attention_layers.iter().flatten() {
        *shape.mixers.get_mut(*layer).ok_or_else(|| {
            request(format!(
                "attention_layers: there is no layer {layer}; layers are numbered from 0 to {last}"
            ))
        })? = Mixer::Attention;
    }
    shape.validate()?;
    Ok(shape)
}

fn start(settings: &Settings, shape: &SequenceShape, seed: u64) -> Result<Weights> {
    let parts = settings.parts.iter().flatten().map(|part| part.parse());
    let parts = parts.collect::<Result<Vec<Change>, _>>()?;
    let parts = settings.parts.is_some().then_some(parts.as_slice());
    let trained = match &settings.from {
        None => None,
        Some(from) => {
            let from = Path::new(from);
            let shape: SequenceShape = wave_hub::read_json(&from.join("config.json"))?;
            let weights = wave_hub::read_tensors(&from.join("model.safetensors"))?.0;
            shape.validate()?;
            check_weights(&weights, &shape.parameters())?;
            Some((shape, weights))
        }
    };
    let donor = trained.as_ref().map(|(shape, weights)| Donor {
        shape,
        weights,
        layer: settings.donor_layer.unwrap_or(0),
    });
    let method = settings.method.as_deref().unwrap_or("mimetic");
    Ok(start::start(method, shape, parts, donor, seed)?)
}

struct TaskData {
    loader: TaskLoader,
    /// Number of test sequences for each length.
    tests: usize,
    context: Context,
}

impl TrainingData for TaskData {
    type Batches = TaskLoader;

    fn batches(&self) -> &TaskLoader {
        &self.loader
    }

    fn has_tests(&self) -> bool {
        true
    }

    fn in_pairs(&self) -> bool {
        false
    }

    fn context(&self) -> &Context {
        &self.context
    }
}

/// A sequence network with everything that its training needs.
struct Network {
    shape: SequenceShape,
    weights: Weights,
    data: TaskData,
    resolved: Resolved,
}

impl Network {
    /// Scores at a length, and the fraction of sequences without a mistake.
    fn scores(&self, weights: &Weights, length: usize) -> Result<(Scores, f64)> {
        let task = &self.data.loader.task;
        let tests = task.test_batches(length, self.data.tests, TEST_BATCH);
        task::evaluate(&tests, |tokens, at| {
            logits_at(&self.shape, weights, tokens, at)
        })
    }

    /// Scores at multiples of the longest training length, where the task has sequences that long.
    fn lengths(&self, weights: &Weights) -> Result<Vec<Value>> {
        let task = &self.data.loader.task;
        FACTORS
            .into_iter()
            .map(|factor| (factor, factor * task.lengths.1))
            .filter(|(_, length)| task.has(*length))
            .map(|(factor, length)| {
                let (tokens, exact) = self.scores(weights, length)?;
                let mut found = json!({
                    "factor": factor,
                    "length": length,
                    "top1": tokens.top1,
                    "exact": exact,
                    "loss": tokens.loss,
                });
                if task.text().is_some() {
                    let bits = tokens.loss / std::f64::consts::LN_2; // log2 of the perplexity
                    found["bits_per_character"] = json!(bits);
                }
                Ok(found)
            })
            .collect()
    }

    /// Plots the attention map of each layer that has one, on one test sequence.
    fn draw_maps(&self, weights: &Weights, run: &Run) -> Result<()> {
        let task = &self.data.loader.task;
        let tokens = &task.test_batches(task.lengths.1, 1, 1)[0].tokens;
        let tokens = Tensor::from_slice(tokens, tokens.len(), &Device::Cpu)?;
        let maps = attention_maps(&self.shape, weights, &tokens)?;
        let of = |(layer, map): &(usize, Tensor)| {
            let kind = self.shape.mixers[*layer].to_possible_value();
            let kind = kind.as_ref().map_or("", |kind| kind.get_name());
            panel(format!("layer {layer}: {kind}"), map)
        };
        let maps = maps.iter().map(of).collect::<Result<Vec<_>>>()?;
        run.draw("attention-maps", &maps, 4)
    }
}

impl Trainable for Network {
    type Batch = TokenBatch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        variables(&self.weights, &self.resolved, device)
    }

    fn loss(
        &self,
        live: &Parameters,
        batch: &TokenBatch,
        tokens: &Tensor,
        _: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let m = batch.positions.len();
        let positions = Tensor::from_slice(&batch.positions, m, tokens.device())?;
        let logits = logits_at(&self.shape, &live.weights, tokens, &positions)?.flatten_to(1)?;
        let smoothing = self.resolved.label_smoothing;
        let vocabulary = self.shape.vocabulary;
        let targets = wave_train::smoothed_targets(&batch.targets, vocabulary, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        Ok(self.scores(values, self.data.loader.task.lengths.1)?.0)
    }
}
