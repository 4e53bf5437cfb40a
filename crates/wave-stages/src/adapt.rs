//! `wave adapt`: fits weight templates to other data once, for models of all sizes.
//!
//! Training changes a *delta*: differences from the scaler bank, the templates (of low rank), the norms and
//! any other requested tensors, and a classifier. Each step samples a depth and a width, as in an elastic
//! condensation, so that one delta serves every size that `wave expand --delta` makes. A delta takes only
//! kilobytes; with `whole` the result is a template directory instead.

use crate::elastic;
use crate::score::{check_parts, label_loss};
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::delta::{self, DeltaDir};
use wave_artefacts::templates::{self, TemplateDir};
use wave_artefacts::{layout, origin};
use wave_data::Batch;
use wave_hub::{DeltaConfig, FORMAT_VERSION, FloatType, PAPER, TemplateConfig};
use wave_learngene::{Learngene, Sizes};
use wave_models::{Weights, refuse};
use wave_run::context::Context;
use wave_run::data::{self, Data, DataPlan, Input};
use wave_run::forecast::{Memory, Step};
use wave_run::inputs::Inputs;
use wave_run::paths;
use wave_run::recipe::to_table;
use wave_run::run_dir::{self, Options, StageOutput};
use wave_run::settings::{self, Adapt, AdaptValues, Duration};
use wave_run::train::{
    self, Defaults, LossInput, Parameters, Resolved, TrainRun, Trainable, TrainingPlan,
};
use wave_train::{Scores, Variable};

/// Default settings, for an adaptation that writes templates (`whole`) or a delta.
pub const fn defaults(whole: bool) -> Defaults {
    Defaults {
        duration: Duration::Epochs(60.0),
        lr: if whole { 8e-3 } else { 2e-2 },
        weight_decay: 0.0,
    }
}

/// Default number of anchors of a delta.
const ANCHORS: usize = 2;

/// Default rank of a delta's template differences.
const TEMPLATE_RANK: usize = 1;

/// Adapts the templates in a directory and writes the delta, or the adapted templates. Returns the output
/// of `--json`.
pub fn adapt(dir: &Path, settings: &Adapt, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let adaptation = Adaptation::read(dir, settings, context)?;
    adaptation.step.check()?;
    let (given, templates) = (&adaptation.given, &adaptation.templates);
    let (sizes, data, resolved) = (&adaptation.sizes, &adaptation.data, &adaptation.resolved);
    let inputs = Inputs::new(context).artefact("templates", dir)?;
    let inputs = inputs.images(given.training.images.data.as_deref(), data);
    let recipe = run_dir::of_stage("adapt", &to_table(settings)?);
    run_dir::fill(out, &recipe, &inputs, options, |run| {
        let train_run = TrainRun {
            label: "adapt",
            data,
            resolved,
            every_epoch: false,
        };
        let mut outcome = train::train(&adaptation, &train_run, Some(run), options)?;
        // As it will be stored.
        let float = adaptation.float;
        let mut tensors = std::mem::take(&mut outcome.values);
        if !given.whole {
            tensors = float.rounded(&tensors)?;
        }
        let mut gene = templates.learngene.with_delta(&tensors)?;
        if given.whole {
            gene = templates::rounded(&gene, float)?;
        }
        let provenance = json!({
            "stage": "adapt",
            "version": env!("CARGO_PKG_VERSION"),
            "templates_sha256": templates.digest,
            "origin": origin::of(dir, &templates.config.provenance, context),
            "data": data.spec,
            "training_images": data.train_indices.len(),
            "seed": resolved.seed,
            "steps": outcome.steps,
            "epochs": outcome.epochs,
            "depths": [sizes.depths.0, sizes.depths.1],
            "widths": sizes.widths,
            "start": templates.config.provenance,
        });
        let condition = "adapted, without data";
        let about = elastic::description(&gene, sizes, &[], data, condition, provenance)?;
        let mut result = json!({
            "parameters": tensors.values().map(Tensor::elem_count).sum::<usize>(),
            "top1": outcome.scores.map(|s| s.top1),
            "accuracies": about.accuracies,
        });
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        let card = card(dir, given.whole, &gene, &about);
        let write: Box<dyn FnOnce() -> Result<()>> = if given.whole {
            Box::new(move || templates::write(out, &gene, float, &about, &card))
        } else {
            let delta = DeltaDir {
                config: DeltaConfig {
                    format_version: FORMAT_VERSION,
                    templates_sha256: templates.digest.clone(),
                    tensors: tensors.keys().cloned().collect(),
                    anchors: adaptation.anchors(),
                    classes: data.class_names.len(),
                    label_names: about.label_names,
                    provenance: about.provenance,
                    accuracies: about.accuracies,
                    shapes: about.shapes,
                },
                tensors,
            };
            Box::new(move || delta::write(out, &delta, float, &card))
        };
        Ok(StageOutput { result, write })
    })
}

/// The output of `wave adapt --dry-run`.
pub fn describe(dir: &Path, settings: &Adapt, context: &Context) -> Result<String> {
    let adaptation = Adaptation::read(dir, settings, context)?;
    let data = &adaptation.data;
    let delta = adaptation.no_delta()?;
    let values: usize = delta.values().map(Tensor::elem_count).sum();
    let (least, most) = adaptation.sizes.depths;
    let (widths, anchors) = (&adaptation.sizes.widths, adaptation.anchors());
    let mut text = format!(
        "depths {least} to {most}, widths {widths:?}; {values} trainable values, {anchors} anchors\n"
    );
    text += &data.describe();
    text += &adaptation.resolved.describe(data);
    Ok(text + &adaptation.step.words())
}

/// An adaptation with all its inputs, checked.
struct Adaptation {
    given: AdaptValues,
    float: FloatType,
    templates: TemplateDir,
    /// The learngene of the templates on the device.
    gene: Learngene,
    sizes: Sizes,
    data: Data,
    resolved: Resolved,
    step: Step,
}

impl Adaptation {
    fn read(dir: &Path, settings: &Adapt, context: &Context) -> Result<Adaptation> {
        settings::check(settings)?;
        let given = AdaptValues::from(settings.clone());
        let float = match (&given.dtype, given.whole) {
            (None, false) => FloatType::F16,
            (dtype, _) => layout::float(dtype.as_deref())?,
        };
        let images = DataPlan::new(&settings.training)?;
        let training = TrainingPlan::new(&settings.training, defaults(given.whole))?;
        let templates = templates::fetch(dir, context)?;
        let gene = &templates.learngene;
        let (anchors, rank) = (given.anchors, given.template_rank);
        for (key, value, most) in [
            ("anchors", anchors, gene.auxiliary.depth),
            ("template_rank", rank, gene.plan.template_size),
        ] {
            if let Some(n) = value.filter(|n| *n > most) {
                refuse!("{key} = {n}; these templates allow {most} at most");
            }
        }
        let sizes = sizes(&given, &templates)?;
        let values = gene.ledger().iter().map(|(_, n)| n).sum();
        let data = Data::open(&images, Input::Like(templates.transform.clone()), context)?;
        let resolved = training.resolve(&data)?;
        let tensors = gene.tensors();
        let parts = given.adapts.as_deref().unwrap_or_default();
        check_parts("adapts", parts, tensors.iter().map(|(name, _)| name))?;
        let only_templates = |part: &&String| {
            let mut named = tensors.iter().filter(|(name, _)| name.contains(*part));
            named.all(|(name, _)| name.starts_with("templates."))
        };
        if let (false, Some(part)) = (given.whole, parts.iter().find(only_templates)) {
            refuse!(
                "adapts: {part} names templates alone, which a delta changes by its rank; give \
                 --template-rank R instead, or --whole true"
            );
        }
        let memory = Memory::of_composed(&sizes.costliest(&gene.auxiliary), resolved.mode, values);
        Ok(Adaptation {
            step: Step::new(memory, &data, &resolved)?,
            given,
            float,
            gene: gene.to_device(context.device())?,
            templates,
            sizes,
            data,
            resolved,
        })
    }

    /// Number of anchors of the delta.
    fn anchors(&self) -> usize {
        let own = self.templates.learngene.auxiliary.depth;
        let usual = match self.given.whole {
            true => own,
            false => ANCHORS.min(own),
        };
        self.given.anchors.unwrap_or(usual)
    }

    /// The delta before the first step.
    fn no_delta(&self) -> candle_core::Result<Weights> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.resolved.seed);
        let mut normal = || StandardNormal.sample(&mut rng);
        let usual = if self.given.whole { 0 } else { TEMPLATE_RANK };
        let rank = self.given.template_rank.unwrap_or(usual);
        let (gene, classes) = (&self.templates.learngene, self.data.class_names.len());
        let adapts = |name: &str| self.adapts(name);
        gene.no_delta(self.anchors(), classes, rank, &mut normal, adapts)
    }

    /// True if a tensor of the learngene is adapted, among those that are neither scalers nor classifier.
    fn adapts(&self, name: &str) -> bool {
        match &self.given.adapts {
            _ if name.starts_with("templates.") => self.given.whole,
            Some(parts) => parts.iter().any(|part| name.contains(part)),
            None => self.given.whole || name.contains("norm"),
        }
    }
}

/// The sizes to sample from: the given ones, or those of the condensation.
fn sizes(given: &AdaptValues, templates: &TemplateDir) -> Result<Sizes> {
    let auxiliary = &templates.learngene.auxiliary;
    let said = |given: &Option<Vec<usize>>, key: &str, own: usize| {
        let condensed = templates.config.sampled(key).into_iter();
        let condensed: Vec<usize> = condensed.map(|n| n as usize).collect();
        let condensed = Some(condensed).filter(|all| !all.is_empty());
        given.clone().or(condensed).unwrap_or_else(|| vec![own])
    };
    let depths = elastic::depths(&said(&given.depths, "depths", auxiliary.depth))?;
    let widths = said(&given.widths, "widths", auxiliary.width);
    let drawn = &given.variants.head_widths;
    for &width in &widths {
        if !drawn.iter().any(|head| width.is_multiple_of(*head)) {
            templates.learngene.shape(depths.1, width, None)?;
        }
    }
    let mut sizes = elastic::sizes(&given.elastic, depths, widths, elastic::GROWTH)?;
    sizes.variants = elastic::variants(&given.variants, &sizes, auxiliary)?;
    Ok(sizes)
}

impl Trainable for Adaptation {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let resolved = &self.resolved;
        let variable = |(name, t): (&String, &Tensor)| {
            let mut v = train::variable(name, t, resolved, 0, device)?;
            v.weight_decay = resolved.weight_decay; // of differences: pulls towards the templates
            if name.starts_with("bank.") {
                v.rate = Some(self.given.scaler_lr_ratio as f32);
            }
            Ok(v)
        };
        self.no_delta()?.iter().map(variable).collect()
    }

    fn loss(&self, live: &Parameters, on: &LossInput<Batch>) -> candle_core::Result<Tensor> {
        let resolved = &self.resolved;
        let gene = self.gene.with_delta(&live.weights)?;
        let shape = elastic::sampled(&self.sizes, &gene.auxiliary, on.part.step, resolved);
        label_loss(&shape, &gene.stacked_weights(&shape)?, on, resolved)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let gene = self.templates.learngene.with_delta(values)?;
        let (depth, width) = self.sizes.largest();
        let shape = gene.auxiliary.with_size(depth, width);
        elastic::score(&gene, &shape, &self.data)
    }
}

/// The card of an adaptation of the templates in `dir`, described by `about`: of `whole` templates, or of a delta.
fn card(dir: &Path, whole: bool, gene: &Learngene, about: &TemplateConfig) -> String {
    let source = dir.display();
    let (what, command) = match whole {
        true => ("Weight templates", "wave expand DIR".to_owned()),
        false => (
            "A delta of weight templates",
            format!("wave expand {} --delta DIR", paths::word(dir)),
        ),
    };
    let (accuracies, provenance) = (&about.accuracies, &about.provenance);
    let data = provenance["data"].as_str().unwrap_or("wave");
    let mut body = format!(
        "{what}, adapted once from `{source}` to {data}, for models of all sizes. Create one \
         with\n\n```sh\n{command} --depth 6 --width {}\n```\n\n{PAPER}",
        gene.auxiliary.width
    );
    body += &templates::card_accuracies(gene, accuracies, "adapted");
    if whole {
        body += &templates::card_use(gene, about);
    }
    let title = format!("{what}, {data}");
    templates::card(gene, accuracies, provenance, &title, &body)
}
