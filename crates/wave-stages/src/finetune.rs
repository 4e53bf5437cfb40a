//! `wave finetune`: trains all weights of a model, as an ordinary network.

use crate::ancestor::AncestorOutput;
use crate::cache::Cache;
use crate::distill_targets::DistillTargets;
use crate::elastic;
use crate::score::{drop_path, score, stored_scores};
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use wave_artefacts::model::Network;
use wave_artefacts::origin;
use wave_data::Batch;
use wave_init::transfer::nested;
use wave_models::{Weights, convmixer, transformer, vit};
use wave_ops::Mode;
use wave_run::data;
use wave_run::inputs::Inputs;
use wave_run::progress::{Passes, Verbosity};
pub use wave_run::run_dir::Options;
use wave_run::run_dir::{self, StageOutput};
use wave_run::settings::{Duration, Finetune};
use wave_run::train::{self, Defaults, LossInput, Parameters, TrainRun, Trainable};
use wave_train::{Scores, Variable};

mod beside;
mod plan;

pub use plan::{FinetunePlan, Prepared, describe};

/// Default settings.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(10.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// Fine-tunes the model in `dir` and writes the result to `out`. Returns the output of `--json`.
pub fn finetune(dir: &Path, settings: &Finetune, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let inputs = Inputs::new(context).artefact("model", dir)?;
    let prepared = Prepared::read(dir, settings, context)?;
    prepared.step.check()?;
    let cache = prepared.cache()?;
    let (mut model, layout) = (prepared.model.clone(), prepared.layout);
    let (plan, data, resolved) = (&prepared.plan, &prepared.data, &prepared.resolved);
    let mut origin = origin::of(dir, &model.provenance, context);
    let mut inputs = inputs.images(plan.data.spec.as_deref(), data);
    if let Some(ancestor) = &prepared.ancestor {
        origin = origin::both(&origin, &ancestor.origin);
        inputs = ancestor.with_inputs(plan.given.ancestor.as_deref(), inputs)?;
    }
    let recipe = run_dir::of_stage("finetune", &plan.table);
    run_dir::fill(out, &recipe, &inputs, options, |run| {
        let tuning = Tuning::new(&prepared, cache.as_ref(), options.verbosity)?;
        let label = match out.file_name() {
            Some(name) if name == "ancestor" => "ancestor".to_owned(),
            Some(name) => format!("finetune {}", name.to_string_lossy()),
            None => "finetune".to_owned(),
        };
        let train_run = TrainRun {
            label: &label,
            data,
            resolved,
            every_epoch: true,
        };
        let outcome = train::train(&tuning, &train_run, Some(run), options)?;
        model.weights = match &model.network {
            Network::Vit(_) | Network::Transformer(_) => {
                vit::unstack(&*beside::folded(&outcome.values)?)?
            }
            _ => outcome.values.clone(),
        };
        model.provenance = json!({
            "stage": "finetune",
            "version": env!("CARGO_PKG_VERSION"),
            "data": data.spec,
            "seed": resolved.seed,
            "steps": outcome.steps,
            "epochs": outcome.epochs,
            "images_seen": outcome.steps * data.plan.batch as u64,
            "origin": origin,
            "start": model.provenance,
        });
        let scores = stored_scores(&model, layout.float, data, outcome.scores)?;
        let top1 = scores.map(|s| s.top1);
        if let Some(top1) = top1 {
            model.provenance["top1"] = json!(top1);
            let kind = match Arc::ptr_eq(&data.tests.source, &data.train) {
                true => "held-out training",
                false => "test",
            };
            let n = data.tests.indices.len();
            model.provenance["top1_of"] = json!(format!("{n} {kind} images"));
        }
        let (spec, steps) = (&data.spec, outcome.steps);
        let accuracy = top1.map_or(String::new(), |t| format!(": top-1 {:.2} %", 100.0 * t));
        let summary = format!("Fine-tuned on {spec} for {steps} steps with wave{accuracy}.");
        let mut result = json!({ "parameters": model.parameters(), "top1": top1 });
        if let Some(cache) = &cache {
            result["cache"] = cache.summary(context);
        }
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        Ok(StageOutput {
            result,
            write: Box::new(move || model.write(out, layout, None, &summary)),
        })
    })
}

/// The training of all weights of a model.
pub struct Tuning<'a> {
    of: &'a Prepared,
    distill_targets: Option<DistillTargets<'a>>,
}

impl<'a> Tuning<'a> {
    /// The training of a prepared model, which also learns from an ancestor if there is one, with its `cache`.
    pub fn new(
        of: &'a Prepared,
        cache: Option<&'a Cache>,
        verbosity: Verbosity,
    ) -> Result<Tuning<'a>> {
        let (ancestor, output) = (of.ancestor.as_deref(), AncestorOutput::Scores);
        Ok(Tuning {
            of,
            distill_targets: DistillTargets::of(ancestor, &of.data, output, cache, verbosity)?,
        })
    }
}

impl Trainable for Tuning<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let of = self.of;
        let layers = layers(&of.model.network);
        let variable = |(name, t): (&String, &Tensor)| {
            let mut v = train::variable(name, t, &of.resolved, layers, device)?;
            if of.plan.is_frozen(name) {
                v.rate = None;
            }
            Ok(v)
        };
        of.start.iter().map(variable).collect()
    }

    fn loss(&self, live: &Parameters, on: &LossInput<Batch>) -> candle_core::Result<Tensor> {
        let (model, resolved) = (&self.of.model, &self.of.resolved);
        let targets = self.distill_targets.as_ref();
        let ancestor = targets.map(|t| t.targets(on.batch, on.input)).transpose()?;
        let mut weights = beside::folded(&live.weights)?;
        let mut network = model.network.clone();
        if let (Network::Vit(whole), Some(sizes)) = (&model.network, &self.of.sizes) {
            let shape = elastic::sampled(sizes, whole, on.part.step, resolved);
            weights = Cow::Owned(nested::slice(&weights, whole, &shape)?);
            network = Network::Vit(shape);
        }
        let scales = drop_path(layers(&network), on.part, resolved);
        let (logits, statistics) = logits(&network, resolved.mode, &weights, on.input, scales)?;
        if !statistics.is_empty() {
            let statistics = self.of.data.tests.context.mean(statistics)?;
            for v in &live.variables {
                if let Some(value) = statistics.get(&v.name) {
                    v.var.set(value)?;
                }
            }
        }
        self.of.plan.objective.loss(&logits, ancestor.as_ref(), || {
            let classes = model.network.classes();
            wave_train::batch_targets(on.batch, classes, resolved.label_smoothing)
        })
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let values = beside::folded(values)?;
        score(&self.of.model.network, &values, &self.of.data.tests)
    }

    fn passes(&self, step: u64, steps: u64) -> Passes {
        let targets = self.distill_targets.as_ref();
        targets.map_or_else(Passes::default, |t| t.passes(step, steps))
    }
}

/// Number of layers in the rows of a transformer's stacked weights; 0 for other networks.
fn layers(network: &Network) -> usize {
    match network {
        Network::Vit(_) | Network::Transformer(_) => network.size().0,
        _ => 0,
    }
}

/// Logits of a network in training, and the running statistics of the batch norms of a ConvMixer. `scales` are those of
/// drop path, if any.
fn logits(
    network: &Network,
    mode: Mode,
    weights: &Weights,
    images: &Tensor,
    scales: Option<Vec<f32>>,
) -> candle_core::Result<(Tensor, Weights)> {
    let logits = match network {
        Network::Vit(shape) => vit::logits_in(mode, shape, weights, images, scales),
        Network::Transformer(shape) => transformer::logits_in(mode, shape, weights, images, scales),
        Network::ConvMixer(shape) => return convmixer::logits_train(shape, weights, images),
        // These networks compute the same in training and evaluation.
        other => other.logits(weights, images),
    };
    Ok((logits?, Weights::new()))
}
