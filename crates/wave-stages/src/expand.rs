//! `wave expand`: a transformer of any depth and width from a template directory
//! (WAVE, section 3.3).
//!
//! Scalers are read from the bank or initialised at random. A few hundred steps may fit them and the
//! head to a small data set, with the templates frozen. The weights are then composed once, into an
//! ordinary model. Without steps no data is needed.

use crate::budget;
use crate::score::{check_finite, label_loss, score, stored_scores, zero_head};
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use wave_artefacts::model::{Model, Network};
use wave_artefacts::origin;
use wave_artefacts::templates::{self, Source, TemplateDir};
use wave_data::Batch;
use wave_init::{Choices, DirectMethod, Positions};
use wave_learngene::{Learngene, Part, Scalers, random_scalers};
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_run::data::{self, Data};
use wave_run::inputs::Inputs;
use wave_run::progress;
use wave_run::recipe::COMMON;
use wave_run::run_dir::{self, Options, RunDir, StageOutput};
use wave_run::settings::{Duration, Expand, Fill, FirstScalers};
use wave_run::train::{
    self, Defaults, LossInput, Outcome, Parameters, Resolved, TrainRun, Trainable,
};
use wave_train::{Scores, Variable};

mod plan;

use plan::Prepared;
pub use plan::{ExpandPlan, check, describe, describe_of};

/// Default settings.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(300),
    lr: 1e-2,
    weight_decay: 0.0,
};

/// An expanded model and its parts.
pub struct Expanded {
    /// The model.
    pub model: Model,
    /// Its scalers, as stored.
    pub scalers: Weights,
    /// Parameters by origin.
    pub ledger: Vec<(&'static str, usize)>,
    /// The fit of the scalers, if there was data.
    pub fit: Option<Outcome>,
}

/// Expands templates and writes a model directory. Returns the output of `--json`.
pub fn expand(source: &Source, settings: &Expand, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let dir = &wave_run::locate::locate(&source.path, context)?;
    let prepared = checked(dir, settings, options)?;
    let layout = prepared.layout;
    let plan = &prepared.plan;
    let mut inputs = Inputs::new(context)
        .artefact("templates", dir)?
        .artefact_if_any("delta", plan.given.delta.as_deref())?;
    if let Some(data) = &prepared.data {
        inputs = inputs.images(plan.data.spec.as_deref(), data);
    }
    let recipe = run_dir::of_stage("expand", &plan.table);
    run_dir::fill(out, &recipe, &inputs, options, |run| {
        let (made, summary, result) = finish(source, &prepared, Some(run), options)?;
        let (model, scalers) = (made.model, made.scalers);
        Ok(StageOutput {
            result,
            write: Box::new(move || model.write(out, layout, Some(&scalers), &summary)),
        })
    })
}

/// Like [`expand`], without a directory: also returns the model and the first lines of its card.
pub fn in_memory(
    source: &Source,
    settings: &Expand,
    options: &Options,
) -> Result<(Expanded, String, Value)> {
    let prepared = checked(&source.path, settings, options)?;
    finish(source, &prepared, None, options)
}

/// The expansion with all its inputs, checked to fit in free memory.
fn checked(dir: &Path, settings: &Expand, options: &Options) -> Result<Prepared> {
    check(settings, &COMMON)?;
    let plan = ExpandPlan::new(settings)?;
    let templates = templates::fetch(dir, &options.context)?;
    let prepared = Prepared::new(templates, plan, &options.context)?;
    if let Some((_, step)) = &prepared.fitting {
        step.check()?;
    }
    let sizes = budget::table(&prepared.candidates);
    if !sizes.is_empty() {
        progress::say(options.verbosity, sizes.trim_end());
    }
    Ok(prepared)
}

/// The model of the templates in `source`, the first lines of its card, and the output of `--json`.
fn finish(
    source: &Source,
    prepared: &Prepared,
    run: Option<&mut RunDir>,
    options: &Options,
) -> Result<(Expanded, String, Value)> {
    let (templates, plan) = (&prepared.templates, &prepared.plan);
    let (shape, data) = (&prepared.shape, prepared.data.as_ref());
    let mut made = make(templates, plan, shape, data, run, options, "expand")?;
    let (model, ledger, fit) = (&mut made.model, &made.ledger, &made.fit);
    let mut top1 = None;
    if let (Some(data), Some(fit)) = (data, fit) {
        let scores = stored_scores(model, prepared.layout.float, data, fit.scores)?;
        top1 = scores.map(|s| s.top1);
    }
    model.provenance = json!({
        "stage": "expand",
        "version": env!("CARGO_PKG_VERSION"),
        "templates_sha256": templates.digest,
        "origin": origin::of(&source.path, &templates.config.provenance, &options.context),
        "data": plan.data.spec,
        "seed": plan.training.seed,
        "parameters": ledger.iter().copied().collect::<Value>(),
    });
    if let Some(delta) = &plan.given.delta {
        model.provenance["delta"] = json!(delta);
    }
    let command = plan.command(source);
    let mut summary = format!("```sh\n{command}\n```\n\n| values | |\n|---|---|\n");
    for (name, n) in ledger {
        summary += &format!("| {name} | {n} |\n");
    }
    let expected = prepared.expected();
    if let Some((top1, from)) = &expected {
        summary += &format!("\nExpected top-1: {:.1} %, {from}.\n", 100.0 * top1);
    }
    let outside = prepared.record().outside(shape);
    for line in &outside {
        summary += &format!("\nNot condensed: {line}.\n");
    }
    let mut result = json!({
        "makes": plan::makes(&model.label_names, shape, &source.path),
        "parameters": model.parameters(),
        "top1": top1,
        "ledger": ledger.iter().copied().collect::<BTreeMap<_, _>>(),
    });
    if let Some(fit) = fit {
        fit.tell(&mut result);
    }
    if let Some((top1, from)) = expected {
        result["expected_top1"] = json!(top1);
        result["expected_from"] = json!(from);
    }
    if !outside.is_empty() {
        result["not_condensed"] = json!(outside);
    }
    if !prepared.candidates.is_empty() {
        result["sizes"] = json!(prepared.candidates);
    }
    if let Some(data) = data {
        data::count_broken(&mut result, data.tell_broken());
    }
    Ok((made, summary, result))
}

/// Makes a model: scalers from the bank or at random, fitted if there is `data` and the plan asks for
/// it.
pub fn make(
    templates: &TemplateDir,
    plan: &ExpandPlan,
    shape: &VitShape,
    data: Option<&Data>,
    run: Option<&mut RunDir>,
    options: &Options,
    label: &str,
) -> Result<Expanded> {
    let gene = plan.used(&templates.learngene, shape)?;
    let mut shape = shape.clone();
    let mut label_names = templates.config.label_names.clone();
    let mut scalers = first_scalers(gene, plan, &shape)?;
    let mut inherited = gene.inherited(&shape)?;
    fill_blocks(&mut inherited, plan, &shape)?;
    let mut fit = None;
    if let Some(data) = data {
        if data.class_names.len() != shape.classes {
            // A new head starts at zero and is fitted with the scalers.
            shape.classes = data.class_names.len();
            label_names = data.class_names.clone();
            inherited.extend(zero_head("head", shape.classes, shape.width)?);
            if shape.distilled {
                inherited.extend(zero_head("head_dist", shape.classes, shape.width)?);
            }
        }
        let of_part = |(part, s): (&Part, &Tensor)| (format!("scalers.{part}"), s.clone());
        let head = HEAD.map(|name| (name.to_owned(), inherited[name].clone()));
        let fitting = Fitting {
            gene: gene.to_device(options.context.device())?,
            shape: &shape,
            start: scalers.iter().map(of_part).chain(head).collect(),
            inherited: options.context.place(&inherited)?,
            head_lr_ratio: plan.given.head_lr_ratio as f32,
            data,
            resolved: plan.training.resolve(data)?,
        };
        let train_run = TrainRun {
            label,
            data,
            resolved: &fitting.resolved,
            every_epoch: false,
        };
        let outcome = train::train(&fitting, &train_run, run, options)?;
        (scalers, inherited) = parts(&outcome.values, &inherited);
        fit = Some(outcome);
    }
    let weights = vit::unstack(&gene.assemble(&scalers, &inherited, &shape)?)?;
    check_finite(
        &weights,
        "templates and scalers compose",
        "the templates are damaged: download or condense them again",
    )?;
    let mut saved = Weights::new();
    for (part, s) in &scalers {
        for l in 0..s.dim(0)? {
            saved.insert(format!("scalers.{l}.{part}"), s.get(l)?.contiguous()?);
        }
    }
    let sum = |w: &Weights| w.values().map(Tensor::elem_count).sum::<usize>();
    let ledger = vec![
        ("templates", gene.plan.template_parameters()),
        ("scalers", sum(&saved)),
        ("inherited", sum(&inherited)),
        ("composed", sum(&weights) - sum(&inherited)),
    ];
    let model = Model {
        transform: templates.transform_of(&shape),
        network: Network::Vit(shape),
        weights,
        label_names,
        provenance: Value::Null,
    };
    Ok(Expanded {
        model,
        scalers: saved,
        ledger,
        fit,
    })
}

/// Standard deviation of the weights that random scalers compose: that of timm's initialisation. WAVE gives none.
/// Larger weights drown the inherited patches, norms and head (recipes/results/scalers-only/README.md).
const RANDOM_DEVIATION: f64 = 0.02;

fn first_scalers(gene: &Learngene, plan: &ExpandPlan, shape: &VitShape) -> Result<Scalers> {
    match plan.given.scalers {
        FirstScalers::Bank => Ok(gene.scalers(shape)?),
        FirstScalers::Random => {
            let mut rng = ChaCha8Rng::seed_from_u64(plan.training.seed);
            let normal = &mut || StandardNormal.sample(&mut rng);
            let (sets, templates, depth) = (&gene.plan, &gene.templates, shape.depth);
            let scalers = random_scalers(sets, templates, shape, depth, RANDOM_DEVIATION, normal);
            Ok(scalers?)
        }
    }
}

/// Replaces the norms and biases of the blocks, unless they are inherited.
fn fill_blocks(inherited: &mut Weights, plan: &ExpandPlan, shape: &VitShape) -> Result<()> {
    let method = match plan.given.fill {
        Fill::Inherit => return Ok(()),
        Fill::Mimetic => DirectMethod::Mimetic,
        Fill::Timm => DirectMethod::Timm,
    };
    // Positions are not replaced; sines would need widths that are multiples of 4.
    let choices = Choices {
        positions: Some(Positions::Learned),
        ..Choices::default()
    };
    let fresh = wave_init::initialise(shape, method, &choices, plan.training.seed)?;
    for (name, t) in vit::stack(&fresh, shape.depth)? {
        if name.starts_with("blocks.") && inherited.contains_key(&name) {
            inherited.insert(name, t);
        }
    }
    Ok(())
}

/// The training of scalers and head, with frozen templates. At a rate of 0 the head is frozen too.
struct Fitting<'a> {
    /// The learngene on the device.
    gene: Learngene,
    shape: &'a VitShape,
    /// The first values of scalers and head.
    start: Vec<(String, Tensor)>,
    /// The inherited weights on the device.
    inherited: Weights,
    head_lr_ratio: f32,
    data: &'a Data,
    resolved: Resolved,
}

const HEAD: [&str; 2] = ["head.weight", "head.bias"];

impl Fitting<'_> {
    fn assemble(&self, values: &Weights) -> candle_core::Result<Weights> {
        let (scalers, inherited) = parts(values, &self.inherited);
        self.gene.assemble(&scalers, &inherited, self.shape)
    }
}

/// Splits fitted values into scalers and inherited weights.
fn parts(values: &Weights, inherited: &Weights) -> (Scalers, Weights) {
    let of_part = |part: Part| (part, values[&format!("scalers.{part}")].clone());
    let scalers = Part::ALL.map(of_part).into();
    let mut rest = inherited.clone();
    rest.extend(HEAD.map(|name| (name.to_string(), values[name].clone())));
    (scalers, rest)
}

impl Trainable for Fitting<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let variable = |(name, t): &(String, Tensor)| {
            let mut v = train::variable(name, t, &self.resolved, 0, device)?;
            match HEAD.contains(&&**name) {
                true => v.rate = Some(self.head_lr_ratio).filter(|ratio| *ratio > 0.0),
                false => v.weight_decay = 0.0,
            }
            Ok(v)
        };
        self.start.iter().map(variable).collect()
    }

    fn loss(&self, live: &Parameters, on: &LossInput<Batch>) -> candle_core::Result<Tensor> {
        let weights = self.assemble(&live.weights)?;
        label_loss(self.shape, &weights, on, &self.resolved)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let network = Network::Vit(self.shape.clone());
        score(&network, &self.assemble(values)?, &self.data.tests)
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
