//! A condensation in words: the output of `--dry-run`, the configuration and the card of its templates.

use super::training::Distillation;
use super::{CondensePlan, checked, planner, start, step_seconds};
use crate::ancestor::{Ancestor, AncestorOutput, planned};
use crate::cache::{self, Cache};
use crate::elastic;
use crate::timing::examples;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use wave_artefacts::templates::{self, TemplateDir};
use wave_data::Transform;
use wave_hub::{PAPER, TemplateConfig};
use wave_learngene::Learngene;
use wave_run::context::Context;
use wave_run::data::Data;
use wave_run::forecast::{Step, bytes, checkpoint};
use wave_run::progress::duration;
use wave_run::recipe::to_table;
use wave_run::run_dir;
use wave_run::settings::{Condense, Trained};
use wave_run::train::Outcome;

/// Training images of ImageNet, assumed if no data is named.
const IMAGENET: usize = 1_281_167;
/// Images and layers of timed steps.
const TIMED: usize = 2;
const TIMED_LAYERS: usize = 2;

/// Sizes, parameters, work, memory, disk space, and time measured in a few steps. `ancestor` is one
/// that is not trained yet; otherwise it is the one in the settings, unless it would have to be
/// downloaded. Without data, the numbers are those of ImageNet.
///
/// # Errors
/// As the condensation's own, before its first step, except that too little memory is not an error,
/// since the plan may be for another machine.
pub fn describe(
    settings: &Condense,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<String> {
    let (settings, ancestor, planned) = filled(settings, ancestor, context)?;
    match planned {
        Some(text) => Ok(text),
        None => Ok(describe_levels(&settings, ancestor.as_deref(), context)?.0),
    }
}

/// The settings, completed with an ancestor and, if they give minutes, with a plan; the ancestor, if it is available;
/// the plan in words.
fn filled(
    settings: &Condense,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<(Condense, Option<Arc<Ancestor>>, Option<String>)> {
    let mut settings = settings.clone();
    let ancestor = match (ancestor, &settings.ancestor) {
        (Some(trained), None) => {
            settings.ancestor = Some(String::new()); // a placeholder: not on disk yet
            Some(trained)
        }
        (_, named) => planned(named.as_deref(), &settings.zero_shot, context)?,
    };
    let mut text = None;
    if settings.minutes.is_some() && settings.levels.is_none() {
        let (planned, words) = planner::plan(&settings, ancestor.as_deref(), context)?;
        (settings, text) = (planned, Some(words));
    }
    Ok((settings, ancestor, text))
}

/// The text of [`describe`], and untrained templates, as at the start of a condensation, so that later stages can be
/// planned.
pub fn untrained(
    settings: &Condense,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<(String, TemplateDir)> {
    let (settings, ancestor, planned) = filled(settings, ancestor, context)?;
    let ancestor = ancestor.as_deref();
    let (text, (mut plan, data)) = match planned {
        Some(text) => {
            let (_, mut plans) = checked(&settings, context)?;
            let last = plans.remove(plans.len() - 1);
            (text, opened(last, ancestor, context)?)
        }
        None => describe_levels(&settings, ancestor, context)?,
    };
    let features = plan.output(ancestor) == AncestorOutput::Features;
    plan.templates.levels.clear(); // the last level has all templates
    let gene = start::start(&plan, 0)?;
    let gene = if features { gene.headless() } else { gene };
    let half = || vec![0.5; plan.auxiliary.channels];
    let transform = match &data {
        Some(data) => data.transform.clone(),
        None => Transform::new(plan.auxiliary.image_size, half(), half()),
    };
    let names = data.map_or_else(Vec::new, |data| data.class_names);
    let provenance = json!({
        "depths": [plan.sizes.depths.0, plan.sizes.depths.1],
        "widths": plan.sizes.widths,
    });
    let untrained = TemplateDir {
        config: templates::config(&gene, &transform, names, provenance),
        learngene: gene,
        transform,
        digest: String::new(),
    };
    Ok((text, untrained))
}

/// A plan with its data, if it names any.
type Opened = (CondensePlan, Option<Data>);

/// Opens the data of a plan.
fn opened(plan: CondensePlan, ancestor: Option<&Ancestor>, context: &Context) -> Result<Opened> {
    if plan.data.spec.is_none() {
        return Ok((plan, None)); // channels and classes stay ImageNet's
    }
    let (plan, data) = plan.with_data(ancestor, context)?;
    Ok((plan, Some(data)))
}

/// All levels in words, and the last one.
fn describe_levels(
    settings: &Condense,
    ancestor: Option<&Ancestor>,
    context: &Context,
) -> Result<(String, Opened)> {
    let (_, mut plans) = checked(settings, context)?;
    let last = plans.remove(plans.len() - 1);
    let levels = plans.len();
    let mut text = String::new();
    for (at, plan) in plans.into_iter().enumerate() {
        let level = opened(plan, ancestor, context)?;
        let words = describe_level(&level, ancestor, context)?;
        text += &format!("level {at} of levels:\n{words}");
    }
    let last = opened(last, ancestor, context)?;
    if levels > 0 {
        text += &format!("level {levels} of levels:\n");
    }
    text += &describe_level(&last, ancestor, context)?;
    Ok((text, last))
}

fn describe_level(
    (plan, data): &Opened,
    ancestor: Option<&Ancestor>,
    context: &Context,
) -> Result<String> {
    let output = plan.output(ancestor);
    let mode = plan.training.mode(context)?;
    let batch = plan.data.batch;
    let (name, images, per_epoch) = match data {
        Some(data) => {
            plan.training.resolve(data)?; // only as a check
            let per_epoch = data.loader.steps_per_epoch();
            (&*data.spec, data.train_indices.len(), per_epoch)
        }
        None => {
            let images = plan.data.train_limit.map_or(IMAGENET, |n| n.min(IMAGENET));
            let per_epoch = (images / batch.max(1)).max(1);
            ("not given; assuming ImageNet", images, per_epoch)
        }
    };
    let parts = plan.training.optimisation.accumulate;
    let steps = plan.training.duration.steps(per_epoch);
    let downloaded = ancestor.is_some() || plan.given.ancestor.is_none();
    if let (Some(data), true) = (data, downloaded) {
        Cache::planned(&plan.given.outputs, ancestor, output, data)?;
    }
    if data.is_some() && ancestor.is_some() {
        start::check(plan, ancestor)?;
    }
    let a = &plan.auxiliary;
    let classes = a.classes;
    let largest = plan.largest();
    let ledger = plan.ledger();
    let values = ledger.iter().map(|(_, n)| n).sum::<usize>();
    let step = Step::of_images(plan.memory(ancestor, mode), batch, parts, context);
    let epochs = steps as f64 / per_epoch as f64;

    let counts = &plan.templates.counts;
    let t = plan.templates.template_size;
    let outputs = match output {
        AncestorOutput::Scores => "classes",
        AncestorOutput::Features => "ancestor features",
    };
    let (anchors, width, heads, patch) = (a.depth, a.width, a.heads, a.patch);
    let (side, models) = (a.image_size, planner::sizes_in_words(&plan.sizes));
    let mut text = format!(
        "data: {name}\n{images} images, {classes} {outputs}\nauxiliary: {anchors} anchors, width \
         {width}, {heads} heads, {side} x {side} pixels, patch size {patch}\nmodels: {models}\n\
         templates of {t} x {t}:"
    );
    for (set, n) in counts {
        text += &format!(" {n} {set}");
    }
    text += &format!(" ({} in total)\n", counts.values().sum::<usize>());
    let trained = match plan.train {
        Trained::Weights => "composed weights",
        Trained::Factors => "templates and scalers",
    };
    let optimiser = if plan.training.muon { "Muon" } else { "AdamW" };
    text += &format!("trains {trained} with {optimiser}\n");
    let twin = largest.parameter_count();
    let sums = [("transferred", values), ("plain ViT", twin)];
    for (name, n) in ledger.iter().chain(&sums) {
        text += &format!("{name:12} {n:>12}\n");
    }
    let known = match (ancestor, &plan.given.ancestor) {
        (Some(ancestor), _) => ancestor.describe(),
        (None, Some(name)) => format!("{name}, not yet downloaded; time unknown"),
        (None, None) => "none, labels only".to_owned(),
    };
    text += &format!("ancestor: {known}\n{steps} steps of {batch} images ({epochs:.1} epochs)\n");
    text += &step.words();
    text += &checkpoint(plan.values_in_training(), plan.training.ema.is_some());
    if let Some(room) = cache::bytes_per_image(&plan.given.outputs, output, classes)? {
        let view = bytes((room * images) as f64);
        text += &format!("the cache takes {room} bytes per image and view, {view} per view\n");
    }
    let (depth, width) = (TIMED_LAYERS.min(largest.depth), largest.width);
    let few = largest.with_size(depth, width);
    if !step.can_time(TIMED) {
        return Ok(text);
    }
    // Forward and backward: three times the multiply-adds, two operations each.
    let operations = plan.mean_multiply_adds() * 6.0 * batch as f64 * steps as f64;
    let (input, device) = ((a.channels, a.image_size), context.device());
    let (input, targets) = examples(input, classes, TIMED, device)?;
    let seconds = step_seconds(&few, &input, &targets, mode, 1)?[0];
    let rate = 6.0 * few.multiply_adds() as f64 * TIMED as f64 / seconds;
    let gflops = rate / 1e9;
    text += &format!("{gflops:.0} GFLOP/s here, measured at {depth} x {width}");
    let mut time = operations / rate;
    if let (Some(ancestor), Some(data)) = (plan.taught_by(ancestor), data) {
        let shown = ancestor.shown(data, steps, output);
        let seconds = ancestor.seconds(output)?;
        let rate = 1.0 / seconds;
        text += &format!("; the ancestor processes {shown} images at {rate:.1} per second");
        time += seconds * shown as f64;
    }
    let time = duration(time);
    Ok(text + &format!("; {time} at these rates, without data loading\n"))
}

/// The recipe of a condensation whose settings give minutes, with all planned settings.
pub fn print_recipe(settings: &Condense, context: &Context) -> Result<String> {
    let ancestor = planned(settings.ancestor.as_deref(), &settings.zero_shot, context)?;
    let (settings, text) = planner::plan(settings, ancestor.as_deref(), context)?;
    let recipe = run_dir::of_stage("condense", &to_table(&settings)?);
    let text = text.lines().map(|line| format!("# {line}\n"));
    Ok(text.collect::<String>() + &toml::to_string(&recipe)?)
}

/// The condition of the accuracies.
const EXPANDED: &str = "expanded without data";

/// The description of a condensed `gene`, with its accuracies; `grown` are the templates that it started from.
pub(super) fn description(
    recipe: &str,
    of: &Distillation,
    ancestor: Option<&Ancestor>,
    grown: Option<&TemplateDir>,
    outcome: &Outcome,
    gene: &Learngene,
) -> Result<TemplateConfig> {
    let Distillation { plan, data, .. } = *of;
    let targets = of.distill_targets.as_ref();
    let mut provenance = json!({
        "recipe": recipe,
        "version": env!("CARGO_PKG_VERSION"),
        "ancestor": ancestor.map(Ancestor::describe),
        "ancestor_output": targets.map(|targets| targets.shown.output.to_string()),
        "ancestor_sha256": ancestor.map(|a| &a.digest),
        "origin": ancestor.map(|a| &a.origin),
        "data": data.spec,
        "training_images": data.train_indices.len(),
        "seed": of.resolved.seed,
        "steps": outcome.steps,
        "epochs": outcome.epochs,
        "depths": [plan.sizes.depths.0, plan.sizes.depths.1],
        "widths": plan.sizes.widths,
    });
    let mut known = Vec::new();
    if let Some(TemplateDir { config, .. }) = grown {
        known.extend(config.accuracies.iter().map(|a| (a.depth, a.width)));
        let sizes = &plan.sizes;
        let before = |key: &str| config.sampled(key).into_iter().map(|n| n as usize);
        let depths = before("depths").chain([sizes.depths.0, sizes.depths.1]);
        let depths: BTreeSet<usize> = depths.collect();
        let widths = before("widths").chain(sizes.widths.iter().copied());
        let widths: BTreeSet<usize> = widths.collect();
        provenance["depths"] = json!([depths.first(), depths.last()]);
        provenance["widths"] = json!(widths);
        provenance["grown"] = config.provenance.clone();
    }
    let mut about = elastic::description(gene, &plan.sizes, &known, data, EXPANDED, provenance)?;
    if let Some(named) = ancestor.and_then(|a| a.named.as_ref()) {
        about.provenance["prompts"] = json!(named.prompts);
    }
    Ok(about)
}

/// The card of templates with this configuration.
pub(super) fn card(gene: &Learngene, config: &TemplateConfig) -> String {
    let (accuracies, provenance) = (&config.accuracies, &config.provenance);
    let head = gene.auxiliary.head_width();
    let mut body = format!(
        "Weight templates for vision transformers of any depth and of any width that is a multiple of {head}. {PAPER}"
    );
    body += &templates::card_accuracies(gene, accuracies, EXPANDED);
    body += "\n| values in the file | |\n|---|---|\n";
    for (name, n) in gene.ledger() {
        body += &format!("| {name} | {n} |\n");
    }
    body += &templates::card_use(gene, config);
    let recipe = match &provenance["recipe"] {
        Value::String(name) if name != "condense" => format!(" {name}.toml"),
        _ => String::new(),
    };
    body += &format!("\n## Made by\n\n```sh\nwave condense{recipe}\n```\n");
    let data = provenance["data"].as_str().unwrap_or("wave");
    let title = format!("Weight templates, {data}");
    templates::card(gene, accuracies, provenance, &title, &body)
}
