//! `wave finetune` and `wave eval` of a population.

use super::WHAT;
use super::model::{PopulationModel, float};
use anyhow::Result;
use candle_core::Tensor;
use serde_json::{Value, json};
use std::path::Path;
use wave_data::{Batch, DataError};
use wave_hub::FloatType;
use wave_models::{PopulationShape, Weights, population};
use wave_run::data::{Data, Input, TestImages, count_broken};
use wave_run::device::place;
use wave_run::error::request;
use wave_run::forecast::{Memory, Step};
use wave_run::inputs::Inputs;
use wave_run::paths;
use wave_run::ranks::{self, ranks};
use wave_run::recipe::{check_keys, to_table};
use wave_run::run_dir::{Opened, RunDir};
use wave_run::settings::{BatchSize, Duration, Finetune, Training};
use wave_run::train::{self, Defaults, Job, Resolved};
use wave_stages::finetune::{self, Options};
use wave_stages::origin;
use wave_train::{Examples, MicroBatch, Scores};

/// What training does where the settings are silent.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(500),
    lr: 1e-2,
    weight_decay: 0.01,
};

/// Images of each network in a step, where the settings are silent.
const BATCH: usize = 16;

/// Test images that are read at once.
const TEST_BATCH: usize = 250;

/// Test images of each network at once.
const TESTED: usize = 16;

/// The settings that a population knows.
const KEYS: [&str; 24] = [
    "data",
    "train_limit",
    "test_limit",
    "hold_out",
    "epochs",
    "steps",
    "batch",
    "lr",
    "min_lr_ratio",
    "weight_decay",
    "warmup_epochs",
    "label_smoothing",
    "ema",
    "clip",
    "crop_padding",
    "flip",
    "checkpoint_steps",
    "checkpoint_minutes",
    "keep",
    "seed",
    "freeze",
    "format",
    "dtype",
    "views",
];

/// Trains the networks of the population in `dir`, each on images of its own, and writes them to `out`.
/// Returns what `--json` prints: `top1` is the mean over the networks.
///
/// # Errors
/// If settings are wrong or do not fit the population, or the work fails.
pub(super) fn finetune(
    dir: &Path,
    settings: &Finetune,
    out: &Path,
    options: Options,
) -> Result<Value> {
    let plan = Plan::read(dir, settings)?;
    plan.step.check()?;
    let Plan {
        mut model,
        float,
        data,
        resolved,
        ..
    } = plan;
    let variables = finetune::variables(&model.weights, settings, &resolved, 0)?;
    let inputs = Inputs::default()
        .artefact("model", dir)?
        .images(settings.training.data.as_deref(), &data);
    let mut run = match RunDir::open(out, &to_table(settings)?, &inputs, options)? {
        Opened::Complete(result) => return Ok(result),
        Opened::Run(run) => run,
    };
    let weights = train::tracked(&variables);
    let shape = model.shape.clone();
    // The mean over all networks: each has the gradient of its own loss over their number, which
    // Adam takes out again.
    let loss = |batch: &Batch, images: &Tensor, _: &MicroBatch| {
        let logits = population::logits(&shape, &weights, images)?;
        let smoothing = resolved.label_smoothing;
        let targets = wave_train::batch_targets(batch, shape.classes, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    };
    let score = |values: &Weights| scores(&shape, values, &data.tests);
    let job = Job {
        label: "finetune".into(),
        settings: &resolved,
        data: &data,
        variables: &variables,
        run: Some(&mut run),
        resume: options.resume,
        verbosity: options.verbosity,
        every_epoch: false,
    };
    let outcome = train::train(job, loss, score)?;
    model.weights = outcome.values;
    let of_each = resolved.steps * (data.batch / shape.networks) as u64;
    model.provenance = json!({
        "stage": "finetune",
        "version": env!("CARGO_PKG_VERSION"),
        "data": data.spec,
        "seed": resolved.seed,
        "steps": resolved.steps,
        "images_seen": of_each,
        "origin": origin::of(dir, &model.provenance),
        "start": model.provenance,
    });
    let stored = float.rounded(&model.weights)?;
    let scores = outcome
        .scores
        .map(|_| scores(&shape, &stored, &data.tests))
        .transpose()?;
    let top1 = scores.map(|s| s.top1);
    let summary = format!(
        "Each network trained on {} for {} steps of images of its own with wave{}.",
        data.spec,
        resolved.steps,
        top1.map_or(String::new(), |t| format!(
            ": top-1 {:.2} % on average",
            100.0 * t
        )),
    );
    let mut result = json!({
        "out": paths::text(out),
        "parameters": model.parameters(),
        "top1": top1,
        "images_seen": of_each,
    });
    count_broken(&mut result, data.tell_broken());
    run.complete(&result, || model.write(out, float, &summary))?;
    Ok(result)
}

/// Mean accuracy of the networks of the population in `dir`. Returns what `--json` prints.
///
/// # Errors
/// If settings are wrong or do not fit the population, or the work fails.
pub(super) fn eval(dir: &Path, training: &Training) -> Result<Value> {
    check_keys(training, &KEYS, WHAT)?;
    let model = PopulationModel::read(dir)?;
    training.validate()?;
    let tests = TestImages::open(&with_data(&model, training), &model.transform)?;
    tests.check_classes(model.shape.classes, REMEDY)?;
    let scores = scores(&model.shape, &model.weights, &tests)?;
    let mut result = json!({
        "top1": scores.top1,
        "top5": scores.top5,
        "loss": scores.loss,
        "images": scores.images,
        "networks": model.shape.networks,
    });
    count_broken(&mut result, tests.tell_broken());
    Ok(result)
}

/// What to do about data of other classes.
const REMEDY: &str = "choose data with the population's classes";

/// The settings with the data that the population was made for, if they name none.
fn with_data(model: &PopulationModel, training: &Training) -> Training {
    let mut training = training.clone();
    if training.data.is_none() {
        let own = [&model.provenance, &model.provenance["start"]];
        let own = own.iter().find_map(|p| p["data"].as_str());
        training.data = own.map(String::from);
    }
    training
}

/// What is to be trained, checked.
struct Plan {
    model: PopulationModel,
    float: FloatType,
    data: Data,
    resolved: Resolved,
    step: Step,
}

impl Plan {
    fn read(dir: &Path, settings: &Finetune) -> Result<Plan> {
        check_keys(settings, &KEYS, WHAT)?;
        ranks::only_one(&format!("{WHAT} trains"))?;
        let model = PopulationModel::read(dir)?;
        let float = float(&settings.output)?;
        let data = open(&model, &settings.training)?;
        let resolved = Resolved::new(&settings.training, DEFAULTS, &data)?;
        finetune::check_frozen(&model.weights, settings)?;
        let memory = Memory::of_population(&model.shape);
        let step = Step::new(memory, &data, &resolved, model.shape.networks)?;
        Ok(Plan {
            model,
            float,
            data,
            resolved,
            step,
        })
    }
}

/// What `wave finetune --dry-run` prints of a population.
///
/// # Errors
/// As [`finetune()`]'s own, before its first step.
pub(super) fn describe(dir: &Path, settings: &Finetune) -> Result<String> {
    let plan = Plan::read(dir, settings)?;
    Ok(format!(
        "{:#?}\n{} parameters\n{}{}{}",
        plan.model.shape,
        plan.model.parameters(),
        plan.data.describe(),
        plan.resolved.describe(&plan.data),
        plan.step.words()
    ))
}

/// Images for all networks: a batch holds those of each.
fn open(model: &PopulationModel, training: &Training) -> Result<Data> {
    training.validate()?;
    let networks = model.shape.networks;
    let of_each = match training.batch {
        None => BATCH,
        Some(BatchSize::Images(images)) => images,
        Some(BatchSize::Auto) => {
            return Err(request(format!(
                "batch = auto is for transformers; give a number of images for each network of {WHAT}"
            )));
        }
    };
    let mut training = with_data(model, training);
    training.batch = Some(BatchSize::Images(of_each * networks));
    let data = Data::open(&training, Input::Like(model.transform.clone()))?;
    data.check_classes(model.shape.classes, REMEDY)?;
    Ok(data)
}

/// Mean scores of all networks on the same test images.
fn scores(shape: &PopulationShape, weights: &Weights, tests: &TestImages) -> Result<Scores> {
    let weights = place(weights)?;
    let n = shape.networks;
    let for_each = |batch: Result<Batch, DataError>| -> Vec<Result<Batch, DataError>> {
        match batch {
            Err(error) => vec![Err(error)],
            Ok(batch) => (0..batch.size)
                .step_by(TESTED)
                .map(|from| {
                    let some = from..(from + TESTED).min(batch.size);
                    let rows: Vec<usize> = some.flat_map(|i| vec![i; n]).collect();
                    Ok(batch.select(&rows))
                })
                .collect(),
        }
    };
    let batches = tests.batches(TEST_BATCH).flat_map(for_each);
    let logits = |images: &Tensor| population::logits(shape, &weights, images);
    let mut scores = wave_train::evaluate(ranks(), batches, logits)?;
    scores.images /= n;
    Ok(scores)
}
