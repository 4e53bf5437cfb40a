//! Ways to start a model, side by side: methods x sizes x seeds.

use crate::ancestor::Ancestors;
use crate::condense::{self, CondensePlan};
use crate::data::{Data, Input};
use crate::elastic::{self, TemplateDir};
use crate::error::request;
use crate::finetune::{self, Options, Task};
use crate::model::{Model, Network};
use crate::recipe::{Recipe, to_table};
use crate::settings::{Condense, Expand, Finetune, Init};
use crate::train::Resolved;
use crate::{expand, init};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Table;
use wave_data::Transform;
use wave_models::vit::VitShape;

/// `[compare]`.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// Depths and widths.
    pub sizes: Vec<(usize, usize)>,
    /// Seeds of shuffling, augmentation and initialisation.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// Condensations of each method, with seeds of their own; cell seeds take them in turn.
    #[serde(default = "one")]
    pub condensations: usize,
    /// Trainings at once; they share the threads.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Learning rates tried for methods that do not set one.
    #[serde(default)]
    pub learning_rates: Vec<f64>,
    /// The size at which they are tried.
    pub tune_at: Option<(usize, usize)>,
    /// Training images kept apart to judge them.
    #[serde(default = "held_out")]
    pub tune_hold_out: usize,
    /// Epochs of a trial [default: 1].
    pub tune_epochs: Option<f64>,
    /// The methods by name.
    pub methods: BTreeMap<String, Method>,
}

/// A way to start.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// `templates`, or a method of `wave init`.
    pub start: String,
    /// An existing template directory instead of a condensation.
    pub templates: Option<String>,
    /// Sizes, if not all.
    pub sizes: Option<Vec<(usize, usize)>>,
    /// Fine-tune towards the condensation's ancestor as well.
    #[serde(default)]
    pub distil: bool,
    /// The learning rate chosen for this other method, instead of a choice of its own.
    pub lr_of: Option<String>,
    /// What differs from `[condense]`.
    #[serde(default)]
    pub condense: Table,
    /// What differs from `[expand]`.
    #[serde(default)]
    pub expand: Table,
    /// What differs from `[init]`.
    #[serde(default)]
    pub init: Table,
    /// What differs from `[finetune]`.
    #[serde(default)]
    pub finetune: Table,
}

fn one() -> usize {
    1
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

fn held_out() -> usize {
    5000
}

impl Compare {
    /// Reads the table.
    pub fn new(recipe: &Recipe) -> Result<Compare> {
        let table = recipe
            .table
            .get("compare")
            .cloned()
            .unwrap_or(Table::new().into());
        let compare: Compare = table
            .try_into()
            .map_err(|e| request(format!("[compare]: {e}")))?;
        if compare.sizes.is_empty() || compare.seeds.is_empty() || compare.methods.is_empty() {
            return Err(request(
                "[compare] needs at least one size, one seed and one method",
            ));
        }
        if compare.condensations == 0 || compare.jobs == 0 {
            return Err(request("[compare]: condensations and jobs are at least 1"));
        }
        Ok(compare)
    }
}

/// One training.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The method's name.
    pub method: String,
    /// Blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Seed.
    pub seed: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Images kept apart, if this is a trial of the learning rate, and its epochs.
    pub trial: Option<(usize, f64)>,
}

impl Cell {
    /// Names the cell's file, without extension.
    pub fn file_name(&self) -> String {
        let Cell {
            method,
            depth,
            width,
            seed,
            lr,
            trial,
        } = self;
        match trial {
            Some(_) => format!("tune-{method}-{depth}x{width}-lr{lr:e}"),
            None => format!("{method}-{depth}x{width}-s{seed}"),
        }
    }
}

/// What came of a cell.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Row {
    /// The method's name.
    pub method: String,
    /// Blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Seed.
    pub seed: u64,
    /// Epochs of fine-tuning.
    pub epochs: f64,
    /// Accuracy at the end.
    pub top1: f64,
    /// Values taken over from the templates: templates, scalers and uncomposed weights.
    pub transferred_parameters: usize,
    /// Scalers fitted before fine-tuning.
    pub scalers_fitted: usize,
    /// Accuracy before fine-tuning.
    pub start_top1: f64,
    /// Peak learning rate.
    pub lr: f64,
    /// Epoch and accuracy, along the way.
    pub curve: Vec<(f64, f64)>,
    /// Wall time in seconds.
    pub seconds: f64,
    /// Everything that determines the row, hashed.
    pub fingerprint: String,
}

/// A chosen learning rate and what it was chosen from.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The learning rate.
    pub lr: f64,
    /// Learning rate and held-out accuracy; empty where the recipe says it.
    pub grid: Vec<(f64, f64)>,
}

impl Choice {
    /// For the report.
    pub fn describe(&self) -> String {
        if self.grid.is_empty() {
            return format!("{:e} (given)", self.lr);
        }
        let grid: Vec<String> = self
            .grid
            .iter()
            .map(|(lr, top1)| format!("{lr:e}: {:.2} %", 100.0 * top1))
            .collect();
        format!("{:e} of {}", self.lr, grid.join(", "))
    }
}

/// Everything a cell needs.
pub struct Bench<'a> {
    recipe: &'a Recipe,
    compare: &'a Compare,
    condensed: BTreeMap<String, Vec<PathBuf>>,
    ancestors: &'a Ancestors,
    condense: Condense,
    /// The auxiliary: of its shape, but for depth and width, are all models.
    auxiliary: VitShape,
    /// How all models take their images: as the auxiliary.
    transform: Transform,
    label_names: Vec<String>,
    options: Options,
}

impl<'a> Bench<'a> {
    /// A bench over condensed templates.
    pub fn new(
        recipe: &'a Recipe,
        compare: &'a Compare,
        condensed: BTreeMap<String, Vec<PathBuf>>,
        ancestors: &'a Ancestors,
        options: Options,
    ) -> Result<Bench<'a>> {
        for method in compare.methods.values() {
            if method.start != "templates" {
                init::options(&method.start, &Init::default())?;
            }
            if let Some(other) = &method.lr_of
                && !compare.methods.contains_key(other)
            {
                return Err(request(format!("lr_of = {other} names no method")));
            }
        }
        let condense: Condense = recipe.stage("condense", None, &Condense::default())?;
        let ancestor = ancestors.get(condense.ancestor.as_deref())?;
        let data = condense::open_data(&condense, ancestor.as_deref())?;
        let plan = CondensePlan::new(&condense, data.transform.channels, data.class_names.len())?;
        Ok(Bench {
            recipe,
            compare,
            condensed,
            ancestors,
            condense,
            auxiliary: plan.auxiliary,
            transform: data.transform,
            label_names: data.class_names,
            options,
        })
    }

    /// The `[finetune]` table with a method's differences.
    fn finetune_table(&self, method: &str) -> Result<Finetune> {
        let method = &self.compare.methods[method];
        let mut settings: Finetune =
            self.recipe
                .stage("finetune", Some(&method.finetune), &Finetune::default())?;
        if method.distil {
            settings.ancestor = self.condense.ancestor.clone();
        }
        Ok(settings)
    }

    /// The template directories of a method.
    pub fn templates(&self, method: &str) -> &[PathBuf] {
        self.condensed.get(method).map_or(&[], Vec::as_slice)
    }

    fn finetune(&self, cell: &Cell) -> Result<Finetune> {
        let mut settings = self.finetune_table(&cell.method)?;
        let training = &mut settings.training;
        training.seed = Some(cell.seed);
        training.lr = Some(cell.lr);
        if let Some((held_out, epochs)) = cell.trial {
            training.hold_out = Some(held_out);
            training.epochs = Some(epochs);
            training.steps = None;
        }
        Ok(settings)
    }

    fn given_rate(&self, method: &str) -> Result<Option<f64>> {
        let settings = self.finetune_table(method)?;
        if settings.training.lr.is_none() && self.compare.learning_rates.is_empty() {
            return Ok(Some(finetune::DEFAULTS.lr));
        }
        Ok(settings.training.lr)
    }

    /// The trials of learning rates.
    pub fn tuning_cells(&self) -> Vec<Cell> {
        let (depth, width) = self.compare.tune_at.unwrap_or(self.compare.sizes[0]);
        let mut cells = Vec::new();
        for method in self.compare.methods.keys() {
            let borrows = self.compare.methods[method].lr_of.is_some();
            if borrows || !matches!(self.given_rate(method), Ok(None)) {
                continue;
            }
            for &lr in &self.compare.learning_rates {
                let trial = Some((
                    self.compare.tune_hold_out,
                    self.compare.tune_epochs.unwrap_or(1.0),
                ));
                cells.push(Cell {
                    method: method.clone(),
                    depth,
                    width,
                    seed: 0,
                    lr,
                    trial,
                });
            }
        }
        cells
    }

    /// The best learning rate of each method.
    pub fn choose_rates(&self, trials: &[Row]) -> BTreeMap<String, Choice> {
        let choose = |method: &String| {
            let method = self.compare.methods[method]
                .lr_of
                .as_ref()
                .unwrap_or(method);
            if let Ok(Some(lr)) = self.given_rate(method) {
                return Choice {
                    lr,
                    grid: Vec::new(),
                };
            }
            let grid: Vec<(f64, f64)> = trials
                .iter()
                .filter(|row| &row.method == method)
                .map(|row| (row.lr, row.top1))
                .collect();
            let best = grid.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
            Choice {
                lr: best.map_or(finetune::DEFAULTS.lr, |(lr, _)| lr),
                grid,
            }
        };
        self.compare
            .methods
            .keys()
            .map(|m| (m.clone(), choose(m)))
            .collect()
    }

    /// The cells of the comparison.
    pub fn cells(&self, rates: &BTreeMap<String, Choice>) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &(depth, width) in &self.compare.sizes {
            for (method, config) in &self.compare.methods {
                if config
                    .sizes
                    .as_ref()
                    .is_some_and(|sizes| !sizes.contains(&(depth, width)))
                {
                    continue;
                }
                for &seed in &self.compare.seeds {
                    let lr = rates[method].lr;
                    cells.push(Cell {
                        method: method.clone(),
                        depth,
                        width,
                        seed,
                        lr,
                        trial: None,
                    });
                }
            }
        }
        cells
    }

    fn template_dir(&self, cell: &Cell) -> Option<&Path> {
        let dirs = self.templates(&cell.method);
        (!dirs.is_empty()).then(|| dirs[cell.seed as usize % dirs.len()].as_path())
    }

    /// A hash of everything that determines a cell's row.
    pub fn fingerprint(&self, cell: &Cell) -> Result<String> {
        let method = &self.compare.methods[&cell.method];
        let mut text = format!(
            "{} {cell:?} threads {} {}",
            env!("CARGO_PKG_VERSION"),
            rayon::current_num_threads(),
            toml::to_string(&to_table(&self.finetune(cell)?)?)?
        );
        text += &toml::to_string(&to_table(method)?)?;
        for table in ["condense", "expand", "init"] {
            if let Some(value) = self.recipe.table.get(table) {
                text += &value.to_string();
            }
        }
        if let Some(dir) = self.template_dir(cell) {
            text += &wave_hub::sha256_file(&dir.join("templates.safetensors"))?;
        }
        Ok(wave_hub::sha256_hex(text.as_bytes()))
    }

    /// Starts a model and fine-tunes it.
    pub fn run(&self, cell: &Cell, fingerprint: String) -> Result<Row> {
        let began = std::time::Instant::now();
        let settings = self.finetune(cell)?;
        let (mut model, transferred, fitted) = self.start(cell, &settings)?;
        let data = finetune::open_data(&mut model, &settings)?;
        let resolved = Resolved::new(&settings.training, finetune::DEFAULTS, &data)?;
        let weights = model.network.prepare(&model.weights)?;
        let before = finetune::score(&model.network, &weights, &data)?;
        let ancestor = self.ancestors.get(settings.ancestor.as_deref())?;
        let task = Task {
            label: cell.file_name(),
            settings: &settings,
            resolved: &resolved,
            data: &data,
            ancestor,
            options: self.options,
            every_epoch: cell.trial.is_none(),
        };
        let outcome = finetune::tune(&mut model, &task, None)?;
        let mut curve = vec![(0.0, before.top1)];
        curve.extend(&outcome.curve);
        Ok(Row {
            method: cell.method.clone(),
            depth: cell.depth,
            width: cell.width,
            seed: cell.seed,
            epochs: resolved.steps as f64 / data.loader.steps_per_epoch() as f64,
            top1: outcome.scores.map_or(0.0, |s| s.top1),
            transferred_parameters: transferred,
            scalers_fitted: fitted,
            start_top1: before.top1,
            lr: cell.lr,
            curve,
            seconds: (began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            fingerprint,
        })
    }

    /// The model before fine-tuning, the values it took over, and the scalers fitted.
    fn start(&self, cell: &Cell, settings: &Finetune) -> Result<(Model, usize, usize)> {
        let method = &self.compare.methods[&cell.method];
        if let Some(dir) = self.template_dir(cell) {
            let templates = elastic::read(dir)?;
            return self.expand(cell, settings, &templates);
        }
        let shape = self.auxiliary.with_size(cell.depth, cell.width);
        shape.validate()?;
        let init: Init = self
            .recipe
            .stage("init", Some(&method.init), &Init::default())?;
        let weights = init::fill(&shape, &init::options(&method.start, &init)?, cell.seed)?;
        let model = Model {
            network: Network::Vit(shape),
            weights,
            // The normalisation that the templates were condensed with, for all methods alike.
            transform: self.transform.clone(),
            label_names: self.label_names.clone(),
            provenance: Value::Null,
        };
        Ok((model, 0, 0))
    }

    fn expand(
        &self,
        cell: &Cell,
        settings: &Finetune,
        templates: &TemplateDir,
    ) -> Result<(Model, usize, usize)> {
        let method = &self.compare.methods[&cell.method];
        let mut table = method.expand.clone();
        table.entry("steps").or_insert(toml::Value::Integer(0));
        let mut expand: Expand = self
            .recipe
            .stage("expand", Some(&table), &Expand::default())?;
        expand.depth = Some(cell.depth);
        expand.width = Some(cell.width);
        expand.training.seed = Some(cell.seed);
        expand.training.hold_out = settings.training.hold_out;
        let shape = expand::shape(&templates.learngene, &expand)?;
        let fits = expand.training.steps != Some(0);
        let data = match fits {
            true => Some(Data::open(
                &expand.training,
                Input::Like(templates.transform.clone()),
            )?),
            false => None,
        };
        let label = cell.file_name();
        let made = expand::make(
            templates,
            &expand,
            &shape,
            data.as_ref(),
            None,
            self.options,
            &label,
        )?;
        let of = |key: &str| {
            made.ledger
                .iter()
                .find(|(k, _)| *k == key)
                .map_or(0, |(_, n)| *n)
        };
        let transferred = of("templates") + of("scalers") + of("uncomposed");
        Ok((
            made.model,
            transferred,
            if fits { of("scalers") } else { 0 },
        ))
    }

    /// Parameters of a model of a size.
    pub fn parameters(&self, depth: usize, width: usize) -> usize {
        self.auxiliary.with_size(depth, width).parameter_count()
    }
}
