//! `wave finetune`: trains all weights of a model, as an ordinary network.

use crate::ancestor::Ancestor;
use crate::lesson::Lesson;
use crate::model::{Model, Network};
use crate::origin;
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::Rng;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use wave_hub::FloatType;
use wave_init::transfer::indices::Layers;
use wave_init::transfer::nested;
use wave_learngene::{Objective, Sizes};
use wave_models::vit::VitShape;
use wave_models::{Weights, convmixer, transformer, vit};
use wave_run::data::{self, Data, Input, TestImages};
use wave_run::device::place;
use wave_run::error::request;
use wave_run::forecast;
use wave_run::inputs::Inputs;
use wave_run::paths::text;
use wave_run::ranks::{self, ranks};
pub use wave_run::run_dir::Options;
use wave_run::run_dir::{Opened, RunDir};
use wave_run::settings::{Duration, Finetune};
use wave_run::train::{self, Defaults, Job, Outcome, Resolved};
use wave_train::{Part, Scores, Variable};

mod plan;

pub use plan::Plan;
pub use plan::describe;

/// What fine-tuning does where the settings are silent.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(10.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// Fine-tunes the model in `model` and writes the result to `out`. Returns what `--json` prints.
pub fn finetune(model: &Path, settings: &Finetune, out: &Path, options: Options) -> Result<Value> {
    let inputs = Inputs::default()
        .artefact("model", model)?
        .artefact_if_any("ancestor", settings.ancestor.as_deref())?;
    let source = model;
    let plan = Plan::read(source, settings, out, options.repeats(out))?;
    plan.step.check()?;
    let Plan {
        mut model,
        ancestor,
        layout,
        settings,
        data,
        resolved,
        ..
    } = plan;
    let settings = &settings;
    data.tell_classes(&model.label_names);
    let origin = match &ancestor {
        Some(ancestor) => origin::both(&origin::of(source, &model.provenance), &ancestor.origin),
        None => origin::of(source, &model.provenance),
    };
    let inputs = inputs.images(settings.training.data.as_deref(), &data);
    let table = wave_run::recipe::to_table(settings)?;
    let mut run = match RunDir::open(out, &table, &inputs, options)? {
        Opened::Complete(result) => return Ok(result),
        Opened::Run(run) => run,
    };
    let task = Task {
        label: "finetune".into(),
        settings,
        resolved: &resolved,
        data: &data,
        ancestor,
        options,
        every_epoch: true,
    };
    let outcome = tune(&mut model, &task, Some(&mut run))?;
    model.provenance = json!({
        "stage": "finetune",
        "version": env!("CARGO_PKG_VERSION"),
        "data": data.spec,
        "seed": resolved.seed,
        "steps": resolved.steps,
        "epochs": resolved.steps as f64 / data.loader.steps_per_epoch() as f64,
        "images_seen": resolved.steps * data.batch as u64,
        "origin": origin,
        "start": model.provenance,
    });
    let scores = stored_scores(&model, layout.float, &data, outcome.scores)?;
    let top1 = scores.map(|s| s.top1);
    let summary = format!(
        "Fine-tuned on {} for {} steps with wave{}.",
        data.spec,
        resolved.steps,
        top1.map_or(String::new(), |t| format!(": top-1 {:.2} %", 100.0 * t)),
    );
    let mut result = json!({ "out": text(out), "parameters": model.parameters(), "top1": top1 });
    data::count_broken(&mut result, data.tell_broken());
    ranks::on_first(|| run.complete(&result, || model.write(out, layout, None, &summary)))?;
    Ok(result)
}

/// All weights as variables, without a rate where `freeze` names them; `depth` as for
/// [`train::variable`].
///
/// # Errors
/// If `freeze` names nothing.
pub fn variables(
    weights: &Weights,
    settings: &Finetune,
    resolved: &Resolved,
    depth: usize,
) -> Result<Vec<Variable>> {
    check_frozen(weights, settings)?;
    let frozen = settings.freeze.as_deref().unwrap_or_default();
    let variable = |(name, t): (&String, &Tensor)| {
        let mut v = train::variable(name, t, resolved, depth)?;
        if frozen.iter().any(|text| name.contains(text)) {
            v.rate.clear();
        }
        Ok(v)
    };
    weights.iter().map(variable).collect()
}

/// Refuses a `freeze` that names nothing.
pub fn check_frozen(weights: &Weights, settings: &Finetune) -> Result<()> {
    let mut frozen = settings.freeze.iter().flatten();
    match frozen.find(|text| !weights.keys().any(|name| name.contains(*text))) {
        None => Ok(()),
        Some(text) => {
            let names: Vec<&str> = weights.keys().map(String::as_str).collect();
            Err(request(format!(
                "freeze: no weight's name holds {text}; there are {}",
                names.join(", ")
            )))
        }
    }
}

/// Opens the data for a model; gives the model a new head if the settings ask for one.
pub fn open_data(model: &mut Model, settings: &Finetune) -> Result<Data> {
    let data = Data::open(&settings.training, Input::Like(model.transform.clone()))?;
    if settings.new_head.unwrap_or(false) {
        reset_head(model, &data)?;
    }
    data.check_classes(
        model.network.classes(),
        "choose data with the model's classes, or start a new head with --new-head true",
    )?;
    Ok(data)
}

fn reset_head(model: &mut Model, data: &Data) -> Result<()> {
    let (classes, width) = (data.class_names.len(), model.network.size().1);
    model.weights.insert(
        "head.weight".into(),
        Tensor::zeros((classes, width), candle_core::DType::F32, &Device::Cpu)?,
    );
    model.weights.insert(
        "head.bias".into(),
        Tensor::zeros(classes, candle_core::DType::F32, &Device::Cpu)?,
    );
    match &mut model.network {
        Network::Vit(shape) => shape.classes = classes,
        Network::ConvMixer(shape) => shape.classes = classes,
        Network::ConvNext(shape) => shape.classes = classes,
        Network::Positional(shape) => shape.vit.classes = classes,
        Network::Transformer(shape) => shape.classes = classes,
        other => return Err(only_runs(other)),
    }
    model.label_names = data.class_names.clone();
    Ok(())
}

fn only_runs(network: &Network) -> anyhow::Error {
    let parts = match &network.parts()[..] {
        [] => String::new(),
        parts => format!(" with {}", parts.join(", ")),
    };
    request(format!(
        "{}{parts} only runs here: distil it with `wave condense --ancestor`, fine-tune what comes of it",
        network.family()
    ))
}

/// What to fine-tune on, and how.
pub struct Task<'a> {
    /// Shown beside the progress.
    pub label: String,
    /// As given.
    pub settings: &'a Finetune,
    /// With the gaps filled.
    pub resolved: &'a Resolved,
    /// Images.
    pub data: &'a Data,
    /// A frozen model to distil from as well.
    pub ancestor: Option<Arc<Ancestor>>,
    /// Resuming and talking.
    pub options: Options,
    /// Whether to test after every epoch.
    pub every_epoch: bool,
}

/// Trains all weights of `model` in place.
pub fn tune(model: &mut Model, task: &Task, run: Option<&mut RunDir>) -> Result<Outcome> {
    let Task {
        settings,
        resolved,
        data,
        ancestor,
        options,
        ..
    } = task;
    let verbosity = options.verbosity;
    let objective = Objective {
        ce_weight: 1.0,
        kl_weight: settings.kl_weight.unwrap_or(1.0),
        temperature: settings.temperature.unwrap_or(1.0),
    };
    let lesson = ancestor
        .as_deref()
        .map(|a| Lesson::new(a, data, None, verbosity))
        .transpose()?;
    let depth = match &model.network {
        Network::Vit(shape) => shape.depth,
        Network::Transformer(shape) if shape.trains() => shape.depth,
        other if other.trainable() => 0,
        other => return Err(only_runs(other)),
    };
    let start = model.network.prepare(&model.weights)?;
    let mut variables = variables(&start, settings, resolved, depth)?;
    for v in &mut variables {
        if convmixer::is_running_statistic(&v.name) {
            v.rate.clear(); // the forward pass maintains it
        }
    }
    let network = model.network.clone();
    let weights = train::tracked(&variables);
    let sizes = sizes_of_slices(settings, &network)?;
    let classes = network.classes();

    let loss = |batch: &wave_data::Batch, images: &Tensor, part: &Part| {
        let logits = match &network {
            Network::Vit(whole) => {
                let (shape, weights) = match &sizes {
                    None => (whole.clone(), weights.clone()),
                    Some(sizes) => slice(sizes, whole, &weights, (resolved.seed, part.step))?,
                };
                let scales = drop_path(shape.depth, part, resolved);
                vit::logits_in(resolved.mode, &shape, &weights, images, scales)?
            }
            Network::Transformer(shape) => {
                let scales = drop_path(shape.depth, part, resolved);
                transformer::logits_in(resolved.mode, shape, &weights, images, scales)?
            }
            Network::ConvMixer(shape) => {
                let (logits, statistics) = convmixer::logits_train(shape, &weights, images)?;
                let statistics = ranks::mean(statistics)?;
                for v in &variables {
                    if let Some(value) = statistics.get(&v.name) {
                        v.var.set(value)?;
                    }
                }
                logits
            }
            // Nothing else about these differs between training and evaluation.
            other => other.logits(&weights, images)?,
        };
        let ancestor = lesson.as_ref().map(|l| l.logits(batch, images));
        objective.loss(&logits, ancestor.transpose()?.as_ref(), || {
            wave_train::batch_targets(batch, classes, resolved.label_smoothing)
        })
    };
    let score = |values: &Weights| score(&network, values, &data.tests);
    let job = Job {
        label: task.label.clone(),
        settings: resolved,
        data: *data,
        variables: &variables,
        run,
        resume: options.resume,
        verbosity,
        every_epoch: task.every_epoch,
    };
    let outcome = train::train(job, loss, score)?;
    model.weights = match &model.network {
        Network::Vit(_) | Network::Transformer(_) => vit::unstack(&outcome.values)?,
        _ => outcome.values.clone(),
    };
    Ok(outcome)
}

/// The sizes whose slices of a network are trained, if the settings name some.
fn sizes_of_slices(settings: &Finetune, network: &Network) -> Result<Option<Sizes>> {
    if settings.depths.is_none() && settings.widths.is_none() {
        return Ok(None);
    }
    let Network::Vit(whole) = network else {
        return Err(request(format!(
            "depths and widths are of slices of a vision transformer, and this is {}; leave \
                 them out",
            network.family()
        )));
    };
    let depths = match settings.depths.as_deref() {
        None => (whole.depth, whole.depth),
        Some([least, most]) if (1..=*most).contains(least) && *most <= whole.depth => {
            (*least, *most)
        }
        Some(other) => {
            return Err(request(format!(
                "depths = {other:?}; give the least and the most, of {} layers",
                whole.depth
            )));
        }
    };
    let widths = settings.widths.clone().unwrap_or(vec![whole.width]);
    let head = whole.head_width();
    let fits = |w: &usize| *w > 0 && *w <= whole.width && w.is_multiple_of(head);
    match widths.iter().find(|w| !fits(w)) {
        None if widths.is_empty() => Err(request("widths is empty; give at least one")),
        None => Ok(Some(Sizes::constant(depths, widths))),
        Some(wrong) => Err(request(format!(
            "widths: {wrong} is not a multiple of the head width {head} up to the model's {}",
            whole.width
        ))),
    }
}

/// The slice of a network that a step trains.
fn slice(
    sizes: &Sizes,
    whole: &VitShape,
    weights: &Weights,
    (seed, step): (u64, u64),
) -> candle_core::Result<(VitShape, Weights)> {
    let (depth, width) = sizes.draw(step, 0, &mut train::size_generator(seed, step));
    let target = whole.with_size(depth, width);
    let slice = nested::slice(weights, whole, &target, Layers::Uniform);
    Ok((target, slice.map_err(candle_core::Error::wrap)?))
}

/// Drop-path scales (depth, 2, b) of a part of a step, if any branch may be dropped.
pub fn drop_path(depth: usize, part: &Part, settings: &Resolved) -> Option<Vec<f32>> {
    (settings.drop_path > 0.0).then(|| {
        let mut rng = train::step_generator(settings.seed ^ 0xd809, part.step);
        let rate = settings.drop_path;
        part.of(vit::drop_path_scales(depth, part.batch, rate, || {
            rng.random()
        }))
    })
}

/// Accuracy of values (as trained) on the test images.
pub fn score(network: &Network, values: &Weights, tests: &TestImages) -> Result<Scores> {
    let values = place(values)?;
    score_by(network, tests, |images| network.logits(&values, images))
}

/// Accuracy of a network whose class scores `logits` gives, on the test images.
pub fn score_by(
    network: &Network,
    tests: &TestImages,
    logits: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<Scores> {
    let at_once = forecast::test_batch(forecast::of_forward(network));
    Ok(wave_train::evaluate(
        ranks(),
        tests.batches(at_once),
        logits,
    )?)
}

/// The scores of the model as it reads back: those of its f32 weights, or, if it is stored as a
/// narrower type, measured again.
pub fn stored_scores(
    model: &Model,
    float: FloatType,
    data: &Data,
    scores: Option<Scores>,
) -> Result<Option<Scores>> {
    if float == FloatType::F32 || scores.is_none() {
        return Ok(scores);
    }
    let weights = model.network.prepare(&float.rounded(&model.weights)?)?;
    score(&model.network, &weights, &data.tests).map(Some)
}
