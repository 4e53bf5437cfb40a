//! The `[bench]` table of a recipe: methods, sizes, data sets and seeds.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Table;
use wave_models::refuse;
use wave_run::error::request;
use wave_run::recipe::{Recipe, merge};
use wave_stages::init;

/// Name of the method that starts from templates; the others are those of `wave init`.
pub(crate) const TEMPLATES: &str = "templates";

/// Steps of the operator's training in the LiGO paper.
const OPERATOR_STEPS: i64 = 100;

/// Keys of the tables of a method that the bench sets itself.
const SET_BY_BENCH: [(&str, &str); 2] = [
    (
        "expand",
        "data depth hold_out max_latency_ms max_macs max_params seed width",
    ),
    (
        "init",
        "arch channels class_token classes data depth from heads image_size mlp_ratio patch seed \
         width",
    ),
];

/// The `[bench]` table.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Bench {
    /// Depths and widths.
    pub sizes: Vec<(usize, usize)>,
    /// Seeds of shuffling, augmentation and initialisation.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// Condensations per method, and trainings per donor, each with its own seed; cells' seeds cycle through them.
    #[serde(default = "one")]
    pub condensations: usize,
    /// Number of trainings in parallel, which share the threads.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Directory where every training that distils caches the ancestor's outputs.
    pub cache: Option<String>,
    /// Learning rates to try for methods that do not set one.
    #[serde(default)]
    pub learning_rates: Vec<f64>,
    /// Model size in these trials [default: the first of a method, as for methods that do not take this size].
    pub tune_at: Option<(usize, usize)>,
    /// Training images held out for these trials.
    ///
    /// Condensations, trainings of donors and `pretrain` do not hold them out. A model that has seen them in one of
    /// these scores higher on them, and most at low rates, so the chosen rate may be too low. The same number as
    /// `hold_out` in `[condense]`, in `finetune` of the donors and in `pretrain` keeps these images out of all.
    #[serde(default = "held_out")]
    pub tune_hold_out: usize,
    /// Epochs of a trial.
    #[serde(default = "one_epoch")]
    pub tune_epochs: f64,
    /// The method whose lead the report measures [default: the first].
    pub subject: Option<String>,
    /// Methods to list side by side in further tables, by title.
    #[serde(default)]
    pub ablations: BTreeMap<String, Vec<String>>,
    /// Pairs of a method and its rival: the report gives the break-even number of models, from which on the method
    /// reaches an accuracy at a lower cost.
    #[serde(default)]
    pub break_even: Vec<(String, String)>,
    /// Data sets to fine-tune on, each with changes to `[finetune]`; without any, the data of `[finetune]`.
    #[serde(default)]
    pub datasets: Table,
    /// Trained transformers from which methods take weights.
    #[serde(default)]
    pub donors: BTreeMap<String, DonorTable>,
    /// The methods by name, in the order of the report.
    pub methods: Table,
}

/// A transformer from which methods take weights: an existing model, or one initialised and trained here.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct DonorTable {
    /// Directory of an existing model, which adds no cost.
    pub model: Option<String>,
    /// Number of blocks.
    pub depth: Option<usize>,
    /// Token width, in channels.
    pub width: Option<usize>,
    /// Initialisation method [default: mimetic].
    pub start: Option<String>,
    /// Also distil from the condensation's ancestor.
    #[serde(default)]
    pub distil: bool,
    /// Changes to `[finetune]`.
    #[serde(default)]
    pub finetune: Table,
}

impl DonorTable {
    /// Checks that it names one model, and has no key that this model does not use.
    fn check(&self) -> Result<()> {
        let sized = self.depth.is_some() && self.width.is_some();
        if self.model.is_some() == sized {
            refuse!("give a `model` directory, or the `depth` and `width` of a model to train");
        }
        let trained = self.depth.or(self.width).is_some() || self.start.is_some();
        if self.model.is_some() && (trained || self.distil || !self.finetune.is_empty()) {
            refuse!(
                "a `model` directory is not trained here; remove depth, width, start, distil and \
                 finetune, or `model`"
            );
        }
        if let Some(start) = &self.start
            && wave_init::find(start)?.donor
        {
            refuse!("start = {start:?} takes a donor itself; name a method without one");
        }
        Ok(())
    }
}

/// A way to start a model.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// `templates`, or a method of `wave init`.
    pub start: String,
    /// An existing template directory to use instead of a condensation.
    pub templates: Option<String>,
    /// The donor to take weights from, by name; for templates, the ancestor.
    pub donor: Option<String>,
    /// For `auto-lg`: a second donor, a small network; the layers of `donor` are compared with its layers.
    pub resembles: Option<String>,
    /// Sizes; all by default.
    pub sizes: Option<Vec<(usize, usize)>>,
    /// Data sets; all by default.
    pub datasets: Option<Vec<String>>,
    /// Also distil from the condensation's ancestor in fine-tuning.
    #[serde(default)]
    pub distil: bool,
    /// Use the learning rate chosen for this other method.
    pub lr_of: Option<String>,
    /// Parts to inherit from templates: `attention`, `projection`, `mlp`, `norm` (WAVE, Table 4),
    /// `outer` (patches, positions, final norm and head); timm's initialisation fills the others.
    pub inherit: Option<Vec<Component>>,
    /// Train the operator of `ligo` first: changes to `[finetune]` [default: 100 steps].
    pub operator: Option<Table>,
    /// Train each model by itself first (direct pretraining): changes to `[finetune]`. A donor that was initialised
    /// and trained in the same way is reused.
    pub pretrain: Option<Table>,
    /// Changes to `pretrain` at some sizes, by names such as `2x64`: for example epochs, so that each size trains for
    /// the same time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pretrain_at: BTreeMap<String, Table>,
    /// Changes to `[condense]`.
    #[serde(default)]
    pub condense: Table,
    /// Changes to `[expand]`.
    #[serde(default)]
    pub expand: Table,
    /// Changes to `[init]`.
    #[serde(default)]
    pub init: Table,
    /// Changes to `[finetune]`.
    #[serde(default)]
    pub finetune: Table,
}

impl Method {
    /// True if the method runs at this size of the table.
    pub fn takes_size(&self, size: &(usize, usize)) -> bool {
        self.sizes.as_ref().is_none_or(|sizes| sizes.contains(size))
    }

    /// True if the method runs on this data set of the table.
    pub fn takes_data(&self, name: &String) -> bool {
        let names = self.datasets.as_ref();
        names.is_none_or(|names| names.contains(name))
    }

    /// True if the method needs a condensation made by the bench.
    pub(crate) fn condenses(&self) -> bool {
        self.start == TEMPLATES && self.templates.is_none()
    }

    /// The seed for newly sampled values: the seed itself, unless the method also inherits trained values, which may
    /// have come from the same seed; then an FNV-1a hash of its start and the seed.
    pub(crate) fn fresh_seed(&self, seed: u64) -> u64 {
        if self.donor.is_none() && self.start != TEMPLATES {
            return seed;
        }
        let label = format!("{} fresh {seed}", self.start);
        wave_train::fnv1a(label.bytes().map(u64::from))
    }

    /// Changes to `[finetune]` that train a model of this size by itself, if the method does that first.
    pub(crate) fn pretraining(&self, (depth, width): (usize, usize)) -> Option<Table> {
        let mut table = self.pretrain.clone()?;
        if let Some(changes) = self.pretrain_at.get(&format!("{depth}x{width}")) {
            merge(&mut table, changes);
        }
        Some(table)
    }

    /// Changes to `[finetune]` that train the operator of `ligo`, if it is trained.
    pub(crate) fn operator_training(&self) -> Option<Table> {
        let operator = self.operator.as_ref()?;
        let steps = Table::from_iter([("steps".to_owned(), OPERATOR_STEPS.into())]);
        let mut table = self.finetune.clone();
        merge(&mut table, &steps);
        merge(&mut table, operator);
        Some(table)
    }

    /// True if its models distil from the condensation's ancestor, in fine-tuning or before.
    pub(crate) fn distils(&self) -> bool {
        let before = self.pretrain.as_ref().and_then(|table| table.get("distil"));
        self.distil || before.and_then(|value| value.as_bool()) == Some(true)
    }

    /// Checks that the method reads every key of its table.
    fn check_keys(&self, table: &toml::Value) -> Result<()> {
        let templates = self.start == TEMPLATES;
        for (key, read, place) in [
            ("templates", templates, "start = \"templates\""),
            ("inherit", templates, "start = \"templates\""),
            ("expand", templates, "start = \"templates\""),
            (
                "condense",
                self.condenses(),
                "start = \"templates\" without templates",
            ),
            ("init", !templates, "other starts than \"templates\""),
            ("operator", self.start == "ligo", "start = \"ligo\""),
            ("resembles", self.start == "auto-lg", "start = \"auto-lg\""),
        ] {
            if !read && table.get(key).is_some() {
                refuse!("{key} applies only to {place}; remove it");
            }
        }
        for (inner, keys) in SET_BY_BENCH {
            let given = |key: &&str| table.get(inner).is_some_and(|t| t.get(key).is_some());
            if let Some(key) = keys.split(' ').find(given) {
                refuse!("{inner} has {key}, which the bench sets itself; remove it");
            }
        }
        init::check(&self.start, &self.init)
    }
}

/// A part of a transformer that can be inherited separately.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Queries, keys and values.
    Attention,
    /// The projection after attention.
    Projection,
    /// Both layers of the MLP.
    Mlp,
    /// The norms of the blocks.
    Norm,
    /// Patch embedding, positions, tokens before the patches, final norm and head.
    Outer,
}

impl Component {
    /// True if a weight with this name of timm's belongs to this component.
    pub fn holds(self, name: &str) -> bool {
        match self {
            Component::Attention => name.contains(".attn.qkv."),
            Component::Projection => name.contains(".attn.proj."),
            Component::Mlp => name.contains(".mlp."),
            Component::Norm => name.contains(".norm1.") || name.contains(".norm2."),
            Component::Outer => !name.starts_with("blocks."),
        }
    }
}

fn one() -> usize {
    1
}

fn one_epoch() -> f64 {
    1.0
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

fn held_out() -> usize {
    5000
}

/// Refuses a repeated entry, whose runs would count twice.
fn distinct<T: PartialEq + Serialize>(key: &str, entries: &[T]) -> Result<()> {
    let mut numbered = entries.iter().enumerate();
    if let Some((_, entry)) = numbered.find(|(i, entry)| entries[..*i].contains(entry)) {
        let entry = toml::Value::try_from(entry)?;
        refuse!("[bench]: {key} has {entry} twice; remove one");
    }
    Ok(())
}

/// Refuses what a bench sets itself in `[finetune]` or changes to it. The hash of a run covers the ancestor of
/// `[condense]` alone.
fn check_finetune(table: &Table) -> Result<()> {
    if let Some(ancestor) = table.get("ancestor") {
        refuse!(
            "finetune has ancestor = {ancestor}, but methods of a bench distil from the ancestor \
             of [condense]; remove it, and give distil = true to the methods that distil"
        );
    }
    if let Some(seed) = table.get("seed") {
        refuse!(
            "finetune has seed = {seed}, but a bench has seeds of its own; remove it, and set seeds \
             in [bench]"
        );
    }
    Ok(())
}

/// The `[bench]` table with its methods parsed.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The table.
    pub bench: Bench,
    /// The methods, in the recipe's order.
    pub methods: Vec<(String, Method)>,
    /// The data sets with their changes to `[finetune]`: one without a name if the recipe has none.
    pub datasets: Vec<(String, Table)>,
}

impl Grid {
    /// Number of runs of all methods, without learning-rate trials.
    pub fn runs(&self) -> usize {
        let runs = self.methods.iter().map(|(_, method)| {
            let sizes = self.bench.sizes.iter();
            let names = self.datasets.iter().map(|(name, _)| name);
            let datasets = names.filter(|name| method.takes_data(name)).count();
            sizes.filter(|size| method.takes_size(size)).count() * datasets
        });
        runs.sum::<usize>() * self.bench.seeds.len()
    }

    /// Parses the table, and checks the names in it.
    pub fn new(recipe: &Recipe) -> Result<Grid> {
        let table = recipe.table.get("bench").cloned();
        let bench: Bench = table
            .unwrap_or(Table::new().into())
            .try_into()
            .map_err(|e| request(format!("[bench]: {e}")))?;
        if bench.sizes.is_empty() || bench.seeds.is_empty() || bench.methods.is_empty() {
            refuse!("[bench] needs at least one size, one seed and one method");
        }
        if bench.condensations == 0 || bench.jobs == 0 {
            refuse!("[bench]: condensations and jobs must be at least 1");
        }
        let mut methods: Vec<(String, Method)> = Vec::new();
        for (name, table) in &bench.methods {
            let method = table.clone().try_into();
            let method = method.map_err(|e| request(format!("[bench.methods.{name}]: {e}")))?;
            methods.push((name.clone(), method));
        }
        let mut datasets: Vec<(String, Table)> = Vec::new();
        for (name, table) in &bench.datasets {
            let toml::Value::Table(table) = table else {
                refuse!(
                    "[bench.datasets]: {name} = {table}; give a table, such as {{ data = \"shapes\" }}"
                );
            };
            datasets.push((name.clone(), table.clone()));
        }
        if datasets.is_empty() {
            datasets.push((String::new(), Table::new()));
        }
        let finetune = recipe.table_of("finetune");
        let tables = datasets.iter().map(|(_, table)| table);
        tables.chain([&finetune]).try_for_each(check_finetune)?;
        let grid = Grid {
            bench,
            methods,
            datasets,
        };
        grid.check()?;
        Ok(grid)
    }

    /// The names of the methods, in the recipe's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.methods.iter().map(|(name, _)| name)
    }

    /// All pairs of a data set and a size.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, (usize, usize))> {
        let datasets = self.datasets.iter();
        datasets.flat_map(|(dataset, _)| {
            let sizes = self.bench.sizes.iter();
            sizes.map(move |size| (dataset.as_str(), *size))
        })
    }

    /// A method by name.
    pub fn method(&self, name: &str) -> Result<&Method> {
        if let Some((_, method)) = self.methods.iter().find(|(n, _)| n == name) {
            return Ok(method);
        }
        let all: Vec<&str> = self.names().map(String::as_str).collect();
        let all = all.join(", ");
        refuse!("[bench] names a method {name}; expected one of {all}")
    }

    /// The method whose lead the report measures.
    pub fn subject(&self) -> &str {
        let first = || self.methods[0].0.as_str();
        self.bench.subject.as_deref().unwrap_or_else(first)
    }

    fn check(&self) -> Result<()> {
        distinct("sizes", &self.bench.sizes)?;
        distinct("seeds", &self.bench.seeds)?;
        distinct("learning_rates", &self.bench.learning_rates)?;
        let datasets = self.datasets.iter().map(|(name, _)| name);
        let mut named = self.names().chain(self.bench.donors.keys()).chain(datasets);
        if let Some(name) = named.find(|name| name.contains(['/', '\\', '\0'])) {
            refuse!("[bench]: {name:?} names files of the output; choose a name without / and \\");
        }
        self.method(self.subject())?;
        let listed = self.bench.ablations.values().flatten();
        let pairs = self.bench.break_even.iter();
        let pairs = pairs.flat_map(|(method, rival)| [method, rival]);
        let borrowed = self.methods.iter().filter_map(|(_, m)| m.lr_of.as_ref());
        for name in listed.chain(pairs).chain(borrowed) {
            self.method(name)?;
        }
        for (name, method) in &self.methods {
            let checked = method.check_keys(&self.bench.methods[name]);
            let checked = checked.and_then(|()| self.check_method(method));
            checked.with_context(|| format!("[bench.methods.{name}]"))?;
            if let Some(other) = &method.lr_of
                && self.method(other)?.lr_of.is_some()
            {
                refuse!(
                    "[bench.methods.{name}]: lr_of = {other:?}, which takes its learning rate from \
                     a method too; name one without lr_of"
                );
            }
        }
        for (name, donor) in &self.bench.donors {
            let checked = donor.check();
            checked.with_context(|| format!("[bench.donors.{name}]"))?;
        }
        Ok(())
    }

    /// Checks a method's sizes, data sets and donors.
    fn check_method(&self, method: &Method) -> Result<()> {
        let donors = &self.bench.donors;
        let mut named = method.donor.iter().chain(&method.resembles);
        if let Some(donor) = named.find(|donor| !donors.contains_key(*donor)) {
            refuse!("donor {donor} is not in [bench.donors]; add it there");
        }
        let changes = method.pretrain.iter().chain(method.pretrain_at.values());
        let mut changes = changes.chain([&method.finetune]).chain(&method.operator);
        changes.try_for_each(check_finetune)?;
        let sizes = method.sizes.as_ref().unwrap_or(&self.bench.sizes);
        let mut foreign = sizes.iter().filter(|size| !self.bench.sizes.contains(size));
        if let Some((l, d)) = foreign.next() {
            refuse!("size [{l}, {d}] is not in sizes of [bench]; add it there");
        }
        if sizes.is_empty() || method.datasets.as_ref().is_some_and(Vec::is_empty) {
            refuse!("sizes or datasets is empty; name one, or remove the key to run all");
        }
        let named: Vec<String> = sizes.iter().map(|(l, d)| format!("{l}x{d}")).collect();
        let mut changed = method.pretrain_at.keys();
        if let Some(size) = changed.find(|size| !named.contains(*size)) {
            let sizes = named.join(", ");
            refuse!("pretrain_at names {size}; expected one of the sizes {sizes}");
        }
        if method.pretrain.is_none() && !method.pretrain_at.is_empty() {
            refuse!("pretrain_at needs pretrain; add it");
        }
        if method.donor.is_some() && method.condense.contains_key("ancestor") {
            refuse!("donor replaces ancestor of condense; remove one");
        }
        if method.lr_of.is_some() && method.finetune.contains_key("lr") {
            refuse!("lr_of replaces lr of finetune; remove one");
        }
        let known = |data: &String| self.datasets.iter().any(|(name, _)| name == data);
        if let Some(data) = method.datasets.iter().flatten().find(|data| !known(data)) {
            refuse!("data set {data} is not in [bench.datasets]; add it there");
        }
        if method.start == TEMPLATES {
            return Ok(());
        }
        let needs = wave_init::find(&method.start)?.donor;
        if needs != method.donor.is_some() {
            let (number, remedy) = match needs {
                true => ("one", "name one with donor = \"...\""),
                false => ("no", "remove `donor`"),
            };
            let start = &method.start;
            refuse!("{start} takes {number} donor; {remedy}");
        }
        let operator = method.operator.as_ref();
        if operator.is_some_and(|table| table.contains_key("muon")) {
            refuse!("`operator` trains with AdamW; remove muon");
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
