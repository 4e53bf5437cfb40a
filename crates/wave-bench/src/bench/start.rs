//! A model of the grid before fine-tuning, and its cost.

use super::artefacts::begin;
use super::cells::lock;
use super::grow::grow;
use super::table::{Component, Method, TEMPLATES};
use super::{Bench, Cell, similarity};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use toml::Table;
use wave_artefacts::model::Model;
use wave_artefacts::templates;
use wave_init::Donor;
use wave_learngene::Learngene;
use wave_models::vit::VitShape;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::recipe::merge;
use wave_run::settings::{Expand, Finetune, Init};
use wave_run::train::TrainingPlan;
use wave_stages::expand::{self, ExpandPlan};
use wave_stages::finetune;
use wave_stages::init::{self, MethodOptions};

/// Steps of the operator's training in the LiGO paper.
const OPERATOR_STEPS: i64 = 100;

/// A model before fine-tuning.
pub(super) struct Start {
    pub(super) model: Model,
    /// Number of inherited trained values, each counted once.
    pub(super) transferred: usize,
    /// Number of values stored to initialise models of every size with this method.
    pub(super) stored: usize,
    /// Number of scalers fitted to data.
    pub(super) fitted: usize,
    /// Epochs spent once, for all models.
    pub(super) shared_epochs: f64,
    /// Epochs spent for this model alone.
    pub(super) own_epochs: f64,
}

/// Starts the model of a cell; `settings` are those of its fine-tuning.
pub(super) fn start(bench: &Bench, cell: &Cell, settings: &Finetune) -> Result<Start> {
    let method = bench.grid.method(&cell.method)?;
    let mut start = match method.start.as_str() {
        TEMPLATES => from_templates(bench, cell, method, settings)?,
        _ => by_initialisation(bench, cell, method, settings)?,
    };
    if let Some(table) = &method.pretrain {
        let mut table = table.clone();
        let at = format!("{}x{}", cell.depth, cell.width);
        if let Some(changes) = method.pretrain_at.get(&at) {
            merge(&mut table, changes);
        }
        pretrain(bench, cell, table, &mut start)?;
    }
    Ok(start)
}

fn by_initialisation(
    bench: &Bench,
    cell: &Cell,
    method: &Method,
    settings: &Finetune,
) -> Result<Start> {
    let shape = bench.frame.shape(cell.depth, cell.width)?;
    let mut choices: Init = bench.recipe.stage("init", Some(&method.init))?;
    let donor = |name: &Option<String>| {
        let name = name.as_ref();
        name.map(|name| bench.donor(name, cell.seed)).transpose()
    };
    let donors: Vec<Donor> = donor(&method.donor)?.into_iter().collect();
    let mut shared_epochs = 0.0;
    if let (Some(small), Some(large)) = (donor(&method.resembles)?, donors.first()) {
        let data = bench.open_data(&settings.training)?;
        choices.similarity = Some(similarity::of_layers(large, &small, &data)?);
        shared_epochs += small.spent.epochs;
    }
    let options = MethodOptions::new(&method.start, &choices)?;
    let images = match donors.first() {
        Some(donor) if wave_init::find(&method.start)?.images => {
            let mut plan = DataPlan::new(&settings.training)?;
            let most = choices.train_limit.unwrap_or(init::SAMPLE);
            plan.train_limit = Some(plan.train_limit.map_or(most, |own| own.min(most)));
            let transform = &bench.frame.transform;
            let images = init::sample(&plan, transform, donor.shape(), bench.context())?;
            Some(images)
        }
        _ => None,
    };
    let begun = init::start(
        &method.start,
        &shape,
        (&donors, images.as_ref()),
        &options,
        method.fresh_seed(cell.seed),
    )?;
    let mut start = Start {
        model: bench.frame.model(shape.clone(), begun.weights, Value::Null),
        transferred: begun.cost.transferred,
        stored: begun.cost.stored,
        fitted: 0,
        shared_epochs: shared_epochs + begun.cost.extra_epochs,
        own_epochs: 0.0,
    };
    if let (Some(operator), Some(small)) = (&method.operator, donors.first()) {
        let mut table = method.finetune.clone();
        table.remove("epochs");
        table.insert("steps".into(), toml::Value::Integer(OPERATOR_STEPS));
        merge(&mut table, operator);
        let mut training = bench.finetune_table(cell, &table)?.training;
        training.optimisation.seed = Some(cell.seed);
        training.images.hold_out = settings.training.images.hold_out;
        let data = bench.open_data(&training)?;
        let plan = TrainingPlan::new(&training, finetune::DEFAULTS)?;
        let resolved = plan.resolve(&data)?;
        let label = format!("operator of {}", cell.file_name());
        let grown = grow(small, &shape, &data, &resolved, &label, &bench.options)?;
        // A classifier with other classes is reinitialised.
        let kept = small.shape().classes == shape.classes;
        start.model.weights.extend(
            grown
                .into_iter()
                .filter(|(name, _)| kept || !name.starts_with("head")),
        );
        start.own_epochs += resolved.epochs(&data);
    }
    Ok(start)
}

fn from_templates(
    bench: &Bench,
    cell: &Cell,
    method: &Method,
    settings: &Finetune,
) -> Result<Start> {
    let dir = bench.artefacts.templates(&cell.method, cell.seed)?;
    let templates = templates::read(dir)?;
    let mut table = method.expand.clone();
    table.entry("steps").or_insert(toml::Value::Integer(0));
    let mut expand: Expand = bench.recipe.stage("expand", Some(&table))?;
    expand.depth = Some(cell.depth);
    expand.width = Some(cell.width);
    let training = &mut expand.training;
    let of_cell = &settings.training;
    training.optimisation.seed = Some(cell.seed);
    training.images.hold_out = of_cell.images.hold_out;
    // The fine-tuning images, or as many of them as the method requests.
    training.images.data.clone_from(&of_cell.images.data);
    if !method.expand.contains_key("train_limit") {
        training.images.train_limit = of_cell.images.train_limit;
    }
    let fits = training.optimisation.steps != Some(0);
    let plan = ExpandPlan::new(&expand)?;
    let shape = plan.shape(&templates.learngene)?;
    let input = Input::Like(templates.transform_of(&shape));
    let data = fits
        .then(|| Data::open(&plan.data, input, bench.context()))
        .transpose()?;
    let made = expand::make(
        &templates,
        &plan,
        &shape,
        data.as_ref(),
        None,
        &bench.options,
        &cell.file_name(),
    )?;
    let gene = &templates.learngene;
    let mut start = Start {
        model: made.model,
        transferred: taken(gene, &shape, method.inherit.as_deref()),
        stored: gene.ledger().iter().map(|(_, n)| n).sum(),
        fitted: 0,
        shared_epochs: templates.config.provenance.all_epochs().iter().sum(),
        own_epochs: 0.0,
    };
    if let Some(ancestor) = &method.donor {
        start.shared_epochs += bench.donor(ancestor, cell.seed)?.spent.epochs;
    }
    if let Some(data) = &data {
        start.own_epochs = plan.training.resolve(data)?.epochs(data);
        let fitted = made.ledger.iter().find(|(key, _)| *key == "scalers");
        start.fitted = fitted.map_or(0, |(_, n)| *n);
    }
    if let Some(inherited) = &method.inherit {
        let rest = method.rest.as_deref().unwrap_or("timm");
        let fresh = init::start(
            rest,
            &shape,
            (&[], None),
            &MethodOptions::default(),
            method.fresh_seed(cell.seed),
        )?
        .weights;
        for (name, tensor) in fresh {
            if !inherited.iter().any(|component| component.holds(&name))
                && start.model.weights.get(&name).map(|t| t.dims()) == Some(tensor.dims())
            {
                start.model.weights.insert(name, tensor);
            }
        }
    }
    Ok(start)
}

/// Number of values that a model of this shape inherits: from the given components, or from all of them.
fn taken(gene: &Learngene, shape: &VitShape, inherited: Option<&[Component]>) -> usize {
    let plan = &gene.used_by(shape).plan;
    let is_taken = |name: &str| inherited.is_none_or(|all| all.iter().any(|c| c.holds(name)));
    let mut sets = BTreeSet::new();
    let mut sum = 0;
    for (part, set) in &plan.sets {
        if is_taken(&part.weight_name(0)) {
            sets.insert(set);
            let scalers = plan.scaler_shape(*part, shape);
            sum += shape.depth * scalers.iter().product::<usize>();
        }
    }
    let templates: usize = sets.into_iter().map(|set| plan.counts[set]).sum();
    sum += templates * plan.template_size * plan.template_size;
    let inherited = plan.inherited_parameters(shape).into_iter();
    sum + inherited
        .filter(|(name, _)| is_taken(name))
        .map(|(_, dims)| dims.iter().product::<usize>())
        .sum::<usize>()
}

/// Direct pretraining: trains the model by itself before its fine-tuning. If a donor was trained in the same way,
/// its result is reused.
fn pretrain(bench: &Bench, cell: &Cell, mut table: Table, start: &mut Start) -> Result<()> {
    let distil = table.remove("distil").and_then(|v| v.as_bool());
    let mut settings: Finetune = bench.recipe.stage("finetune", Some(&table))?;
    settings.training.optimisation.seed = Some(cell.seed);
    if distil.unwrap_or(false) {
        bench.frame.distil(&mut settings)?;
    }
    // Shared by learning-rate trials and the run with the same seed.
    let name = cell.of_size();
    let pretraining = bench.pretraining(&name);
    let _alone = lock(&pretraining);
    let dir = bench.out.join("pretrained").join(&name);
    let begun = begin(&start.model, "Not yet trained.", &dir)?;
    let same = bench.donor_like(&begun, &settings)?;
    if same.is_none() {
        finetune::finetune(&begun, &settings, &dir, &bench.options)
            .with_context(|| format!("pretraining {name}"))?;
    }
    let trained = Model::read(same.unwrap_or(&dir), bench.context())?;
    start.own_epochs += trained.provenance["epochs"].as_f64().unwrap_or(0.0);
    start.transferred = trained.parameters();
    start.stored = trained.parameters();
    start.model.weights = trained.weights;
    Ok(())
}
