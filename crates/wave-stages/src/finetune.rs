//! `wave finetune`: trains all weights of a model, as an ordinary network.

use crate::ancestor::{Ancestor, AncestorOutput};
use crate::cache::Cache;
use crate::distill_targets::DistillTargets;
use crate::score::{drop_path, score, stored_scores};
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::model::{Model, Network};
use wave_artefacts::origin;
use wave_data::Batch;
use wave_init::indices::Layers;
use wave_init::transfer::nested;
use wave_learngene::Sizes;
use wave_models::{Weights, convmixer, transformer, vit};
use wave_run::data::{self, Data};
use wave_run::inputs::Inputs;
use wave_run::progress::Passes;
pub use wave_run::run_dir::Options;
use wave_run::run_dir::{self, RunDir, StageOutput};
use wave_run::settings::{Duration, Finetune};
use wave_run::train::{self, Defaults, Outcome, Parameters, Resolved, TrainRun, Trainable};
use wave_train::{MicroBatch, Rate, Scores, Variable};

mod beside;
mod plan;

use beside::Beside;
use plan::only_runs;
pub use plan::{FinetunePlan, Prepared, describe, open_data};

/// Default settings.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(10.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// Fine-tunes the model in `model` and writes the result to `out`. Returns the output of `--json`.
pub fn finetune(model: &Path, settings: &Finetune, out: &Path, options: &Options) -> Result<Value> {
    let source = model;
    let context = &options.context;
    let plan = FinetunePlan::new(settings)?;
    let inputs = Inputs::new(context).artefact("model", source)?;
    let prepared = Prepared::read(source, plan, options.repeated(out), context)?;
    prepared.step.check()?;
    let (mut model, layout) = (prepared.model, prepared.layout);
    let (plan, data, resolved) = (&prepared.plan, &prepared.data, &prepared.resolved);
    let (ancestor, cache) = (prepared.ancestor.as_deref(), prepared.cache.as_ref());
    let mut origin = origin::of(source, &model.provenance, context);
    let mut inputs = inputs.images(plan.data.spec.as_deref(), data);
    if let Some(ancestor) = ancestor {
        origin = origin::both(&origin, &ancestor.origin);
        inputs = ancestor.with_inputs(plan.given.ancestor.as_deref(), inputs)?;
    }
    let recipe = run_dir::of_stage("finetune", &plan.table);
    run_dir::fill(out, &recipe, &inputs, options, |run| {
        let tuning = Tuning {
            plan,
            resolved,
            data,
            ancestor,
            cache,
            every_epoch: true,
        };
        let label = match out.file_name() {
            Some(name) if name == "ancestor" => "ancestor".to_owned(),
            Some(name) => format!("finetune {}", name.to_string_lossy()),
            None => "finetune".to_owned(),
        };
        let outcome = tuning.tune(&mut model, &label, Some(run), options)?;
        model.provenance = json!({
            "stage": "finetune",
            "version": env!("CARGO_PKG_VERSION"),
            "data": data.spec,
            "seed": resolved.seed,
            "steps": outcome.steps,
            "epochs": outcome.epochs,
            "images_seen": outcome.steps * data.batch as u64,
            "origin": origin,
            "start": model.provenance,
        });
        let scores = stored_scores(&model, layout.float, data, outcome.scores)?;
        let top1 = scores.map(|s| s.top1);
        if let Some(top1) = top1 {
            model.provenance["top1"] = json!(top1);
            let n = data.tests.indices.len();
            model.provenance["top1_of"] = json!(match data.tests_on_training_images() {
                true => format!("{n} held-out training images"),
                false => format!("{n} test images"),
            });
        }
        let summary = format!(
            "Fine-tuned on {} for {} steps with wave{}.",
            data.spec,
            outcome.steps,
            top1.map_or(String::new(), |t| format!(": top-1 {:.2} %", 100.0 * t)),
        );
        let mut result = json!({ "parameters": model.parameters(), "top1": top1 });
        if let Some(cache) = cache {
            result["cache"] = cache.summary();
        }
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        Ok(StageOutput {
            result,
            write: Box::new(move || model.write(out, layout, None, &summary)),
        })
    })
}

/// Settings and data for fine-tuning.
pub struct Tuning<'a> {
    /// The settings.
    pub plan: &'a FinetunePlan,
    /// The training settings, resolved for this data.
    pub resolved: &'a Resolved,
    /// Images.
    pub data: &'a Data,
    /// A frozen model to distil from as well.
    pub ancestor: Option<&'a Ancestor>,
    /// Its outputs on disk, if they are cached.
    pub cache: Option<&'a Cache>,
    /// Evaluate after every epoch.
    pub every_epoch: bool,
}

impl Tuning<'_> {
    /// Trains all weights of `model` in place, with a log in `run` if given.
    ///
    /// # Errors
    /// If the plan does not fit the model, or as for [`train::train`].
    pub fn tune(
        &self,
        model: &mut Model,
        label: &str,
        run: Option<&mut RunDir>,
        options: &Options,
    ) -> Result<Outcome> {
        if !model.network.trainable() {
            return Err(only_runs(&model.network));
        }
        let mut start = model.network.prepare(&model.weights)?;
        if let Some(shape) = self.plan.beside_of(&model.network)? {
            self.plan.beside.insert(&mut start, shape)?;
        }
        let (output, verbosity) = (AncestorOutput::Scores, options.verbosity);
        let (data, cache) = (self.data, self.cache);
        let tuned = Tuned {
            of: self,
            network: &model.network,
            start,
            distill_targets: DistillTargets::of(self.ancestor, data, output, cache, verbosity)?,
            sizes: self.plan.slices(&model.network)?,
        };
        let train_run = TrainRun {
            label,
            data,
            resolved: self.resolved,
            every_epoch: self.every_epoch,
        };
        let outcome = train::train(&tuned, &train_run, run, options)?;
        model.weights = match &model.network {
            Network::Vit(_) | Network::Transformer(_) => {
                vit::unstack(&*self.plan.beside.folded(&outcome.values)?)?
            }
            _ => outcome.values.clone(),
        };
        Ok(outcome)
    }
}

struct Tuned<'a> {
    of: &'a Tuning<'a>,
    network: &'a Network,
    start: Weights,
    distill_targets: Option<DistillTargets<'a>>,
    /// Sizes of the slices, if steps train slices.
    sizes: Option<Sizes>,
}

impl Trainable for Tuned<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let depth = match self.network {
            Network::Vit(shape) => shape.depth,
            Network::Transformer(shape) => shape.depth,
            _ => 0,
        };
        let plan = self.of.plan;
        plan.check_frozen(&self.start)?;
        let variable = |(name, t): (&String, &Tensor)| {
            let mut v = train::variable(name, t, self.of.resolved, depth, device)?;
            if plan.is_frozen(name) {
                v.rate = Rate::Frozen;
            }
            Ok(v)
        };
        self.start.iter().map(variable).collect()
    }

    fn loss(
        &self,
        live: &Parameters,
        batch: &Batch,
        images: &Tensor,
        part: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let Tuning { plan, resolved, .. } = self.of;
        let targets = self.distill_targets.as_ref();
        let ancestor = targets.map(|t| t.targets(batch, images)).transpose()?;
        let weights = &*plan.beside.folded(&live.weights)?;
        let logits = match (self.network, &self.sizes) {
            (Network::Vit(whole), Some(sizes)) => {
                let rng = &mut train::size_generator(resolved.seed, part.step);
                let shape = sizes.shape(whole, part.step, resolved.steps, rng);
                let slice = nested::slice(weights, whole, &shape, Layers::Uniform);
                let slice = slice.map_err(candle_core::Error::wrap)?;
                self.outputs(&Network::Vit(shape), live, &slice, images, part)?
            }
            (network, _) => self.outputs(network, live, weights, images, part)?,
        };
        plan.objective.loss(&logits, ancestor.as_ref(), || {
            let classes = self.network.classes();
            wave_train::batch_targets(batch, classes, resolved.label_smoothing)
        })
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let values = self.of.plan.beside.folded(values)?;
        score(self.network, &values, &self.of.data.tests)
    }

    fn passes(&self, step: u64, steps: u64) -> Passes {
        let targets = self.distill_targets.as_ref();
        targets.map_or_else(Passes::default, |t| t.passes(step, steps))
    }
}

impl Tuned<'_> {
    /// Logits of the network, or of a slice of it; `weights` are the trained values or derived from them.
    fn outputs(
        &self,
        network: &Network,
        live: &Parameters,
        weights: &Weights,
        images: &Tensor,
        part: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let resolved = self.of.resolved;
        match network {
            Network::Vit(shape) => {
                let scales = drop_path(shape.depth, part, resolved);
                vit::logits_in(resolved.mode, shape, weights, images, scales)
            }
            Network::Transformer(shape) => {
                let scales = drop_path(shape.depth, part, resolved);
                transformer::logits_in(resolved.mode, shape, weights, images, scales)
            }
            Network::ConvMixer(shape) => {
                let (logits, statistics) = convmixer::logits_train(shape, weights, images)?;
                let statistics = self.of.data.tests.context.mean(statistics)?;
                for v in &live.variables {
                    if let Some(value) = statistics.get(&v.name) {
                        v.var.set(value)?;
                    }
                }
                Ok(logits)
            }
            // These networks compute the same in training and evaluation.
            other => other.logits(weights, images),
        }
    }
}
