//! `wave condense`: distils an ancestor, through an auxiliary transformer whose large matrices are
//! composed from shared templates, into those templates (WAVE, section 3.2).
//!
//! The templates, the bank of scalers and the auxiliary's other weights train together towards
//! `KL(ancestor || auxiliary) + CE(labels, auxiliary)`, composed anew in every step. One depth and one
//! width are plain WAVE; with ranges, each step draws a depth and a width, and the same bank learns to
//! make models of all of them.

use crate::ancestor::{AncestorOutput, Ancestors};
use crate::cache::Cache;
use crate::lesson::Lesson;
use crate::templates::{self, TemplateDir};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use training::{Distillation, Updated};
use wave_run::context::Context;
use wave_run::data;
use wave_run::forecast::Step;
use wave_run::inputs::Inputs;
use wave_run::paths;
use wave_run::progress;
use wave_run::recipe::{Recipe, to_table};
use wave_run::run_dir::{self, Made, Options};
use wave_run::settings::{Condense, Duration};
use wave_run::train::{self, Course, Defaults};

mod artefact;
mod describe;
mod levels;
mod plan;
mod planner;
mod start;
mod training;

use artefact::{Condensed, write};
pub use describe::{describe, print_recipe};
pub use plan::{CondensePlan, check};
pub use planner::MINUTES;
pub use start::start;

/// Values for settings that are not given.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(150.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// Condenses and writes a template directory. Returns the output of `--json`.
///
/// `recipe` is the recipe's name, for the card.
///
/// # Errors
/// If settings are wrong, or the work fails.
pub fn condense(
    recipe: &str,
    settings: &Condense,
    ancestors: &Ancestors,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let settings = &planned(settings, ancestors, out, options)?;
    let levels = levels::checked(settings)?;
    if levels.len() > 1 {
        // What is wrong with any is said before the first begins.
        let grown = read_grown(levels[0].grow.as_deref(), &options.context)?;
        levels::plans(&levels, grown.as_ref())?;
    }
    let places = levels::places(out, levels.len());
    let mut result = Value::Null;
    for (at, (level, place)) in levels.iter().zip(&places).enumerate() {
        let mut level = level.clone();
        if at > 0 {
            level.grow = Some(paths::text(&places[at - 1]));
        }
        let whole = (at + 1 == levels.len()).then_some(settings);
        result = condense_level(recipe, &level, whole, ancestors, place, options)?;
    }
    Ok(result)
}

/// The plans of all levels of a condensation, at least one, without the templates that it grows.
///
/// # Errors
/// If the settings of a level are wrong.
pub fn plans(settings: &Condense) -> Result<Vec<CondensePlan>> {
    levels::plans(&levels::of(settings)?, None)
}

/// Epochs of a condensation and, before them, of those that it grew from.
pub fn epochs(provenance: &Value) -> Vec<f64> {
    let mut all = match &provenance["grown"] {
        Value::Null => Vec::new(),
        before => epochs(before),
    };
    all.push(provenance["epochs"].as_f64().unwrap_or(0.0));
    all
}

/// The templates that a condensation grows, if it grows any.
fn read_grown(grow: Option<&str>, context: &Context) -> Result<Option<TemplateDir>> {
    let read = |name| templates::fetch(Path::new(name), context);
    Ok(grow.map(read).transpose()?)
}

/// `settings` with a plan for its minutes, if it names minutes and no levels. The plan is written to `out`, and read from
/// there when the run is repeated, since other rates would make another plan.
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
        return recipe.stage("condense", None, settings);
    }
    let ancestor = ancestors.get(settings.ancestor.as_deref(), &settings.zero_shot, context)?;
    let planned = planner::plan(settings, ancestor.as_deref(), context)?;
    progress::say(options.verbosity, planned.text.trim_end());
    let recipe = run_dir::of_stage("condense", &to_table(&planned.settings)?);
    context.on_first(|| run_dir::announce(out, &recipe, options))?;
    Ok(planned.settings)
}

/// Condenses a level; `whole` are the settings of all levels, with the last of them.
fn condense_level(
    recipe: &str,
    settings: &Condense,
    whole: Option<&Condense>,
    ancestors: &Ancestors,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let context = &options.context;
    let ancestor = ancestors.get(settings.ancestor.as_deref(), &settings.zero_shot, context)?;
    let ancestor = ancestor.as_deref();
    let smaller = read_grown(settings.grow.as_deref(), context)?;
    let mut plan = match &smaller {
        Some(smaller) => levels::grown(settings, smaller)?,
        None => CondensePlan::new(settings)?,
    };
    if let Some(whole) = whole {
        plan.table = to_table(whole)?;
    }
    plan.fit_batch(options.repeated(out), context)?;
    let data = plan.open_data(ancestor, context)?;
    let output = plan.output(ancestor);
    if let Some(ancestor) = ancestor {
        ancestor.check(&data, output)?;
    }
    let classes = plan.outputs(ancestor, &data);
    let plan = plan.on(data.transform.channels, classes);
    let resolved = plan.training.resolve(&data)?;
    let memory = plan.memory(ancestor, resolved.mode);
    Step::new(memory, &data, &resolved)?.check()?;
    let cache = Cache::of_plan(plan.cache.as_ref(), ancestor, output, &data)?;
    if let Some(smaller) = &smaller {
        data.check_classes(
            smaller.learngene.auxiliary.classes,
            "grow templates on data of their own classes",
        )?;
    }
    let inputs = Inputs::new(context)
        .artefact_if_any("templates", plan.grow.as_deref())?
        .images(plan.data.spec.as_deref(), &data);
    let inputs = match ancestor {
        Some(ancestor) => ancestor.with_inputs(plan.ancestor.as_deref(), inputs)?,
        None => inputs,
    };
    let resolved_recipe = run_dir::of_stage("condense", &plan.table);
    run_dir::fill(out, &resolved_recipe, &inputs, options, |run| {
        let began = Instant::now();
        let gene = start::begin(&plan, smaller.as_ref(), resolved.seed)?;
        let lesson =
            |ancestor| Lesson::new(ancestor, &data, output, cache.as_ref(), options.verbosity);
        let distillation = Distillation {
            plan: &plan,
            updated: Updated::of(&plan, &gene),
            gene: &gene,
            resolved: &resolved,
            data: &data,
            output,
            lesson: ancestor.map(lesson).transpose()?,
        };
        let name = out.file_name().map(|n| n.to_string_lossy());
        let label = format!("condense {}", name.unwrap_or_default());
        let course = Course {
            label: &label,
            data: &data,
            resolved: &resolved,
            every_epoch: true,
        };
        let outcome = train::train(&distillation, &course, Some(run), options)?;
        let gene = gene.with_tensors(&outcome.values);
        let gene = match output {
            AncestorOutput::Scores => gene,
            AncestorOutput::Features => gene.headless(),
        };
        let gene = templates::rounded(&gene, plan.float)?;
        let about = Condensed {
            recipe,
            plan: &plan,
            ancestor,
            data: &data,
            seed: resolved.seed,
            steps: outcome.steps,
            epochs: outcome.epochs,
            grown: smaller.as_ref(),
        };
        let about = about.description(&gene)?;
        let mut result = json!({
            "parameters": gene.ledger().iter().map(|(_, n)| n).sum::<usize>(),
            "top1": outcome.scores.map(|s| s.top1),
            "seconds": began.elapsed().as_secs_f64().round(),
        });
        if let Some(cache) = &cache {
            result["cache"] = cache.summary();
        }
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        if whole.is_some() {
            result["accuracies"] = about.table();
            let most = plan.largest();
            result["next"] = json!(format!(
                "wave expand {} --depth {} --width {} --out model",
                paths::text(out),
                most.depth,
                most.width
            ));
        }
        let float = plan.float;
        Ok(Made {
            result,
            write: Box::new(move || write(out, &gene, float, about)),
        })
    })
}
