//! `wave bench`: compares ways to initialise a model, over methods, sizes, data sets and seeds, with equal data,
//! epochs and batch order.
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

use crate::report::{self, Failure, Findings, Rates, Row};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use toml::Table;
use wave_artefacts::model::Model;
use wave_artefacts::templates;
use wave_run::context::Context;
use wave_run::data::{self, Data, DataPlan, Input};
use wave_run::error::request;
use wave_run::forecast::{Memory, Step};
use wave_run::inputs;
use wave_run::lock::Lock;
use wave_run::paths;
use wave_run::progress::Verbosity;
use wave_run::recipe::{Recipe, merge, to_table};
use wave_run::settings::{Condense, Finetune, Training};
use wave_stages::ancestor::{Ancestor, Ancestors};
use wave_stages::condense;
use wave_stages::finetune::{self, FinetunePlan, Options, Tuning};
use wave_stages::score;

mod artefacts;
mod cells;
mod frame;
mod grow;
mod similarity;
mod start;
mod table;

use artefacts::Artefacts;
use cells::{lock, run_cells};
pub use frame::Frame;
pub use table::{Component, Grid};

/// One training run.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The method's name.
    pub method: String,
    /// The data set's name; empty if there is only one.
    pub dataset: String,
    /// Number of blocks.
    pub depth: usize,
    /// Token width, in channels.
    pub width: usize,
    /// Seed.
    pub seed: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// In a learning-rate trial: number of held-out images, and epochs.
    pub trial: Option<(usize, f64)>,
}

impl Cell {
    /// File name of the cell, without extension.
    pub fn file_name(&self) -> String {
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
pub struct Bench<'a> {
    recipe: &'a Recipe,
    grid: Grid,
    frame: Frame,
    artefacts: Artefacts,
    ancestors: &'a Ancestors,
    out: &'a Path,
    lock: Option<&'a Lock>,
    options: Options,
    pretraining: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    contents: Mutex<BTreeMap<Option<String>, String>>,
}

/// Runs the grid of a recipe in a locked directory. Returns the output of `--json`.
///
/// # Errors
/// If the recipe is wrong, the bench is interrupted, or runs failed (after all others are done and
/// reported).
pub fn bench(recipe: &Recipe, out: &Path, lock: Option<&Lock>, options: &Options) -> Result<Value> {
    let grid = Grid::new(recipe)?;
    // One ancestor for all runs, so that its outputs are computed once.
    let ancestors = Ancestors::default();
    let frame = Frame::new(
        recipe,
        grid.bench.cache.as_deref(),
        &ancestors,
        &options.context,
    )?;
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
    let mut run = |cells: &[Cell]| -> Result<Vec<Row>> {
        let (rows, failed) = run_cells(&bench, cells, &cells_dir, options)?;
        failures.extend(failed);
        Ok(rows)
    };
    // Learning-rate trials: each method on held-out images, at one size.
    let trials = run(&bench.trials()?)?;
    let rates = bench.choose_rates(&trials)?;
    let rows = run(&bench.cells(&rates)?)?;
    if rows.is_empty()
        && let Some(Failure { cell, error }) = failures.first()
    {
        return Err(request(format!("every run failed; {cell}: {error}")));
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

/// Checks, before any training, that no method lacks an ancestor to condense; the error names the method.
pub fn check(recipe: &Recipe) -> Result<()> {
    let grid = Grid::new(recipe)?;
    let trained = recipe.has("ancestor");
    let condensing = grid.methods.iter().filter(|(_, m)| m.condenses());
    for (name, method) in condensing {
        let mut settings: Condense = recipe.stage("condense", Some(&method.condense))?;
        if trained || method.donor.is_some() {
            settings.ancestor.get_or_insert_default();
        }
        condense::check(&settings).with_context(|| format!("[bench.methods.{name}]"))?;
    }
    Ok(())
}

/// The chosen learning rates of each method and data set.
type Chosen<'a> = Vec<(&'a String, &'a String, Rates)>;

impl Bench<'_> {
    fn context(&self) -> &Context {
        &self.options.context
    }

    /// Checks that the output directory still belongs to this run.
    fn check(&self) -> Result<()> {
        self.lock.map_or(Ok(()), Lock::check)
    }

    /// `[finetune]`, overridden by the settings of the cell's data set, then by `table`.
    fn finetune_table(&self, cell: &Cell, table: &Table) -> Result<Finetune> {
        let dataset = self.grid.datasets.iter().find(|(n, _)| *n == cell.dataset);
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
        let mut settings = self.finetune_table(cell, &method.finetune)?;
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
            methods
                .filter(move |(_, m)| m.takes_data(dataset))
                .map(move |(method, _)| (method, dataset))
        })
    }

    /// A cell at the size of the learning-rate trials.
    fn tried(&self, method: &str, dataset: &str) -> Cell {
        let bench = &self.grid.bench;
        let (depth, width) = bench.tune_at.unwrap_or(bench.sizes[0]);
        Cell {
            method: method.into(),
            dataset: dataset.into(),
            depth,
            width,
            seed: 0,
            lr: finetune::DEFAULTS.lr,
            trial: Some((bench.tune_hold_out, bench.tune_epochs.unwrap_or(1.0))),
        }
    }

    /// The learning rate in the recipe, if given.
    fn given_rate(&self, method: &str, dataset: &str) -> Result<Option<f64>> {
        let cell = self.tried(method, dataset);
        let settings = self.finetune_table(&cell, &self.grid.method(method)?.finetune)?;
        let given = settings.training.optimisation.lr;
        if given.is_none() && self.grid.bench.learning_rates.is_empty() {
            return Ok(Some(finetune::DEFAULTS.lr));
        }
        Ok(given)
    }

    fn trials(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for (method, dataset) in self.pairs() {
            let borrows = self.grid.method(method)?.lr_of.is_some();
            if borrows || self.given_rate(method, dataset)?.is_some() {
                continue;
            }
            for &lr in &self.grid.bench.learning_rates {
                let cell = self.tried(method, dataset);
                cells.push(Cell { lr, ..cell });
            }
        }
        Ok(cells)
    }

    /// The best learning rate of each method on each data set.
    fn choose_rates(&self, trials: &[Row]) -> Result<Chosen<'_>> {
        let mut chosen = Chosen::new();
        for (method, dataset) in self.pairs() {
            let own = &self.grid.method(method)?.lr_of;
            let tried = own.as_ref().unwrap_or(method);
            let (lr, grid) = match self.given_rate(tried, dataset)? {
                Some(lr) => (lr, Vec::new()),
                None => {
                    let grid: Vec<(f64, f64)> = trials
                        .iter()
                        .filter(|row| (&row.method, &row.dataset) == (tried, dataset))
                        .map(|row| (row.lr, row.top1))
                        .collect();
                    let best = grid.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
                    (best.map_or(finetune::DEFAULTS.lr, |(lr, _)| lr), grid)
                }
            };
            let name = match dataset.as_str() {
                "" => method.clone(),
                dataset => format!("{method} on {dataset}"),
            };
            let rates = Rates {
                method: name,
                lr,
                grid,
            };
            chosen.push((method, dataset, rates));
        }
        Ok(chosen)
    }

    fn cells(&self, rates: &Chosen) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for &(depth, width) in &self.grid.bench.sizes {
            for (method, dataset, rates) in rates {
                if !self.grid.method(method)?.takes_size(&(depth, width)) {
                    continue;
                }
                let cell = |&seed| Cell {
                    method: method.to_string(),
                    dataset: dataset.to_string(),
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

    /// Digest of the data that cells train on, computed once for each data set.
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
        let stage = if method.start == table::TEMPLATES {
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
            let ancestor = self.ancestors.get(
                self.frame.ancestor.as_deref(),
                &self.frame.classes,
                self.context(),
            )?;
            text += ancestor.as_ref().map_or("", |ancestor| &ancestor.digest);
            let named = ancestor.as_ref().and_then(|a| a.named.as_ref());
            text += named.map_or("", |named| &named.digest);
        }
        Ok(wave_hub::sha256_hex(text.as_bytes()))
    }

    fn run(&self, cell: &Cell, fingerprint: String) -> Result<Row> {
        let began = std::time::Instant::now();
        let settings = self.finetune(cell)?;
        let start = start::start(self, cell, &settings)?;
        let mut model = start.model;
        let plan = FinetunePlan::new(&settings)?;
        let data = finetune::open_data(&mut model, &plan, self.context())?;
        data.tests.check()?;
        let resolved = plan.training.resolve(&data)?;
        let memory = Memory::of_network(&model.network, resolved.mode);
        Step::new(memory, &data, &resolved)?.check()?;
        let weights = model.network.prepare(&model.weights)?;
        let before = score::score(&model.network, &weights, &data.tests)?;
        let (named, classes) = (plan.given.ancestor.as_deref(), &plan.given.zero_shot);
        let ancestor = self.ancestors.get(named, classes, self.context())?;
        let cache = plan.open_cache(ancestor.as_deref(), &data)?;
        let tuning = Tuning {
            plan: &plan,
            resolved: &resolved,
            data: &data,
            ancestor: ancestor.as_deref(),
            cache: cache.as_ref(),
            every_epoch: cell.trial.is_none(),
        };
        let outcome = tuning.tune(&mut model, &cell.file_name(), None, &self.options)?;
        data.tell_broken();
        let mut curve = vec![(0.0, before.top1)];
        curve.extend(&outcome.curve);
        Ok(Row {
            method: cell.method.clone(),
            dataset: cell.dataset.clone(),
            depth: cell.depth,
            width: cell.width,
            seed: cell.seed,
            epochs: resolved.epochs(&data),
            top1: outcome.scores.unwrap_or(before).top1, // there are tests
            start_top1: before.top1,
            transferred_parameters: start.transferred,
            stored_parameters: start.stored,
            scalers_fitted: start.fitted,
            shared_epochs: start.shared_epochs,
            own_epochs: start.own_epochs,
            lr: cell.lr,
            curve,
            seconds: (began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            fingerprint,
        })
    }

    /// Lock of a pretrained model, shared by trials of several learning rates.
    fn pretraining(&self, name: &str) -> Arc<Mutex<()>> {
        let mut all = lock(&self.pretraining);
        all.entry(name.into()).or_default().clone()
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
                let (channels, classes) =
                    (self.frame.transform.channels, self.frame.label_names.len());
                let epochs = |dir| Ok(templates::read(dir)?.config.provenance.all_epochs());
                let dir = self.artefacts.templates(name, 0);
                let epochs: Result<Vec<f64>> = dir.and_then(epochs);
                let plans = condense::plans(&settings)?.into_iter();
                for (plan, epochs) in plans.zip(epochs.unwrap_or_default()) {
                    let plan = plan.on(channels, classes);
                    work += epochs * self.frame.images as f64 * plan.mean_multiply_adds();
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

    fn report(&self, chosen: &Chosen, rows: &[Row], failures: &[Failure]) -> Result<String> {
        let mut templates = Vec::new();
        for dir in self.artefacts.template_dirs() {
            let config = templates::read(dir)?.config;
            let name = dir.file_name().map(|n| n.to_string_lossy().into_owned());
            let accuracies = config.accuracies.iter();
            let accuracies = accuracies.map(|a| (a.depth, a.width, a.top1)).collect();
            templates.push((name.unwrap_or_default(), accuracies));
        }
        let ancestor = self.frame.ancestor.as_deref().map(Path::new);
        let ancestor = ancestor.and_then(|dir| Model::read(dir, self.context()).ok());
        let ancestor = ancestor.as_ref();
        let ancestor_epochs = ancestor.and_then(|model| model.provenance["epochs"].as_f64());
        let work = self.shared_work(ancestor)?;
        let Bench { grid, frame, .. } = self;
        let shape = |depth, width| frame.auxiliary.with_size(depth, width);
        let of_epoch =
            |(depth, width)| frame.images as f64 * shape(depth, width).multiply_adds() as f64;
        let bench = grid.bench.clone();
        let findings = Findings {
            name: self.recipe.name.clone(),
            methods: grid.methods.iter().map(|(name, _)| name.clone()).collect(),
            subject: grid.subject().to_owned(),
            sizes: bench.sizes,
            datasets: grid.datasets.iter().map(|(name, _)| name.clone()).collect(),
            parameters: &|depth, width| shape(depth, width).parameter_count(),
            seeds: bench.seeds,
            condensations: bench.condensations,
            rates: chosen.iter().map(|(_, _, rates)| rates.clone()).collect(),
            rows: rows.to_vec(),
            failures: failures.to_vec(),
            ablations: bench.ablations,
            break_even: bench.break_even,
            templates,
            ancestor_epochs: ancestor_epochs.unwrap_or(0.0),
            shared_work: &|method, size| work[&method.map(str::to_owned)] / of_epoch(size),
        };
        report::write(&findings, self.out)
    }
}
