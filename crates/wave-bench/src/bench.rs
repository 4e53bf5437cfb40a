//! The trainings of a grid, with equal data, epochs and batch order.
//!
//! ```text
//! OUT/donors/NAME-C/      models that methods take weights from
//! OUT/templates/NAME-C/   one for each condensation C of each method that has its own
//! OUT/pretrained/         models pretrained individually
//! OUT/cells/*.json        one for each run of the grid, with a hash of all that determines it
//! OUT/report.md, rows.json, *.svg
//! ```
//!
//! Completed runs are not repeated. A failed run is reported, and the others continue.

pub use crate::grid::Grid;
use crate::grid::{self, Method, TEMPLATES};
use crate::report::{self, Failure, Findings, Rates, Row};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use toml::Table;
use wave_artefacts::model::Model;
use wave_artefacts::templates;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::data::{self, Data, DataPlan, Input};
use wave_run::inputs;
use wave_run::lock::Lock;
use wave_run::paths;
use wave_run::progress::Verbosity;
use wave_run::recipe::{Recipe, merge, narrow, to_table};
use wave_run::settings::{Condense, Finetune, Init, Training};
use wave_run::train::{self, TrainRun, TrainingPlan};
use wave_stages::ancestor::{Ancestor, Ancestors};
use wave_stages::condense;
use wave_stages::expand::ExpandPlan;
use wave_stages::finetune::{self, FinetunePlan, Options, Prepared, Tuning};
use wave_stages::score;

mod artefacts;
mod cells;
mod frame;
mod grow;
mod similarity;
mod start;

use artefacts::Artefacts;
use cells::{lock, run_cells};
use frame::Frame;

/// One training run.
#[derive(Clone, Debug)]
struct Cell {
    method: String,
    /// Empty if there is only one.
    dataset: String,
    depth: usize,
    width: usize,
    seed: u64,
    /// Peak learning rate.
    lr: f64,
    /// In a learning-rate trial: number of held-out images, and epochs.
    trial: Option<(usize, f64)>,
}

impl Cell {
    /// File name of the cell, without extension.
    fn file_name(&self) -> String {
        let mut name = self.of_size();
        if !self.dataset.is_empty() {
            name += &format!("-{}", self.dataset);
        }
        match self.trial {
            Some(_) => format!("tune-{name}-lr{:e}", self.lr),
            None => name,
        }
    }

    /// Method, size and seed.
    fn of_size(&self) -> String {
        let size = format!("{}x{}", self.depth, self.width);
        format!("{}-{size}-s{}", self.method, self.seed)
    }
}

/// Inputs shared by all runs of the grid.
struct Bench<'a> {
    recipe: &'a Recipe,
    grid: Grid,
    frame: Frame,
    artefacts: Artefacts,
    ancestors: &'a Ancestors,
    out: &'a Path,
    lock: Option<&'a Lock>,
    options: Options,
    /// Locks of pretrained models, which trials of several learning rates share.
    pretraining: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// Digests of the data that cells train on, computed once for each data set.
    contents: Mutex<BTreeMap<Option<String>, String>>,
}

/// Runs the grid of a recipe in a locked directory. Returns the output of `--json`. If runs fail, the error comes
/// after all others are done and reported.
pub fn bench(recipe: &Recipe, out: &Path, lock: Option<&Lock>, options: &Options) -> Result<Value> {
    let grid = Grid::new(recipe)?;
    // One ancestor for all runs, so that its outputs are computed once.
    let ancestors = Ancestors::default();
    let cache = grid.bench.cache.as_deref();
    let frame = Frame::new(recipe, cache, &ancestors, &options.context)?;
    let artefacts = Artefacts::make(recipe, &grid, &frame, &ancestors, out, options)?;
    let cells_dir = out.join("cells");
    wave_hub::prepare_out(&cells_dir)?;
    let bench = Bench {
        recipe,
        grid,
        frame,
        artefacts,
        ancestors: &ancestors,
        out,
        lock,
        options: Options {
            verbosity: Verbosity::Quiet,
            profile: false, // trainings run side by side, and share its counters
            ..options.clone()
        },
        pretraining: Mutex::default(),
        contents: Mutex::default(),
    };
    let mut failures = Vec::new();
    // Learning-rate trials: each method on held-out images, at one size.
    let trials = run_cells(&bench, &bench.trials()?, &cells_dir, options, &mut failures)?;
    let rates = bench.choose_rates(&trials)?;
    let cells = bench.cells(&rates)?;
    let rows = run_cells(&bench, &cells, &cells_dir, options, &mut failures)?;
    if rows.is_empty()
        && let Some(Failure { cell, error }) = failures.first()
    {
        refuse!("every run failed; {cell}: {error}");
    }
    bench.check()?;
    let report = bench.report(&rates, &rows, &failures)?;
    wave_hub::write_json(&out.join("rows.json"), &rows)?;
    if !failures.is_empty() {
        let names: Vec<&str> = failures.iter().map(|f| f.cell.as_str()).collect();
        anyhow::bail!(
            "{} of the runs failed: {}; {} lists the errors and the other runs",
            failures.len(),
            names.join(", "),
            out.join("report.md").display()
        );
    }
    Ok(json!({ "out": paths::text(out), "rows": rows, "report": report }))
}

/// The output of `--dry-run`, including the condensation unless all methods use existing templates. `ancestor` is the
/// one that the recipe trains.
pub fn describe(
    recipe: &Recipe,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<String> {
    let grid = Grid::new(recipe)?;
    let mut text = String::new();
    if grid.methods.iter().any(|(_, method)| method.condenses()) {
        let settings: Condense = recipe.stage("condense", None)?;
        text = condense::describe(&settings, ancestor, context)?;
    }
    let sizes = grid.bench.sizes.len();
    text += &format!(
        "{} runs: {} methods, {sizes} sizes, {} data sets, seeds {:?}\n",
        grid.runs(),
        grid.methods.len(),
        grid.datasets.len(),
        grid.bench.seeds
    );
    Ok(text)
}

/// Checks, before any training, the settings of all trainings, and that no method lacks an ancestor to condense; the
/// error names the method or donor.
pub fn check(recipe: &Recipe) -> Result<()> {
    let grid = Grid::new(recipe)?;
    let bench = &grid.bench;
    for lr in &bench.learning_rates {
        let mut trial = Table::new();
        trial.insert("lr".into(), (*lr).into());
        trial.insert("hold_out".into(), (bench.tune_hold_out as i64).into());
        trial.insert("epochs".into(), bench.tune_epochs.into());
        check_training(recipe, &trial)
            .context("[bench]: learning_rates, tune_hold_out or tune_epochs")?;
    }
    for (name, method) in &grid.methods {
        let checked = check_method(recipe, &grid, method);
        checked.with_context(|| format!("[bench.methods.{name}]"))?;
    }
    for (name, donor) in &grid.bench.donors {
        let checked = check_training(recipe, &donor.finetune);
        checked.with_context(|| format!("[bench.donors.{name}]"))?;
    }
    check_sizes(recipe, bench)
}

/// Checks the sizes of all models and of trained donors.
fn check_sizes(recipe: &Recipe, bench: &grid::Bench) -> Result<()> {
    let condense: Condense = recipe.stage("condense", None)?;
    let auxiliary = condense::plans(&condense)?.remove(0).auxiliary;
    let fits = |(depth, width)| auxiliary.with_size(depth, width).validate();
    for size in &bench.sizes {
        fits(*size).with_context(|| format!("[bench]: size {size:?}"))?;
    }
    for (name, donor) in &bench.donors {
        if let Some(size) = donor.depth.zip(donor.width) {
            fits(size).with_context(|| format!("[bench.donors.{name}]"))?;
        }
    }
    Ok(())
}

fn check_method(recipe: &Recipe, grid: &Grid, method: &Method) -> Result<()> {
    if method.condenses() {
        let mut settings: Condense = recipe.stage("condense", Some(&method.condense))?;
        if recipe.has("ancestor") || method.donor.is_some() {
            settings.ancestor.get_or_insert_default();
        }
        condense::check(&settings)?;
    }
    match method.start == TEMPLATES {
        true => _ = ExpandPlan::new(&recipe.stage("expand", Some(&method.expand))?)?,
        false => _ = recipe.stage::<Init>("init", Some(&method.init))?,
    }
    for (_, dataset) in &grid.datasets {
        let mut changes = dataset.clone();
        merge(&mut changes, &method.finetune);
        check_training(recipe, &changes)?;
    }
    if let (Some(table), Some(own)) = (method.operator_training(), &method.operator) {
        let checked = check_training(recipe, &table);
        let checked = checked.and_then(|()| narrow::<Training>(own, "LiGO's operator"));
        checked.context("operator")?;
    }
    let sizes = method.sizes.as_ref().unwrap_or(&grid.bench.sizes);
    for mut table in sizes.iter().filter_map(|size| method.pretraining(*size)) {
        table.remove("distil"); // read by the bench
        check_training(recipe, &table).context("pretrain")?;
    }
    Ok(())
}

/// Checks `[finetune]` with changes.
fn check_training(recipe: &Recipe, changes: &Table) -> Result<()> {
    let settings: Finetune = recipe.stage("finetune", Some(changes))?;
    TrainingPlan::new(&settings.training, finetune::DEFAULTS)?;
    Ok(())
}

impl Bench<'_> {
    fn context(&self) -> &Context {
        &self.options.context
    }

    /// Checks that the output directory still belongs to this run.
    fn check(&self) -> Result<()> {
        self.lock.map_or(Ok(()), Lock::check)
    }

    /// `[finetune]`, overridden by the settings of a data set, then by `table`.
    fn finetune_table(&self, dataset: &str, table: &Table) -> Result<Finetune> {
        let dataset = self.grid.datasets.iter().find(|(name, _)| name == dataset);
        let mut merged = dataset.map(|(_, t)| t.clone()).unwrap_or_default();
        merge(&mut merged, table);
        self.recipe.stage("finetune", Some(&merged))
    }

    /// Opens the data of a training, preprocessed for the models of the grid.
    fn open_data(&self, training: &Training) -> Result<Data> {
        let input = Input::Like(self.frame.transform.clone());
        Data::open(&DataPlan::new(training)?, input, self.context())
    }

    fn finetune(&self, cell: &Cell) -> Result<Finetune> {
        let method = self.grid.method(&cell.method)?;
        let mut settings = self.finetune_table(&cell.dataset, &method.finetune)?;
        if method.distil {
            self.frame.distil(&mut settings)?;
        }
        let training = &mut settings.training.optimisation;
        training.seed = Some(cell.seed);
        training.lr = Some(cell.lr);
        if let Some((held_out, epochs)) = cell.trial {
            settings.training.images.hold_out = Some(held_out);
            training.epochs = Some(epochs);
            training.steps = None;
        }
        Ok(settings)
    }

    /// Pairs of method and data set in the recipe.
    fn pairs(&self) -> impl Iterator<Item = (&String, &String)> {
        self.grid.datasets.iter().flat_map(|(dataset, _)| {
            let methods = self.grid.methods.iter();
            let methods = methods.filter(move |(_, m)| m.takes_data(dataset));
            methods.map(move |(method, _)| (method, dataset))
        })
    }

    /// The learning rate in the recipe, if given.
    fn given_rate(&self, method: &str, dataset: &str) -> Result<Option<f64>> {
        let settings = self.finetune_table(dataset, &self.grid.method(method)?.finetune)?;
        let given = settings.training.optimisation.lr;
        if given.is_none() && self.grid.bench.learning_rates.is_empty() {
            return Ok(Some(finetune::DEFAULTS.lr));
        }
        Ok(given)
    }

    fn trials(&self) -> Result<Vec<Cell>> {
        let bench = &self.grid.bench;
        let mut cells: Vec<Cell> = Vec::new();
        for (method, dataset) in self.pairs() {
            // On a data set that only borrowers run on, the lender is tried for them.
            let borrows = &self.grid.method(method)?.lr_of;
            let method = borrows.as_ref().unwrap_or(method);
            let mut tried = cells.iter();
            if tried.any(|cell| (&cell.method, &cell.dataset) == (method, dataset))
                || self.given_rate(method, dataset)?.is_some()
            {
                continue;
            }
            let lender = self.grid.method(method)?;
            let wanted = bench.tune_at.filter(|size| lender.takes_size(size));
            let own = lender.sizes.as_ref().unwrap_or(&bench.sizes);
            let (depth, width) = wanted.unwrap_or(own[0]);
            cells.extend(bench.learning_rates.iter().map(|&lr| Cell {
                method: method.clone(),
                dataset: dataset.clone(),
                depth,
                width,
                seed: 0,
                lr,
                trial: Some((bench.tune_hold_out, bench.tune_epochs)),
            }));
        }
        Ok(cells)
    }

    /// The best learning rate of each method on each data set, without those whose trials all failed: no other rate
    /// compares.
    fn choose_rates(&self, trials: &[Row]) -> Result<Vec<Rates>> {
        let mut chosen = Vec::new();
        for (method, dataset) in self.pairs() {
            let own = &self.grid.method(method)?.lr_of;
            let tried = own.as_ref().unwrap_or(method);
            let is_own = |row: &&Row| (&row.method, &row.dataset) == (tried, dataset);
            // Empty if the recipe gives the rate.
            let grid = trials.iter().filter(is_own).map(|row| (row.lr, row.top1));
            let grid: Vec<(f64, f64)> = grid.collect();
            let best = grid.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let best = best.map(|(lr, _)| *lr);
            let Some(lr) = self.given_rate(tried, dataset)?.or(best) else {
                continue;
            };
            chosen.push(Rates {
                method: method.clone(),
                dataset: dataset.clone(),
                lr,
                grid,
            });
        }
        Ok(chosen)
    }

    fn cells(&self, rates: &[Rates]) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for &(depth, width) in &self.grid.bench.sizes {
            for rates in rates {
                if !self.grid.method(&rates.method)?.takes_size(&(depth, width)) {
                    continue;
                }
                let cell = |&seed| Cell {
                    method: rates.method.clone(),
                    dataset: rates.dataset.clone(),
                    depth,
                    width,
                    seed,
                    lr: rates.lr,
                    trial: None,
                };
                cells.extend(self.grid.bench.seeds.iter().map(cell));
            }
        }
        Ok(cells)
    }

    fn content(&self, spec: &Option<String>) -> Result<String> {
        let mut all = lock(&self.contents);
        if let Some(content) = all.get(spec) {
            return Ok(content.clone());
        }
        let content = inputs::content(&data::open(spec.as_deref(), self.context())?);
        all.insert(spec.clone(), content.clone());
        Ok(content)
    }

    /// Hash of everything that determines a cell's row.
    fn fingerprint(&self, cell: &Cell) -> Result<String> {
        let method = self.grid.method(&cell.method)?;
        // Leave out the ancestor's path; its digest is added below.
        let mut settings = self.finetune(cell)?;
        settings.ancestor = None;
        settings.outputs.cache = None;
        let mut text = format!(
            "{} {cell:?} threads {} {}{}",
            env!("CARGO_PKG_VERSION"),
            rayon::current_num_threads(),
            toml::to_string(&to_table(&settings)?)?,
            toml::to_string(&to_table(method)?)?
        );
        let fresh = method.fresh_seed(cell.seed);
        if fresh != cell.seed {
            text += &format!("fresh {fresh} ");
        }
        text += &self.content(&settings.training.images.data)?;
        // Fine-tuning may override what the trainings before it take from [finetune].
        let operator = method.operator_training();
        let operator = operator.map(|table| self.finetune_table(&cell.dataset, &table));
        let before = [start::pretraining(self, cell)?, operator.transpose()?];
        for mut settings in before.into_iter().flatten() {
            settings.ancestor = None;
            settings.outputs.cache = None;
            text += &toml::to_string(&to_table(&settings)?)?;
            text += &self.content(&settings.training.images.data)?;
        }
        let stage = if method.start == TEMPLATES {
            let dir = self.artefacts.templates(&cell.method, cell.seed)?;
            for file in ["templates.safetensors", "config.json"] {
                text += &wave_hub::sha256_file(&dir.join(file))?;
            }
            "expand"
        } else {
            let frame = &self.frame;
            let shape = frame.auxiliary.with_size(cell.depth, cell.width);
            text += &format!("{shape:?} {:?} {:?}", frame.transform, frame.label_names);
            "init"
        };
        if let Some(table) = self.recipe.table.get(stage) {
            text += &table.to_string();
        }
        for donor in method.donor.iter().chain(&method.resembles) {
            text += &Model::digest(self.artefacts.donor_dir(donor, cell.seed)?)?;
        }
        if method.distils() {
            let (name, classes) = (self.frame.ancestor.as_deref(), &self.frame.classes);
            let ancestor = self.ancestors.get(name, classes, self.context())?;
            text += ancestor.as_ref().map_or("", |ancestor| &ancestor.digest);
            let named = ancestor.as_ref().and_then(|a| a.named.as_ref());
            text += named.map_or("", |named| &named.digest);
        }
        Ok(wave_hub::sha256_hex(text.as_bytes()))
    }

    fn run(&self, cell: &Cell, fingerprint: String) -> Result<Row> {
        let began = std::time::Instant::now();
        let settings = self.finetune(cell)?;
        let (model, costs) = start::start(self, cell, &settings)?;
        let plan = FinetunePlan::new(&settings)?;
        let (named, classes) = (plan.given.ancestor.as_deref(), &plan.given.zero_shot);
        let ancestor = self.ancestors.get(named, classes, self.context())?;
        let prepared = Prepared::new(model, ancestor, plan, self.context())?;
        let (data, resolved) = (&prepared.data, &prepared.resolved);
        data.tests.check()?;
        prepared.step.check()?;
        let network = &prepared.model.network;
        let weights = network.prepare(&prepared.model.weights)?;
        let before = score::score(network, &weights, &data.tests)?;
        let cache = prepared.cache()?;
        let tuning = Tuning::new(&prepared, cache.as_ref(), self.options.verbosity)?;
        let train_run = TrainRun {
            label: &cell.file_name(),
            data,
            resolved,
            every_epoch: cell.trial.is_none(),
        };
        let outcome = train::train(&tuning, &train_run, None, &self.options)?;
        data.tell_broken();
        let mut curve = vec![(0.0, before.top1)];
        curve.extend(&outcome.curve);
        Ok(Row {
            method: cell.method.clone(),
            dataset: cell.dataset.clone(),
            depth: cell.depth,
            width: cell.width,
            seed: cell.seed,
            epochs: outcome.epochs,
            top1: outcome.scores.unwrap_or(before).top1, // there are tests
            start_top1: before.top1,
            lr: cell.lr,
            curve,
            seconds: (began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            fingerprint,
            ..costs
        })
    }

    /// Compute cost in images times multiply-adds: of each method's artefacts for all sizes and, under `None`, of the
    /// ancestor's training.
    fn shared_work(&self, ancestor: Option<&Model>) -> Result<BTreeMap<Option<String>, f64>> {
        let mut all = BTreeMap::new();
        for (name, method) in &self.grid.methods {
            let donors = method.donor.iter().chain(&method.resembles);
            let mut work = 0.0;
            for donor in donors {
                // A failed donor has no rows either.
                work += self.donor_work(donor).unwrap_or(0.0);
            }
            if method.condenses() {
                let settings: Condense = self.recipe.stage("condense", Some(&method.condense))?;
                let frame = &self.frame;
                let epochs = |dir| Ok(templates::read(dir)?.config.all_epochs());
                let epochs: Result<Vec<f64>> = self.artefacts.templates(name, 0).and_then(epochs);
                let plans = condense::plans(&settings)?.into_iter();
                for (plan, epochs) in plans.zip(epochs.unwrap_or_default()) {
                    let plan = plan.on(frame.transform.channels, frame.label_names.len());
                    work += epochs * frame.images as f64 * plan.mean_multiply_adds();
                }
            }
            all.insert(Some(name.clone()), work);
        }
        let work = ancestor.and_then(|model| {
            let images = model.provenance["images_seen"].as_f64()?;
            Some(images * model.network.multiply_adds()? as f64)
        });
        all.insert(None, work.unwrap_or(0.0));
        Ok(all)
    }

    fn report(&self, rates: &[Rates], rows: &[Row], failures: &[Failure]) -> Result<String> {
        let ancestor = self.frame.ancestor.as_deref().map(Path::new);
        let ancestor = ancestor.and_then(|dir| Model::read(dir, self.context()).ok());
        let ancestor = ancestor.as_ref();
        let ancestor_epochs = ancestor.and_then(|model| model.provenance["epochs"].as_f64());
        let work = self.shared_work(ancestor)?;
        let frame = &self.frame;
        let shape = |depth, width| frame.auxiliary.with_size(depth, width);
        let of_epoch =
            |(depth, width)| frame.images as f64 * shape(depth, width).multiply_adds() as f64;
        let findings = Findings {
            name: &self.recipe.name,
            grid: self.grid.clone(),
            parameters: &|depth, width| shape(depth, width).parameter_count(),
            rates,
            rows: rows.to_vec(),
            failures,
            ancestor_epochs: ancestor_epochs.unwrap_or(0.0),
            shared_work: &|method, size| work[&method.map(str::to_owned)] / of_epoch(size),
        };
        report::write(&findings, self.out)
    }
}
