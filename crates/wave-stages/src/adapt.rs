//! `wave adapt`: fits weight templates to other data once, for models of all sizes.
//!
//! Training changes a *delta*: differences from the scaler bank, the templates (of low rank), the norms and
//! any other requested tensors, and a classifier. Each step samples a depth and a width, as in an elastic
//! condensation, so that one delta serves every size that `wave expand --delta` makes. A delta takes only
//! kilobytes; with `whole` the result is a template directory instead.

use crate::elastic;
use crate::score::label_loss;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::delta::{self, DeltaDir};
use wave_artefacts::origin;
use wave_artefacts::templates::{self, Description};
use wave_data::Batch;
use wave_hub::{Accuracy, DeltaConfig, FORMAT_VERSION, PAPER, TemplateConfig};
use wave_learngene::Learngene;
use wave_models::{Weights, resample};
use wave_run::data;
use wave_run::inputs::Inputs;
use wave_run::run_dir::{self, Options, StageOutput};
use wave_run::settings::{Adapt, Duration};
use wave_run::train::{self, Defaults, Parameters, TrainRun, Trainable};
use wave_train::{MicroBatch, Rate, Scores, Variable};

mod plan;

pub use plan::describe;
use plan::{AdaptPlan, Prepared};

/// Default settings, for an adaptation that writes templates (`whole`) or a delta.
pub const fn defaults(whole: bool) -> Defaults {
    Defaults {
        duration: Duration::Epochs(60.0),
        lr: if whole { 8e-3 } else { 2e-2 },
        weight_decay: 0.0,
    }
}

/// Adapts the templates in a directory and writes the delta, or the adapted templates. Returns the output
/// of `--json`.
pub fn adapt(dir: &Path, settings: &Adapt, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let plan = AdaptPlan::new(settings)?;
    let prepared = Prepared::read(dir, plan, options.repeated(out), context)?;
    prepared.step.check()?;
    let inputs = Inputs::new(context).artefact("templates", dir)?;
    let inputs = inputs.images(prepared.plan.data.spec.as_deref(), &prepared.data);
    let recipe = run_dir::of_stage("adapt", &prepared.plan.table);
    run_dir::fill(out, &recipe, &inputs, options, |run| {
        let (templates, plan) = (&prepared.templates, &prepared.plan);
        let (data, resolved) = (&prepared.data, &prepared.resolved);
        let classes = data.class_names.len();
        let gene = &templates.learngene;
        let anchors = plan.anchors(gene.auxiliary.depth);
        let adaptation = Adaptation {
            prepared: &prepared,
            gene: gene.to_device(context.device())?,
            start: plan.no_delta(gene, classes)?,
        };
        let train_run = TrainRun {
            label: "adapt",
            data,
            resolved,
            every_epoch: false,
        };
        let mut outcome = train::train(&adaptation, &train_run, Some(run), options)?;
        // As it will be stored.
        let mut tensors = std::mem::take(&mut outcome.values);
        if !plan.given.whole {
            tensors = plan.float.rounded(&tensors)?;
        }
        let mut gene = templates.learngene.with_delta(&tensors)?;
        if plan.given.whole {
            gene = templates::rounded(&gene, plan.float)?;
        }
        let accuracies =
            elastic::accuracies(&gene, &prepared.sizes, &[], data, "adapted, without data")?;
        let shapes = elastic::shape_accuracies(&gene, &prepared.sizes, data)?;
        let mut provenance = json!({
            "stage": "adapt",
            "version": env!("CARGO_PKG_VERSION"),
            "templates_sha256": templates.digest,
            "origin": origin::of(dir, &templates.config.provenance.record, context),
            "data": data.spec,
            "training_images": data.train_indices.len(),
            "seed": resolved.seed,
            "steps": outcome.steps,
            "epochs": outcome.epochs,
            "depths": [prepared.sizes.depths.0, prepared.sizes.depths.1],
            "widths": prepared.sizes.widths,
            "start": templates.config.provenance,
        });
        elastic::tell_variants(&prepared.sizes.variants, &mut provenance);
        let mut result = json!({
            "parameters": tensors.values().map(Tensor::elem_count).sum::<usize>(),
            "top1": outcome.scores.map(|s| s.top1),
            "accuracies": accuracies,
        });
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        let float = plan.float;
        let label_names = data.class_names.clone();
        let write: Box<dyn FnOnce() -> Result<()>> = if plan.given.whole {
            let about = Description {
                transform: &templates.transform,
                label_names,
                provenance,
                accuracies,
                shapes,
            };
            Box::new(move || {
                templates::write(out, &gene, float, about, |config| {
                    let (accuracies, provenance) = (&config.accuracies, &config.provenance.record);
                    card(dir, Some(config), &gene, accuracies, provenance)
                })
            })
        } else {
            let card = card(dir, None, &gene, &accuracies, &provenance);
            let delta = DeltaDir {
                config: DeltaConfig {
                    format_version: FORMAT_VERSION,
                    templates_sha256: templates.digest.clone(),
                    tensors: tensors.keys().cloned().collect(),
                    anchors,
                    classes,
                    label_names,
                    provenance,
                    accuracies,
                    shapes,
                },
                tensors,
            };
            Box::new(move || delta::write(out, &delta, float, &card))
        };
        Ok(StageOutput { result, write })
    })
}

struct Adaptation<'a> {
    prepared: &'a Prepared,
    /// The learngene that is adapted, on the device.
    gene: Learngene,
    /// The initial values of the delta.
    start: Weights,
}

impl Trainable for Adaptation<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let Prepared { plan, resolved, .. } = self.prepared;
        let variable = |(name, t): (&String, &Tensor)| {
            let mut v = train::variable(name, t, resolved, 0, device)?;
            v.weight_decay = resolved.weight_decay; // of differences: pulls towards the templates
            if name.starts_with("bank.") {
                v.rate = Rate::Uniform(plan.given.scaler_lr_ratio as f32);
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
        let Prepared {
            resolved, sizes, ..
        } = self.prepared;
        let gene = self.gene.with_delta(&live.weights)?;
        let rng = &mut train::size_generator(resolved.seed, part.step);
        let shape = sizes.shape(&gene.auxiliary, part.step, resolved.steps, rng);
        let weights = gene.stacked_weights(&shape)?;
        let images = resample::images(images, shape.image_size)?;
        label_loss(&shape, &weights, batch, &images, part, resolved)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let gene = self.prepared.templates.learngene.with_delta(values)?;
        let (depth, width) = self.prepared.sizes.largest();
        let shape = gene.auxiliary.with_size(depth, width);
        elastic::score(&gene, &shape, &self.prepared.data)
    }
}

/// The card of an adaptation of the templates in `dir`: of whole templates, if their configuration is given, else of a
/// delta.
fn card(
    dir: &Path,
    whole: Option<&TemplateConfig>,
    gene: &Learngene,
    accuracies: &[Accuracy],
    provenance: &Value,
) -> String {
    let source = dir.display();
    let (what, command) = match whole {
        Some(_) => ("Weight templates", "wave expand DIR".to_owned()),
        None => (
            "A delta of weight templates",
            format!("wave expand {source} --delta DIR"),
        ),
    };
    let data = provenance["data"].as_str().unwrap_or("wave");
    let mut body = format!(
        "{what}, adapted once from `{source}` to {data}, for models of all sizes. Create one \
         with\n\n```sh\n{command} --depth 6 --width {}\n```\n\n{PAPER}",
        gene.auxiliary.width
    );
    body += &templates::card_accuracies(gene, accuracies, "adapted");
    if let Some(config) = whole {
        body += &templates::card_use(gene, config);
    }
    let title = format!("{what}, {data}");
    templates::card(gene, accuracies, provenance, &title, &body)
}
