//! The output of `wave condense --dry-run`.

use super::{CondensePlan, levels, planner, rate, start};
use crate::ancestor::{Ancestor, AncestorOutput, planned};
use anyhow::Result;
use serde_json::json;
use std::sync::Arc;
use wave_artefacts::templates::{self, Description, TemplateDir};
use wave_data::{Source, Transform};
use wave_run::context::Context;
use wave_run::data::Data;
use wave_run::error::request;
use wave_run::forecast::{self, Step, bytes, duration};
use wave_run::recipe::to_table;
use wave_run::run_dir;
use wave_run::settings::{Condense, DEFAULT_BATCH, Trained};

/// Number of files whose size is sampled.
const SAMPLED: usize = 256;
/// Images and layers of timed steps.
const TIMED: usize = 2;
const TIMED_LAYERS: usize = 2;

/// Sizes of the data set.
struct Numbers {
    name: String,
    images: usize,
    channels: usize,
    classes: usize,
    batch: usize,
    per_epoch: usize,
    /// Mean bytes per file, if images are files.
    file: Option<f64>,
}

impl Numbers {
    fn of(data: &Data, plan: &CondensePlan, ancestor: Option<&Ancestor>) -> Numbers {
        Numbers {
            name: data.spec.clone(),
            images: data.train_indices.len(),
            channels: data.transform.channels,
            classes: plan.outputs(ancestor, data),
            batch: data.batch,
            per_epoch: data.loader.steps_per_epoch(),
            file: mean_file(&*data.train),
        }
    }

    /// ImageNet's sizes, used if no data is named.
    fn of_imagenet(plan: &CondensePlan) -> Numbers {
        let images = plan.data.train_limit.unwrap_or(usize::MAX).min(1_281_167);
        let batch = plan.data.batch.images().unwrap_or(DEFAULT_BATCH);
        Numbers {
            name: "not given; assuming ImageNet".into(),
            images,
            channels: 3,
            classes: 1000,
            batch,
            per_epoch: (images / batch.max(1)).max(1),
            file: Some(110e3),
        }
    }
}

fn mean_file(source: &dyn Source) -> Option<f64> {
    let every = (source.len() / SAMPLED).max(1);
    let sizes: Vec<f64> = (0..source.len())
        .step_by(every)
        .filter_map(|i| Some(source.encoded(i).ok()??.len() as f64))
        .collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum::<f64>() / sizes.len() as f64)
}

/// Sizes, parameters, work, memory, disk space, and time measured in a few steps. `ancestor` is one
/// that is not trained yet; otherwise it is the one in the settings, unless it would have to be
/// downloaded. Without data, the numbers are those of ImageNet.
///
/// # Errors
/// As the condensation's own, before its first step, except that too little memory is not an error,
/// since the plan may be for another machine.
pub fn describe(
    settings: &Condense,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<String> {
    let (settings, ancestor, text) = filled(settings, ancestor, context)?;
    if let Some(text) = text {
        return Ok(text);
    }
    let plans = super::level_plans(&levels::checked(&settings)?, context)?;
    let levels = plans.len();
    let of_level = |(at, plan): (usize, CondensePlan)| {
        let text = describe_level(plan, ancestor.as_deref(), context)?;
        Ok(match levels {
            1 => text,
            _ => format!("level {at} of levels:\n{text}"),
        })
    };
    plans.into_iter().enumerate().map(of_level).collect()
}

/// Completes the settings with an ancestor and, if they give minutes, with a plan. Also returns the ancestor, if
/// available, and the plan in words.
fn filled(
    settings: &Condense,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<(Condense, Option<Arc<Ancestor>>, Option<String>)> {
    let mut settings = settings.clone();
    let ancestor = match (ancestor, &settings.ancestor) {
        (Some(trained), None) => {
            settings.ancestor = Some(String::new()); // a placeholder: not on disk yet
            Some(trained)
        }
        (_, named) => planned(named.as_deref(), &settings.zero_shot, context)?,
    };
    if settings.minutes.is_none() || settings.levels.is_some() {
        return Ok((settings, ancestor, None));
    }
    let (settings, text) = planner::plan(&settings, ancestor.as_deref(), context)?;
    Ok((settings, ancestor, Some(text)))
}

/// Untrained templates, as at the start of a condensation, so that later stages can be planned. The ancestor is as
/// for [`describe`].
///
/// # Errors
/// As [`describe`].
pub fn untrained(
    settings: &Condense,
    ancestor: Option<Arc<Ancestor>>,
    context: &Context,
) -> Result<TemplateDir> {
    let (settings, ancestor, _) = filled(settings, ancestor, context)?;
    let ancestor = ancestor.as_deref();
    let mut plans = super::level_plans(&levels::checked(&settings)?, context)?;
    let Some(mut plan) = plans.pop() else {
        return Err(request(
            "levels is empty; give the changes of at least one level",
        ));
    };
    let data = opened(&mut plan, ancestor, context)?;
    let (channels, classes) = match &data {
        Some(data) => (data.transform.channels, plan.outputs(ancestor, data)),
        None => (plan.auxiliary.channels, plan.auxiliary.classes),
    };
    let features = plan.output(ancestor) == AncestorOutput::Features;
    let mut plan = plan.on(channels, classes);
    plan.templates.levels.clear(); // the last level has all templates
    let gene = start::start(&plan, 0)?;
    let gene = if features { gene.headless() } else { gene };
    let half = || vec![0.5; channels];
    let transform = match &data {
        Some(data) => data.transform.clone(),
        None => Transform::new(plan.auxiliary.image_size, half(), half()),
    };
    let about = Description {
        transform: &transform,
        label_names: data.map_or_else(Vec::new, |data| data.class_names),
        provenance: json!({
            "depths": [plan.sizes.depths.0, plan.sizes.depths.1],
            "widths": plan.sizes.widths,
        }),
        accuracies: Vec::new(),
        shapes: Vec::new(),
    };
    Ok(templates::in_memory(gene, about))
}

/// Opens the data of a plan, if it names any, and resolves the batch size.
fn opened(
    plan: &mut CondensePlan,
    ancestor: Option<&Ancestor>,
    context: &Context,
) -> Result<Option<Data>> {
    plan.fit_batch(None, context)?;
    let named = plan.data.spec.is_some();
    named.then(|| plan.open_data(ancestor, context)).transpose()
}

fn describe_level(
    mut plan: CondensePlan,
    ancestor: Option<&Ancestor>,
    context: &Context,
) -> Result<String> {
    let data = opened(&mut plan, ancestor, context)?;
    let output = plan.output(ancestor);
    if let (Some(data), Some(ancestor)) = (&data, ancestor) {
        ancestor.check(data, output)?;
    }
    let mode = plan.training.mode(context)?;
    let numbers = match &data {
        Some(data) => {
            plan.training.resolve(data)?; // only as a check
            Numbers::of(data, &plan, ancestor)
        }
        None => Numbers::of_imagenet(&plan),
    };
    let (images, classes, batch) = (numbers.images, numbers.classes, numbers.batch);
    let parts = plan.training.accumulate;
    let steps = plan.training.duration.steps(numbers.per_epoch);
    let plan = plan.on(numbers.channels, classes);
    if data.is_some() && ancestor.is_some() {
        start::check(&plan, ancestor)?;
    }
    let a = &plan.auxiliary;
    let largest = plan.largest();
    let ledger = plan.ledger();
    let values = ledger.iter().map(|(_, n)| n).sum::<usize>();
    let step = Step::of_images(plan.memory(ancestor, mode), batch, parts, context);
    let epochs = steps as f64 / numbers.per_epoch as f64;

    let counts = &plan.templates.counts;
    let t = plan.templates.template_size;
    let outputs = match output {
        AncestorOutput::Scores => "classes",
        AncestorOutput::Features => "ancestor features",
    };
    let mut text = format!(
        "data: {}\n{images} images, {classes} {outputs}\nauxiliary: {} anchors, width {}, {} \
         heads, {side} x {side} pixels, patch size {}\nmodels: {}\ntemplates of {t} x {t}:",
        numbers.name,
        a.depth,
        a.width,
        a.heads,
        a.patch,
        planner::sizes_in_words(plan.sizes.depths, &plan.sizes.widths),
        side = a.image_size,
    );
    for (set, n) in counts {
        text += &format!(" {n} {set}");
    }
    text += &format!(" ({} in total)\n", counts.values().sum::<usize>());
    let trained = match plan.train {
        Trained::Weights => "composed weights",
        Trained::Factors => "templates and scalers",
    };
    let optimiser = match plan.training.muon {
        true => "Muon",
        false => "AdamW",
    };
    text += &format!("trains {trained} with {optimiser}\n");
    let twin = largest.parameter_count();
    let sums = [("transferred", values), ("plain ViT", twin)];
    for (name, n) in ledger.iter().chain(&sums) {
        text += &format!("{name:12} {n:>12}\n");
    }
    match (ancestor, &plan.ancestor) {
        (Some(ancestor), _) => text += &format!("ancestor: {}\n", ancestor.describe()),
        (None, Some(name)) => {
            text += &format!("ancestor: {name}, not yet downloaded; time unknown\n");
        }
        (None, None) => text += "ancestor: none, labels only\n",
    }
    text += &format!("{steps} steps of {batch} images ({epochs:.1} epochs)\n");
    text += &step.words();
    let state = forecast::checkpoint(plan.values_in_training(), plan.training.ema.is_some());
    text += &format!(
        "{} per checkpoint, and as much for the previous one\n",
        bytes(state as f64)
    );
    if let Some(file) = numbers.file {
        let epoch = file * images as f64;
        text += &format!(
            "reads {} per epoch in files of {}, {} in total\n",
            bytes(epoch),
            bytes(file),
            bytes(epoch * epochs)
        );
    }
    if let Some(cache) = &plan.cache {
        cache.check()?;
        let room = cache.bytes_per_image(output, classes);
        text += &format!(
            "the cache takes {room} bytes per image and view, {} per view\n",
            bytes((room * images) as f64)
        );
    }
    let few = largest.with_size(TIMED_LAYERS.min(largest.depth), largest.width);
    if !step.can_time(TIMED) {
        return Ok(text);
    }
    // Forward and backward: three times the multiply-adds, two operations each.
    let operations = plan.mean_multiply_adds() * 6.0 * batch as f64 * steps as f64;
    let rate = rate::condensing(&few, TIMED, mode, context.device())?;
    text += &format!(
        "{:.0} GFLOP/s here, measured at {} x {}",
        rate / 1e9,
        few.depth,
        few.width
    );
    let shown = match (ancestor, &data) {
        (Some(ancestor), Some(data)) => {
            let shown = ancestor.shown(data, steps, output);
            let seconds = ancestor.seconds(output)?;
            text += &format!(
                "; the ancestor processes {shown} images at {:.1} per second",
                1.0 / seconds
            );
            seconds * shown as f64
        }
        _ => 0.0,
    };
    let time = duration(operations / rate + shown);
    text += &format!("; {time} at these rates, without data loading\n");
    Ok(text)
}

/// The recipe of a condensation whose settings give minutes, with all planned settings.
///
/// # Errors
/// As [`describe`].
pub fn print_recipe(settings: &Condense, context: &Context) -> Result<String> {
    let ancestor = planned(settings.ancestor.as_deref(), &settings.zero_shot, context)?;
    let (settings, text) = planner::plan(settings, ancestor.as_deref(), context)?;
    let recipe = run_dir::of_stage("condense", &to_table(&settings)?);
    let text = text.lines().map(|line| format!("# {line}\n"));
    Ok(text.collect::<String>() + &toml::to_string(&recipe)?)
}
