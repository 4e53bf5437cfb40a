//! `wave run`: every stage that a recipe names, in order; and, with a `[compare]` table, ways to
//! start models of several sizes, side by side.
//!
//! The output directory holds one directory per stage and a report:
//!
//! ```text
//! OUT/ancestor/          [ancestor]: a model, initialised and trained
//! OUT/templates/NAME-C/  [condense]: one for each condensation C of each method that has its own
//! OUT/cells/*.json       [compare]: one for each method, size and seed
//! OUT/report.md, rows.json, *.svg
//! OUT/run/lock           locked while a process works there
//! ```
//!
//! With `--resume` nothing that is complete runs again.

use crate::ancestor::Ancestors;
use crate::compare::{self, Cell, Compare};
use crate::condense;
use crate::elastic;
use crate::error::request;
use crate::finetune::{self, Options};
use crate::layout::{Format, Layout};
use crate::model::Network;
use crate::progress::Verbosity;
use crate::recipe::{Recipe, merge};
use crate::settings::{Condense, Expand, Finetune, Init};
use crate::train::INTERRUPTED;
use crate::{init, report, run_dir};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    let _lock = run_dir::lock(out)?;
    let text = toml::to_string(&recipe.table)?;
    wave_hub::write_atomic(&out.join("recipe.toml"), text.as_bytes())?;
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
    if recipe.has("compare") {
        return compare_starts(&recipe, out, options);
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
            "the recipe names no stage; add [condense], [expand], [finetune] or [compare]",
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
    let settings: Condense = recipe.stage("condense", None, &Condense::default())?;
    let mut text = condense::describe(&settings)?;
    if recipe.has("compare") {
        let compare = Compare::new(recipe)?;
        text += &format!(
            "{} cells: {} methods, {} sizes, seeds {:?}\n",
            compare.methods.len() * compare.sizes.len() * compare.seeds.len(),
            compare.methods.len(),
            compare.sizes.len(),
            compare.seeds
        );
    }
    Ok(text)
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

fn compare_starts(recipe: &Recipe, out: &Path, options: Options) -> Result<Value> {
    let compare = Compare::new(recipe)?;
    let say = |text: String| {
        if options.verbosity > Verbosity::Quiet {
            eprintln!("{text}");
        }
    };
    // One ancestor for all, so that its outputs are computed once.
    let ancestors = Ancestors::default();
    let condensed = condense_all(recipe, &compare, &ancestors, out, options)?;
    let quiet = Options {
        verbosity: Verbosity::Quiet,
        ..options
    };
    let bench = compare::Bench::new(recipe, &compare, condensed, &ancestors, quiet)?;
    let cells_dir = out.join("cells");
    wave_hub::prepare_out(&cells_dir)?;

    // Learning rates, each method on held-out images at one size.
    let tuning = bench.tuning_cells();
    let tuned = run_cells(&bench, &tuning, &cells_dir, compare.jobs, options, &say)?;
    let rates = bench.choose_rates(&tuned);
    for (method, choice) in &rates {
        say(format!("learning rate of {method}: {}", choice.describe()));
    }
    let cells = bench.cells(&rates);
    let rows = run_cells(&bench, &cells, &cells_dir, compare.jobs, options, &say)?;
    let text = write_report(recipe, &compare, &bench, &rates, &rows, out)?;
    let rows: Vec<Value> = rows
        .into_iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()?;
    wave_hub::write_json(&out.join("rows.json"), &rows)?;
    Ok(json!({ "out": out, "rows": rows, "report": text }))
}

fn write_report(
    recipe: &Recipe,
    compare: &Compare,
    bench: &compare::Bench,
    rates: &BTreeMap<String, compare::Choice>,
    rows: &[compare::Row],
    out: &Path,
) -> Result<String> {
    let methods: Vec<String> = compare.methods.keys().cloned().collect();
    let rows: Vec<report::Row> = rows
        .iter()
        .map(|row| report::Row {
            method: row.method.clone(),
            dataset: String::new(),
            depth: row.depth,
            width: row.width,
            seed: row.seed,
            epochs: row.epochs,
            top1: row.top1,
            start_top1: row.start_top1,
            transferred_parameters: row.transferred_parameters,
            stored_parameters: 0,
            scalers_fitted: row.scalers_fitted,
            shared_epochs: 0.0,
            own_epochs: 0.0,
            lr: row.lr,
            curve: row.curve.clone(),
            seconds: row.seconds,
            fingerprint: row.fingerprint.clone(),
        })
        .collect();
    let rates: Vec<report::Rates> = rates
        .iter()
        .map(|(method, choice)| report::Rates {
            method: method.clone(),
            lr: choice.lr,
            grid: choice.grid.clone(),
        })
        .collect();
    // Several methods may start from the same templates.
    let dirs: BTreeSet<&PathBuf> = methods.iter().flat_map(|m| bench.templates(m)).collect();
    let mut templates = Vec::new();
    for dir in dirs {
        let config = elastic::read(dir)?.config;
        let accuracies = config.accuracies.iter();
        let name = dir.file_name().unwrap_or_default();
        templates.push((
            name.to_string_lossy().into_owned(),
            accuracies.map(|a| (a.depth, a.width, a.top1)).collect(),
        ));
    }
    report::write(
        &report::Findings {
            name: &recipe.name,
            methods: &methods,
            subject: methods.iter().map(String::as_str).find(|m| *m == "wave"),
            sizes: &compare.sizes,
            datasets: &[String::new()],
            parameters: &|depth, width| bench.parameters(depth, width),
            seeds: &compare.seeds,
            condensations: compare.condensations,
            rates: &rates,
            rows: &rows,
            failures: &[],
            ablations: &BTreeMap::new(),
            break_even: &[],
            templates: &templates,
            ancestor_epochs: 0.0,
        },
        out,
    )
}

/// Condenses for every method that starts from templates: equal settings once, and as many times
/// over as the recipe asks, with other seeds.
fn condense_all(
    recipe: &Recipe,
    compare: &Compare,
    ancestors: &Ancestors,
    out: &Path,
    options: Options,
) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut jobs: Vec<(String, Condense, PathBuf)> = Vec::new();
    let mut by_method = BTreeMap::new();
    for (name, method) in &compare.methods {
        if method.start != "templates" {
            continue;
        }
        if let Some(dir) = &method.templates {
            by_method.insert(name.clone(), vec![PathBuf::from(dir)]);
            continue;
        }
        let mut settings: Condense =
            recipe.stage("condense", Some(&method.condense), &Condense::default())?;
        let seed = settings.training.seed.unwrap_or(0);
        settings.training.seed = Some(seed);
        let twin = jobs.iter().find(|(_, other, _)| other == &settings);
        let dirs: Vec<PathBuf> = match twin {
            Some((owner, _, _)) => by_method[owner].clone(),
            None => (0..compare.condensations)
                .map(|c| out.join("templates").join(format!("{name}-{c}")))
                .collect(),
        };
        if twin.is_none() {
            for (c, dir) in dirs.iter().enumerate() {
                let mut settings = settings.clone();
                settings.training.seed = Some(seed + c as u64);
                jobs.push((name.clone(), settings, dir.clone()));
            }
        }
        by_method.insert(name.clone(), dirs);
    }
    parallel(&jobs, compare.jobs, |(_, settings, dir)| {
        condense::condense(&recipe.name, settings, ancestors, dir, options)?;
        Ok(())
    })?;
    for dirs in by_method.values() {
        for dir in dirs {
            elastic::read(dir)?;
        }
    }
    Ok(by_method)
}

/// Runs cells that are not yet on disk; returns all, in order.
fn run_cells(
    bench: &compare::Bench,
    cells: &[Cell],
    dir: &Path,
    jobs: usize,
    options: Options,
    say: &(dyn Fn(String) + Sync),
) -> Result<Vec<compare::Row>> {
    let done = AtomicUsize::new(0);
    let rows: Mutex<BTreeMap<usize, compare::Row>> = Mutex::new(BTreeMap::new());
    let numbered: Vec<(usize, &Cell)> = cells.iter().enumerate().collect();
    parallel(&numbered, jobs, |(i, cell)| {
        let path = dir.join(format!("{}.json", cell.file_name()));
        let fingerprint = bench.fingerprint(cell)?;
        let saved: Option<compare::Row> = options
            .resume
            .then(|| std::fs::read_to_string(&path).ok())
            .flatten()
            .and_then(|text| serde_json::from_str(&text).ok())
            .filter(|row: &compare::Row| row.fingerprint == fingerprint);
        let row = match saved {
            Some(row) => row,
            None => {
                let row = bench
                    .run(cell, fingerprint)
                    .with_context(|| cell.file_name())?;
                wave_hub::write_json(&path, &row)?;
                let n = done.fetch_add(1, Ordering::Relaxed) + 1;
                say(format!(
                    "[{n}/{}] {}: top-1 {:.2} %",
                    cells.len(),
                    cell.file_name(),
                    100.0 * row.top1
                ));
                row
            }
        };
        rows.lock()
            .unwrap_or_else(|e| e.into_inner())
            .insert(*i, row);
        Ok(())
    })?;
    Ok(rows
        .into_inner()
        .unwrap_or_else(|e| e.into_inner())
        .into_values()
        .collect())
}

/// Calls `work` on every item, on `jobs` threads that share the cores; the first failure stops
/// the rest from starting.
fn parallel<T: Sync>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let jobs = jobs.min(items.len()).max(1);
    if jobs == 1 {
        return items.iter().try_for_each(work);
    }
    let threads = (rayon::current_num_threads() / jobs).max(1);
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                let fail = |error| {
                    failure
                        .lock()
                        .unwrap_or_else(|e| e.into_inner())
                        .get_or_insert(error);
                };
                let pool = match pool {
                    Ok(pool) => pool,
                    Err(error) => return fail(error.into()),
                };
                while failure.lock().unwrap_or_else(|e| e.into_inner()).is_none()
                    && !INTERRUPTED.load(Ordering::Relaxed)
                {
                    let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    if let Err(error) = pool.install(|| work(item)) {
                        fail(error);
                    }
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(error) => Err(error),
        None if INTERRUPTED.load(Ordering::Relaxed) => {
            Err(wave_train::TrainError::Interrupted(0).into())
        }
        None => Ok(()),
    }
}
