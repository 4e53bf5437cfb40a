//! `wave run`: runs the stages of a recipe in order, and with a `[bench]` table the comparison of `wave
//! bench`.
//!
//! The output directory holds one directory per stage and a report:
//!
//! ```text
//! OUT/ancestor/          [ancestor]: a model, initialised and trained
//! OUT/condense/, expand/, finetune/
//! OUT/cells/, report.md  [bench]
//! OUT/run/lock           locked while a process works there
//! ```
//!
//! Complete stages are not repeated. `--resume` continues the others, `--overwrite` starts over.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Table;
use wave_artefacts::layout::{Format, Layout};
use wave_artefacts::model::{Model, Network};
use wave_bench::bench;
use wave_models::refuse;
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::inputs::Inputs;
use wave_run::lock::Lock;
use wave_run::paths;
use wave_run::recipe::{Recipe, merge};
use wave_run::run_dir;
use wave_run::settings::{Condense, Expand, Finetune, Init};
use wave_stages::ancestor::{self, Ancestor, Ancestors};
use wave_stages::condense;
use wave_stages::expand::{self, ExpandPlan};
use wave_stages::finetune::{self, FinetunePlan, Options, Prepared};
use wave_stages::init;

/// The `[ancestor]` table: a model to initialise and train before it is distilled.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct AncestorTable {
    /// Method of `wave init`.
    method: Option<String>,
    /// Its shape, as for `wave init`.
    #[serde(default)]
    init: Init,
    /// Its training, as for `wave finetune`.
    #[serde(flatten)]
    finetune: Finetune,
}

/// Runs a recipe. Returns the output of `--json`.
pub fn run(recipe: &Recipe, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let ranks = context.ranks().size();
    if recipe.has("bench") && ranks > 1 {
        refuse!(
            "{ranks} ranks were started, but [bench] trains its models in parallel in one process; \
             start it without mpirun"
        );
    }
    check(recipe, context)?;
    let tuning: Finetune = recipe.stage("finetune", None)?;
    let has_data = tuning.training.images.data.is_some() || recipe.has("bench");
    if recipe.has("finetune") && !has_data {
        refuse!("[finetune] has no data; set data there or outside the tables");
    }
    let first = context.is_first();
    let lock = first.then(|| open(recipe, out, options)).transpose()?;
    context.on_first(|| {
        let (own, text) = (out.join("recipe.toml"), toml::to_string(&recipe.table)?);
        Ok(wave_hub::write_atomic(&own, text.as_bytes())?)
    })?;
    let mut recipe = recipe.clone();
    if recipe.has("ancestor") {
        let (method, start, finetune) = ancestor_table(&recipe)?;
        let [untrained, dir] = ["ancestor-start", "ancestor"].map(|name| out.join(name));
        init::init(&method, &start, &untrained, options)?;
        finetune::finetune(&untrained, &finetune, &dir, options)?;
        let ancestor = toml::Value::String(dir.display().to_string());
        let condense = Table::from_iter([("ancestor".to_owned(), ancestor)]);
        let mut table = Table::from_iter([("condense".to_owned(), condense.into())]);
        // A table that names another ancestor keeps it.
        merge(&mut table, &recipe.table);
        recipe.table = table;
    }
    if recipe.has("bench") {
        // The old output is already removed; artefacts shared by cells are made only once.
        let options = Options {
            resume: true,
            overwrite: false,
            ..options.clone()
        };
        return bench::bench(&recipe, out, lock.as_ref(), &options);
    }
    let [templates, model, tuned] = ["condense", "expand", "finetune"].map(|stage| out.join(stage));
    let (name, ancestors) = (&recipe.name, Ancestors::default());
    let settings: Condense = recipe.stage("condense", None)?;
    let condensed = condense::condense(name, &settings, &ancestors, &templates, options)?;
    let mut rows = vec![condensed];
    if recipe.has("expand") {
        let settings: Expand = recipe.stage("expand", None)?;
        let templates = templates.into();
        rows.push(expand::expand(&templates, &settings, &model, options)?);
    }
    if recipe.has("finetune") {
        rows.push(finetune::finetune(&model, &tuning, &tuned, options)?);
    }
    Ok(json!({ "out": paths::text(out), "rows": rows }))
}

/// Prepares `out` for a recipe, and locks it.
fn open(recipe: &Recipe, out: &Path, options: &Options) -> Result<Lock> {
    let shown = out.display();
    // Recipes refer to the directories of other stages as text.
    if out.to_str().is_none() {
        refuse!("--out {shown} is not UTF-8, but paths in a recipe must be; choose another --out");
    }
    let own = out.join("recipe.toml");
    let read = recipe.path.as_deref().map(paths::resolve);
    if read == Some(paths::resolve(&own)) {
        refuse!(
            "--out {shown}: its recipe.toml would be overwritten, but it is the recipe to run; choose \
             another --out"
        );
    }
    if !options.overwrite && own.exists() && !out.join("run/lock").exists() {
        refuse!(
            "{shown} holds a recipe.toml that no run there wrote; choose another --out, or replace it \
             with --overwrite"
        );
    }
    let mut inputs = Inputs::new(&options.context);
    for spec in values("data", &recipe.table) {
        inputs = inputs.place(Some(spec));
    }
    inputs.check_out(out)?;
    let lock = Lock::take(out)?;
    wave_hub::remove_temporaries(&out.join("cells"))?;
    if options.overwrite {
        start_over(out)?;
    }
    Ok(lock)
}

/// Removes the results of earlier runs in `out`, so that after a kill a stage not yet reached does not look complete.
fn start_over(out: &Path) -> Result<()> {
    let stages = "ancestor-start ancestor condense expand finetune".split(' ');
    let mut parts: Vec<PathBuf> = stages.map(|stage| out.join(stage)).collect();
    for kind in ["donors", "templates", "pretrained"] {
        parts.extend(entries(&out.join(kind))?);
    }
    for part in parts {
        run_dir::discard(&part)?;
    }
    for cell in entries(&out.join("cells"))? {
        if cell.extension().is_some_and(|e| e == "json") {
            fs::remove_file(&cell).with_context(|| format!("cannot remove {}", cell.display()))?;
        }
    }
    Ok(())
}

/// The paths in a directory; none if it is not one.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(dir).and_then(|all| all.map(|entry| Ok(entry?.path())).collect());
    entries.with_context(|| format!("cannot read {}", dir.display()))
}

/// The values of all keys of this name.
fn values<'a>(name: &str, table: &'a Table) -> Vec<&'a String> {
    let mut all = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => all.extend(values(name, inner)),
            toml::Value::String(text) if key == name => all.push(text),
            _ => {}
        }
    }
    all
}

/// Rejects settings that would fail only after hours of training, such as a format that cannot hold a stage's model.
fn check(recipe: &Recipe, context: &Context) -> Result<()> {
    if recipe.has("ancestor") {
        let (method, start, finetune) = ancestor_table(recipe)?;
        if Layout::new(&finetune.output)?.format != Format::Timm {
            let network = init::new_network(&method, &start, context)?;
            Layout::of(&finetune.output, &network)?;
        }
    }
    let mut condense: Condense = recipe.stage("condense", None)?;
    let descendant = Network::Vit(VitShape {
        class_token: condense.auxiliary.class_token.unwrap_or(false),
        ..VitShape::default()
    });
    let expand: Expand = recipe.stage("expand", None)?;
    Layout::of(&expand.output, &descendant).context("[expand]")?;
    let finetune: Finetune = recipe.stage("finetune", None)?;
    Layout::of(&finetune.output, &descendant).context("[finetune]")?;
    if recipe.has("bench") {
        return bench::check(recipe);
    }
    for (stage, needed) in [("expand", "condense"), ("finetune", "expand")] {
        if recipe.has(stage) && !recipe.has(needed) {
            refuse!("[{stage}] needs [{needed}] in the same recipe");
        }
    }
    if !recipe.has("condense") {
        refuse!("the recipe names no stage; add [condense], [expand], [finetune] or [bench]");
    }
    if recipe.has("ancestor") {
        condense.ancestor.get_or_insert_default();
    }
    condense::check(&condense).context("[condense]")?;
    if recipe.has("expand") {
        ExpandPlan::new(&expand).context("[expand]")?;
        let has_size = expand.depth.is_some() && expand.width.is_some();
        let is_limited = expand.max_params.is_some()
            || expand.max_macs.is_some()
            || expand.max_latency_ms.is_some();
        if !has_size && !is_limited {
            refuse!("[expand] has no size; set depth and width, or a limit such as max_params");
        }
    }
    if recipe.has("finetune") {
        FinetunePlan::new(&finetune).context("[finetune]")?;
    }
    Ok(())
}

/// The output of `--dry-run`.
pub fn describe(recipe: &Recipe, context: &Context) -> Result<String> {
    check(recipe, context)?;
    let (mut text, ancestor) = describe_ancestor(recipe, context)?;
    text += &match recipe.has("bench") {
        true => bench::describe(recipe, ancestor, context)?,
        false => describe_stages(recipe, ancestor, context)?,
    };
    Ok(text)
}

/// The plans of the stages, each based on the output of the one before.
fn describe_stages(
    recipe: &Recipe,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<String> {
    let condense: Condense = recipe.stage("condense", None)?;
    if !recipe.has("expand") {
        return condense::describe(&condense, ancestor, context).context("[condense]");
    }
    let planned = condense::untrained(&condense, ancestor, context);
    let (text, templates) = planned.context("[condense]")?;
    let mut text = format!("[condense]\n{text}");
    let mut settings: Expand = recipe.stage("expand", None)?;
    let training = &mut settings.training;
    let fits = training.optimisation.epochs.is_some() || training.optimisation.steps > Some(0);
    let unplanned = fits && training.images.data.is_none();
    if unplanned {
        (training.optimisation.epochs, training.optimisation.steps) = (None, None);
    }
    let (plan, model) = expand::describe_of(templates, &settings, context).context("[expand]")?;
    text += &format!("\n[expand]\n{plan}");
    if unplanned {
        text += "fitting is not planned: no data is given\n";
    }
    if recipe.has("finetune") {
        let settings: Finetune = recipe.stage("finetune", None)?;
        let plan = match settings.training.images.data {
            None => "not planned: no data is given\n".to_owned(),
            Some(_) => describe_finetune(model, &settings, context).context("[finetune]")?,
        };
        text += &format!("\n[finetune]\n{plan}");
    }
    Ok(text)
}

/// The plan for fine-tuning a model that does not exist yet.
fn describe_finetune(model: Model, settings: &Finetune, context: &Context) -> Result<String> {
    let plan = FinetunePlan::new(settings)?;
    let path = plan.given.ancestor.as_deref();
    let ancestor = ancestor::planned(path, &plan.given.zero_shot, context)?;
    Prepared::new(model, ancestor, plan, context)?.describe()
}

/// The plan for the ancestor that a recipe trains, and the untrained ancestor.
fn describe_ancestor(
    recipe: &Recipe,
    context: &Context,
) -> Result<(String, Option<Arc<Ancestor>>)> {
    if !recipe.has("ancestor") {
        return Ok((String::new(), None));
    }
    let (method, start, finetune) = ancestor_table(recipe)?;
    let model = init::new_model(&method, &start, context)?;
    let ancestor = Ancestor::new(model.clone(), String::new(), Value::Null, context)?;
    let plan = FinetunePlan::new(&finetune);
    let plan = plan.and_then(|plan| Prepared::new(model, None, plan, context)?.describe());
    let text = plan.context("[ancestor]")?;
    Ok((format!("[ancestor]\n{text}\n"), Some(Arc::new(ancestor))))
}

/// The `[ancestor]` table: a method of `wave init` with its settings, and the training. By default, it is
/// initialised for the data of its training. A normalisation outside the table does not apply, since a model may
/// have its own.
fn ancestor_table(recipe: &Recipe) -> Result<(String, Init, Finetune)> {
    let AncestorTable {
        method,
        init: mut start,
        mut finetune,
    } = recipe.stage("ancestor", None)?;
    let own = |key| recipe.table["ancestor"].get(key).is_some();
    let images = &mut finetune.training.images;
    images.mean = images.mean.take().filter(|_| own("mean"));
    images.std = images.std.take().filter(|_| own("std"));
    if start.data.is_none() && start.from.is_none() {
        start.data = images.data.clone();
    }
    Ok((method.unwrap_or("default".into()), start, finetune))
}
