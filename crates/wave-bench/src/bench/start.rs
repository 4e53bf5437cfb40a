//! A model of the grid before fine-tuning, and its cost.

use super::artefacts::begin;
use super::cells::lock;
use super::grow::grow;
use super::{Bench, Cell, Row, similarity};
use crate::grid::{Component, Method, TEMPLATES};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use wave_artefacts::model::Model;
use wave_artefacts::templates;
use wave_init::Choices;
use wave_learngene::Learngene;
use wave_models::vit::VitShape;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::settings::{Expand, Finetune, Init};
use wave_run::train::TrainingPlan;
use wave_stages::expand::{self, ExpandPlan};
use wave_stages::finetune;
use wave_stages::init;

/// The model of a cell before fine-tuning, and its row with the costs so far; `settings` are those of its fine-tuning.
pub(super) fn start(bench: &Bench, cell: &Cell, settings: &Finetune) -> Result<(Model, Row)> {
    let method = bench.grid.method(&cell.method)?;
    let (mut model, mut row) = match method.start.as_str() {
        TEMPLATES => from_templates(bench, cell, method, settings)?,
        _ => by_initialisation(bench, cell, method, settings)?,
    };
    if let Some(settings) = pretraining(bench, cell)? {
        pretrain(bench, cell, &settings, &mut model, &mut row)?;
    }
    Ok((model, row))
}

/// The settings of a cell's direct pretraining, if its method has one.
pub(super) fn pretraining(bench: &Bench, cell: &Cell) -> Result<Option<Finetune>> {
    let method = bench.grid.method(&cell.method)?;
    let Some(mut table) = method.pretraining((cell.depth, cell.width)) else {
        return Ok(None);
    };
    let distil = table.remove("distil").and_then(|v| v.as_bool());
    let mut settings: Finetune = bench.recipe.stage("finetune", Some(&table))?;
    settings.training.optimisation.seed = Some(cell.seed);
    if distil.unwrap_or(false) {
        bench.frame.distil(&mut settings)?;
    }
    Ok(Some(settings))
}

fn by_initialisation(
    bench: &Bench,
    cell: &Cell,
    method: &Method,
    settings: &Finetune,
) -> Result<(Model, Row)> {
    let shape = bench.frame.shape(cell.depth, cell.width)?;
    let mut choices: Init = bench.recipe.stage("init", Some(&method.init))?;
    let donor = |name: &Option<String>| {
        let name = name.as_ref();
        name.map(|name| bench.donor(name, cell.seed)).transpose()
    };
    let from = donor(&method.donor)?;
    if let Some(donor) = &from
        && donor.gives_all_positions(&shape)
    {
        // [init] is for all methods, and these positions for those that leave some open.
        let own = |key: &str| method.init.contains_key(key);
        choices.positions.take_if(|_| !own("positions"));
        choices.position_scale.take_if(|_| !own("position_scale"));
    }
    let mut shared_epochs = 0.0;
    if let (Some(small), Some(large)) = (donor(&method.resembles)?, &from) {
        let data = bench.open_data(&settings.training)?;
        choices.similarity = Some(similarity::of_layers(large, &small, &data)?);
        shared_epochs += small.epochs;
    }
    let images = match &from {
        Some(donor) if wave_init::find(&method.start)?.images => {
            let mut plan = DataPlan::new(&settings.training)?;
            let most = choices.train_limit.unwrap_or(init::SAMPLE);
            plan.train_limit = Some(plan.train_limit.map_or(most, |own| own.min(most)));
            let transform = &bench.frame.transform;
            let images = init::sample(&plan, transform, &donor.shape, bench.context())?;
            Some(images)
        }
        _ => None,
    };
    let begun = init::start(
        &method.start,
        &shape,
        (from.as_ref(), images.as_ref()),
        &init::choices(&method.start, &choices)?,
        method.fresh_seed(cell.seed),
    )?;
    let mut model = bench.frame.model(shape.clone(), begun.weights, Value::Null);
    let mut row = Row {
        transferred_parameters: begun.cost.transferred,
        stored_parameters: begun.cost.stored,
        shared_epochs: shared_epochs + begun.cost.extra_epochs,
        ..Row::default()
    };
    if let (Some(table), Some(small)) = (method.operator_training(), &from) {
        let mut training = bench.finetune_table(&cell.dataset, &table)?.training;
        training.optimisation.seed = Some(cell.seed);
        training.images.hold_out = settings.training.images.hold_out;
        let data = bench.open_data(&training)?;
        let resolved = TrainingPlan::new(&training, finetune::DEFAULTS)?.resolve(&data)?;
        let label = format!("operator of {}", cell.file_name());
        let (grown, epochs) = grow(small, &shape, &data, &resolved, &label, &bench.options)?;
        // A classifier with other classes is reinitialised.
        let kept = small.shape.classes == shape.classes;
        let grown = grown.into_iter();
        let grown = grown.filter(|(name, _)| kept || !name.starts_with("head"));
        model.weights.extend(grown);
        row.own_epochs += epochs;
    }
    Ok((model, row))
}

fn from_templates(
    bench: &Bench,
    cell: &Cell,
    method: &Method,
    settings: &Finetune,
) -> Result<(Model, Row)> {
    let templates = templates::read(bench.artefacts.templates(&cell.method, cell.seed)?)?;
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
    let open = || Data::open(&plan.data, input, bench.context());
    let data = fits.then(open).transpose()?;
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
    let mut model = made.model;
    let mut row = Row {
        transferred_parameters: taken(gene, &shape, method.inherit.as_deref()),
        stored_parameters: gene.ledger().iter().map(|(_, n)| n).sum(),
        shared_epochs: templates.config.all_epochs().iter().sum(),
        ..Row::default()
    };
    if let Some(ancestor) = &method.donor {
        row.shared_epochs += bench.donor_epochs(ancestor, cell.seed)?;
    }
    if let Some(fit) = &made.fit {
        row.own_epochs = fit.epochs;
        let fitted = made.ledger.iter().find(|(key, _)| *key == "scalers");
        row.scalers_fitted = fitted.map_or(0, |(_, n)| *n);
    }
    if let Some(inherited) = &method.inherit {
        let seed = method.fresh_seed(cell.seed);
        let fresh = init::start("timm", &shape, (None, None), &Choices::default(), seed)?;
        for (name, tensor) in fresh.weights {
            if !inherited.iter().any(|component| component.holds(&name))
                && model.weights.get(&name).map(|t| t.dims()) == Some(tensor.dims())
            {
                model.weights.insert(name, tensor);
            }
        }
    }
    Ok((model, row))
}

/// Number of values that a model of this shape inherits: from the given components, or from all of them.
fn taken(gene: &Learngene, shape: &VitShape, inherited: Option<&[Component]>) -> usize {
    let plan = &gene.used_by(shape).plan;
    let is_taken = |name: &str| inherited.is_none_or(|all| all.iter().any(|c| c.holds(name)));
    let mut sets = BTreeSet::new();
    let mut sum = 0;
    for (part, set) in &plan.sets {
        if is_taken(part.stacked_name()) {
            sets.insert(set);
            sum += shape.depth * plan.scaler_shape(*part, shape).iter().product::<usize>();
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
fn pretrain(
    bench: &Bench,
    cell: &Cell,
    settings: &Finetune,
    model: &mut Model,
    row: &mut Row,
) -> Result<()> {
    // Shared by learning-rate trials and the run with the same seed.
    let name = cell.of_size();
    let mut all = lock(&bench.pretraining);
    let pretraining = all.entry(name.clone()).or_default().clone();
    drop(all);
    let _alone = lock(&pretraining);
    let dir = bench.out.join("pretrained").join(&name);
    let begun = begin(model, "Not yet trained.", &dir)?;
    let same = bench.donor_like(&begun, settings)?;
    if same.is_none() {
        finetune::finetune(&begun, settings, &dir, &bench.options)
            .with_context(|| format!("pretraining {name}"))?;
    }
    let trained = Model::read(same.unwrap_or(&dir), bench.context())?;
    row.own_epochs += trained.provenance["epochs"].as_f64().unwrap_or(0.0);
    row.transferred_parameters = trained.parameters();
    row.stored_parameters = trained.parameters();
    model.weights = trained.weights;
    Ok(())
}
