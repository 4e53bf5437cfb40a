//! `wave condense`: distils an ancestor, through an auxiliary transformer whose large matrices are
//! composed from shared templates, into those templates (WAVE, section 3.2).
//!
//! The objective is `KL(ancestor || auxiliary) + CE(labels, auxiliary)`. By default the composed weights
//! are trained, and after each step templates and scaler bank move towards them; `--train factors`
//! trains templates and bank through their composition. A single depth and width is plain WAVE; with
//! ranges, each step samples a depth and a width, and the same bank learns to make models of all sizes.

use crate::ancestor::{AncestorOutput, Ancestors};
use crate::cache::Cache;
use crate::distill_targets::DistillTargets;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;
use training::Distillation;
use wave_artefacts::templates::{self, TemplateDir};
use wave_hub::Accuracy;
use wave_run::context::Context;
use wave_run::forecast::Step;
use wave_run::inputs::Inputs;
use wave_run::recipe::{Recipe, to_table};
use wave_run::run_dir::{self, Options, StageOutput};
use wave_run::settings::{Condense, Duration};
use wave_run::train::{self, Defaults, TrainRun};
use wave_run::{data, paths, progress};

mod cost;
mod describe;
mod growth;
mod plan;
mod planner;
mod start;
mod training;

pub(crate) use cost::step_seconds;
use describe::{card, description};
pub use describe::{describe, print_recipe, untrained};
pub use plan::{CondensePlan, check};
pub use planner::MINUTES;
use start::start;

/// Default settings: AdamW has the paper's learning rate.
pub const fn defaults(muon: bool) -> Defaults {
    Defaults {
        duration: Duration::Epochs(150.0),
        lr: if muon { 4e-3 } else { 5e-4 },
        weight_decay: 0.05,
    }
}

/// Condenses an ancestor into a template directory, whose card names the `recipe`. Returns the output of `--json`.
pub fn condense(
    recipe: &str,
    settings: &Condense,
    ancestors: &Ancestors,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let settings = &planned(settings, ancestors, out, options)?;
    // Report errors of any level before the first one begins.
    let (levels, plans) = checked(settings, &options.context)?;
    let work: Vec<f64> = plans.iter().map(CondensePlan::work_in_all).collect();
    let mut grown: Option<PathBuf> = levels[0].grow.as_ref().map(PathBuf::from);
    let mut result = Value::Null;
    let began = Instant::now();
    progress::parts(&work, |at| {
        let (recorded, level) = match at + 1 == levels.len() {
            true => (settings, None),
            false => (&levels[at], Some(at)),
        };
        let settings = (&levels[at], recorded);
        let (grow, place) = (grown.as_deref(), (out, level));
        result = condense_level(recipe, settings, grow, ancestors, place, options, began)?;
        grown = Some(run_dir::level(out, at));
        anyhow::Ok(())
    })?;
    Ok(result)
}

/// The plans of all levels of a condensation, at least one, without the templates that it starts from.
pub fn plans(settings: &Condense) -> Result<Vec<CondensePlan>> {
    growth::plans(&growth::levels(settings)?, None)
}

fn checked(settings: &Condense, context: &Context) -> Result<(Vec<Condense>, Vec<CondensePlan>)> {
    let levels = growth::levels(settings)?;
    levels.iter().try_for_each(check)?;
    let grown = read_grown(levels[0].grow.as_deref().map(Path::new), context)?;
    let plans = growth::plans(&levels, grown.as_ref())?;
    Ok((levels, plans))
}

fn read_grown(grow: Option<&Path>, context: &Context) -> Result<Option<TemplateDir>> {
    let read = |path| templates::fetch(path, context);
    Ok(grow.map(read).transpose()?)
}

/// `settings` completed by a plan for their minutes, if they give minutes and no levels. The plan is written to `out`,
/// and read from there when the run is repeated, since other measured rates would give another plan.
fn planned(
    settings: &Condense,
    ancestors: &Ancestors,
    out: &Path,
    options: &Options,
) -> Result<Condense> {
    if settings.minutes.is_none() || settings.levels.is_some() {
        return Ok(settings.clone());
    }
    let context = &options.context;
    let path = out.join("run/recipe.toml");
    if !options.overwrite && path.exists() {
        let recipe = Recipe::read(&path, &[])?;
        return recipe.stage("condense", Some(&to_table(settings)?));
    }
    let name = settings.ancestor.as_deref();
    let ancestor = ancestors.get(name, &settings.zero_shot, context)?;
    let place = settings.training.images.data.as_deref();
    let mut inputs = Inputs::new(context).place(place);
    if let Some(ancestor) = &ancestor {
        inputs = ancestor.with_inputs(name, inputs)?;
    }
    let claim = || run_dir::claim(out, &inputs, options);
    let claimed = context.is_first().then(claim).transpose()?.flatten();
    let (settings, text) = planner::plan(settings, ancestor.as_deref(), context)?;
    progress::say(options.verbosity, text.trim_end());
    let recipe = run_dir::of_stage("condense", &to_table(&settings)?);
    context.on_first(|| run_dir::announce(out, &recipe, claimed))?;
    Ok(settings)
}

/// Condenses one level, growing the templates in `grow` if given: into `whole`, or, with a number `level`, into the
/// directory of that level within it. `recorded` are the settings that a repeated run is compared with: for the last
/// level, those of all levels. `began` is when the whole run began.
fn condense_level(
    recipe: &str,
    (settings, recorded): (&Condense, &Condense),
    grow: Option<&Path>,
    ancestors: &Ancestors,
    (whole, level): (&Path, Option<usize>),
    options: &Options,
    began: Instant,
) -> Result<Value> {
    let out = &level.map_or(whole.to_owned(), |at| run_dir::level(whole, at));
    let settings = &Condense {
        // For human readers: the run identifies these templates by their digest.
        grow: grow.map(paths::text),
        ..settings.clone()
    };
    let context = &options.context;
    let ancestor = ancestors.get(settings.ancestor.as_deref(), &settings.zero_shot, context)?;
    let ancestor = ancestor.as_deref();
    let smaller = read_grown(grow, context)?;
    let plan = match &smaller {
        Some(smaller) => growth::grown(settings, smaller)?,
        None => CondensePlan::new(settings)?,
    };
    let (plan, data) = plan.with_data(ancestor, context)?;
    let output = plan.output(ancestor);
    start::check(&plan, ancestor)?;
    let resolved = plan.training.resolve(&data)?;
    let memory = plan.memory(ancestor, resolved.mode);
    Step::new(memory, &data, &resolved)?.check()?;
    let cache = Cache::open(&plan.given.outputs, ancestor, output, &data)?;
    if let Some(smaller) = &smaller {
        growth::check_outputs(smaller, output, &plan, &data)?;
    }
    let mut inputs = Inputs::new(context).images(plan.data.spec.as_deref(), &data);
    if let Some(grow) = grow {
        inputs = inputs.artefact("templates", grow)?;
    }
    if let Some(ancestor) = ancestor {
        inputs = ancestor.with_inputs(plan.given.ancestor.as_deref(), inputs)?;
    }
    let reserve = |at| run_dir::reserve(whole, at, &inputs, options);
    let level_here = level.filter(|_| context.is_first());
    let _reserved = level_here.map(reserve).transpose()?;
    let recorded = run_dir::of_stage("condense", &to_table(recorded)?);
    run_dir::fill(out, &recorded, &inputs, options, |run| {
        let gene = start::begin(&plan, smaller.as_ref(), ancestor, &data, resolved.seed)?;
        let (cache, verbosity) = (cache.as_ref(), options.verbosity);
        let taught_by = plan.taught_by(ancestor);
        let distillation = Distillation {
            plan: &plan,
            reach: plan.reach(&gene),
            gene: &gene,
            resolved: &resolved,
            data: &data,
            distill_targets: DistillTargets::of(taught_by, &data, output, cache, verbosity)?,
        };
        let name = whole.file_name().map(|n| n.to_string_lossy());
        let of = level.map_or(String::new(), |at| format!(", level {at}"));
        let label = format!("condense {}{of}", name.unwrap_or_default());
        let train_run = TrainRun {
            label: &label,
            data: &data,
            resolved: &resolved,
            every_epoch: true,
        };
        let outcome = train::train(&distillation, &train_run, Some(run), options)?;
        let gene = gene.with_tensors(&outcome.values);
        // The next level needs the projection to the ancestor's features.
        let gene = match output == AncestorOutput::Features && level.is_none() {
            true => gene.headless(),
            false => gene,
        };
        let gene = templates::rounded(&gene, plan.float)?;
        let grown = smaller.as_ref();
        let about = description(recipe, &distillation, ancestor, grown, &outcome, &gene)?;
        let mut result = json!({
            "parameters": gene.ledger().iter().map(|(_, n)| n).sum::<usize>(),
            "top1": outcome.scores.map(|s| s.top1),
            "seconds": began.elapsed().as_secs_f64().round(),
        });
        if let Some(cache) = cache {
            result["cache"] = cache.summary(context);
        }
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        if level.is_none() {
            let row = |a: &Accuracy| json!({ "depth": a.depth, "width": a.width, "top1": a.top1 });
            result["accuracies"] = about.accuracies.iter().map(row).collect();
            let (dir, (depth, width)) = (paths::word(out), plan.sizes.largest());
            let next = format!("wave expand {dir} --depth {depth} --width {width} --out model");
            result["next"] = json!(next);
        }
        let (float, card) = (plan.float, card(&gene, &about));
        Ok(StageOutput {
            result,
            write: Box::new(move || templates::write(out, &gene, float, &about, &card)),
        })
    })
}
