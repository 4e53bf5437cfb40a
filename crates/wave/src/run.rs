//! `wave run`: every stage that a recipe names, in order; and, with a `[bench]` table, ways to start
//! models of several sizes, side by side (`wave bench`).
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
//! With `--resume` nothing that is complete runs again.

use crate::ancestor::Ancestors;
use crate::error::request;
use crate::finetune::{self, Options};
use crate::layout::{Format, Layout};
use crate::model::Network;
use crate::ranks::{self, ranks};
use crate::recipe::{Recipe, merge};
use crate::settings::{Condense, Expand, Finetune, Init};
use crate::{bench, condense};
use crate::{init, run_dir};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use toml::Table;
use wave_models::vit::VitShape;

/// `[ancestor]`: a model to initialise and train before it is distilled.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct AncestorTable {
    /// How it begins: a method of `wave init`.
    method: Option<String>,
    /// Its shape, as for `wave init`.
    #[serde(default)]
    init: Init,
    /// How it is trained, as for `wave finetune`.
    #[serde(flatten)]
    finetune: Finetune,
}

/// Runs a recipe. Returns what `--json` prints.
pub fn run(recipe: &Recipe, out: &Path, options: Options) -> Result<Value> {
    check_layouts(recipe)?;
    if recipe.has("bench") && ranks().size() > 1 {
        return Err(request(format!(
            "[bench] trains its models side by side in one process, and {} were started; start it \
             without mpirun",
            ranks().size()
        )));
    }
    let _lock = ranks::is_first().then(|| run_dir::lock(out)).transpose()?;
    ranks::on_first(|| {
        let text = toml::to_string(&recipe.table)?;
        Ok(wave_hub::write_atomic(
            &out.join("recipe.toml"),
            text.as_bytes(),
        )?)
    })?;
    let mut recipe = recipe.clone();
    if recipe.has("ancestor") {
        let dir = train_ancestor(&recipe, out, options)?;
        let ancestor = toml::Value::String(dir.display().to_string());
        let mut condense = Table::new();
        condense.insert("ancestor".into(), ancestor);
        let mut table = Table::new();
        table.insert("condense".into(), condense.into());
        // A recipe that names another ancestor for a table keeps it.
        merge(&mut table, &recipe.table);
        recipe.table = table;
    }
    if recipe.has("bench") {
        return bench::bench(&recipe, out, options);
    }
    let mut rows = Vec::new();
    let mut last: Option<PathBuf> = None;
    if recipe.has("condense") {
        let dir = out.join("condense");
        let settings = recipe.stage("condense", None, &Condense::default())?;
        rows.push(condense::condense(
            &recipe.name,
            &settings,
            &Ancestors::default(),
            &dir,
            options,
        )?);
        last = Some(dir);
    }
    if recipe.has("expand") {
        let dir = out.join("expand");
        let settings = recipe.stage("expand", None, &Expand::default())?;
        let templates =
            last.ok_or_else(|| request("[expand] needs [condense] in the same recipe"))?;
        rows.push(crate::expand::expand(&templates, &settings, &dir, options)?);
        last = Some(dir);
    }
    if recipe.has("finetune") {
        let dir = out.join("finetune");
        let settings = recipe.stage("finetune", None, &Finetune::default())?;
        let model = last.ok_or_else(|| request("[finetune] needs [expand] in the same recipe"))?;
        rows.push(finetune::finetune(&model, &settings, &dir, options)?);
    }
    if rows.is_empty() {
        return Err(request(
            "the recipe names no stage; add [condense], [expand], [finetune] or [bench]",
        ));
    }
    Ok(json!({ "out": out, "rows": rows }))
}

/// Refuses what could only be refused after hours of training otherwise: a format that has no place
/// for a stage's model.
fn check_layouts(recipe: &Recipe) -> Result<()> {
    if recipe.has("ancestor") {
        let AncestorTable {
            method,
            init: shape,
            finetune,
        } = recipe.stage("ancestor", None, &AncestorTable::default())?;
        if Layout::new(&finetune.output)?.format != Format::Timm {
            let shape = ancestor_shape(shape, &finetune);
            let model = init::new_model(method.as_deref().unwrap_or("default"), &shape)?;
            Layout::of(&finetune.output, &model.network)?;
        }
    }
    let condense: Condense = recipe.stage("condense", None, &Condense::default())?;
    let descendant = Network::Vit(VitShape {
        class_token: condense.auxiliary.class_token.unwrap_or(false),
        ..VitShape::default()
    });
    for stage in ["expand", "finetune"] {
        let output = match stage {
            "expand" => recipe.stage(stage, None, &Expand::default())?.output,
            _ => recipe.stage(stage, None, &Finetune::default())?.output,
        };
        Layout::of(&output, &descendant).with_context(|| format!("[{stage}]"))?;
    }
    Ok(())
}

/// What `--dry-run` prints.
pub fn describe(recipe: &Recipe) -> Result<String> {
    check_layouts(recipe)?;
    if recipe.has("bench") {
        return bench::describe(recipe);
    }
    condense::describe(&recipe.stage("condense", None, &Condense::default())?)
}

/// Initialises and trains the recipe's ancestor; returns its directory.
fn train_ancestor(recipe: &Recipe, out: &Path, options: Options) -> Result<PathBuf> {
    let settings: AncestorTable = recipe.stage("ancestor", None, &AncestorTable::default())?;
    let shape = ancestor_shape(settings.init, &settings.finetune);
    let start = out.join("ancestor-start");
    init::init(
        settings.method.as_deref().unwrap_or("default"),
        &shape,
        &start,
    )?;
    let dir = out.join("ancestor");
    finetune::finetune(&start, &settings.finetune, &dir, options)?;
    Ok(dir)
}

/// The ancestor's shape takes its frame from the data it is trained on, if from nothing else.
fn ancestor_shape(mut shape: Init, finetune: &Finetune) -> Init {
    if shape.data.is_none() && shape.from.is_none() {
        shape.data = finetune.training.data.clone();
    }
    shape
}
