//! `wave finetune` and `wave eval` of a population.

use super::WHAT;
use super::memory::memory;
use super::model::{PopulationModel, float};
use super::network::{self, PopulationShape};
use super::settings::Finetune;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;
use wave_data::{Batch, DataError};
use wave_hub::FloatType;
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input, TestImages, count_broken};
use wave_run::error::request;
use wave_run::forecast::Step;
use wave_run::inputs::Inputs;
use wave_run::recipe::{means_nothing, narrow, to_table};
use wave_run::run_dir::{self, Made};
use wave_run::settings::{self, BatchSize, Duration, Eval};
use wave_run::train::{self, Course, Defaults, Live, Resolved, Trainee, TrainingPlan};
use wave_stages::family::refuse_of_images;
use wave_stages::finetune::{self, Options};
use wave_stages::origin;
use wave_train::{Examples, MicroBatch, Scores, Variable};

/// Values for settings that are not given.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(500),
    lr: 1e-2,
    weight_decay: 0.01,
};

/// Default number of images of each network in a step.
const BATCH: usize = 16;

/// Test images read at once.
const TEST_BATCH: usize = 250;

/// Test images of each network at once.
const TESTED: usize = 16;

/// Trains the networks of the population in `dir`, each on its own images, and writes them to `out`.
/// Returns the output of `--json`: `top1` is the mean over the networks.
///
/// # Errors
/// If settings are wrong or do not fit the population, or the work fails.
pub(super) fn finetune(
    dir: &Path,
    settings: &settings::Finetune,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let context = &options.context;
    let ready = Ready::read(dir, settings, context)?;
    ready.step.check()?;
    let inputs = Inputs::new(context)
        .artefact("model", dir)?
        .images(settings.training.images.data.as_deref(), &ready.data);
    run_dir::fill(out, &to_table(settings)?, &inputs, options, |run| {
        let course = Course {
            label: "finetune",
            data: &ready.data,
            resolved: &ready.resolved,
            every_epoch: false,
        };
        let outcome = train::train(&ready, &course, Some(run), options)?;
        let Ready {
            mut model,
            float,
            data,
            resolved,
            ..
        } = ready;
        model.weights = outcome.values.clone();
        let of_each = outcome.steps * (data.batch / model.shape.networks) as u64;
        model.provenance = json!({
            "stage": "finetune",
            "version": env!("CARGO_PKG_VERSION"),
            "data": data.spec,
            "seed": resolved.seed,
            "steps": outcome.steps,
            "images_seen": of_each,
            "origin": origin::of(dir, &model.provenance, context),
            "start": model.provenance,
        });
        let stored = float.rounded(&model.weights)?;
        let scores = outcome
            .scores
            .map(|_| scores(&model.shape, &stored, &data.tests))
            .transpose()?;
        let top1 = scores.map(|s| s.top1);
        let summary = format!(
            "Each network trained on {} for {} steps of images of its own with wave{}.",
            data.spec,
            outcome.steps,
            top1.map_or(String::new(), |t| format!(
                ": top-1 {:.2} % on average",
                100.0 * t
            )),
        );
        let mut result = json!({
            "parameters": model.parameters(),
            "top1": top1,
            "images_seen": of_each,
        });
        outcome.tell(&mut result);
        count_broken(&mut result, data.tell_broken());
        Ok(Made {
            result,
            write: Box::new(move || model.write(out, float, &summary)),
        })
    })
}

/// Mean accuracy of the networks of the population in `dir`. Returns the output of `--json`.
///
/// # Errors
/// If settings are wrong or do not fit the population, or the work fails.
pub(super) fn eval(dir: &Path, settings: &Eval, context: &Context) -> Result<Value> {
    refuse_of_images(settings)?;
    let model = PopulationModel::read(dir, context)?;
    let mut plan = DataPlan::of_images(&settings.images(), settings.seed)?;
    plan.spec = plan.spec.or_else(|| own_data(&model));
    let tests = TestImages::open(&plan, &model.transform, context)?;
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

/// Advice for data with other classes.
const REMEDY: &str = "choose data with the population's classes";

/// The data of the population, if recorded.
fn own_data(model: &PopulationModel) -> Option<String> {
    let own = [&model.provenance, &model.provenance["start"]];
    let own = own.iter().find_map(|p| p["data"].as_str());
    own.map(String::from)
}

/// A population with all inputs of its training, checked.
struct Ready {
    model: PopulationModel,
    float: FloatType,
    frozen: Vec<String>,
    data: Data,
    resolved: Resolved,
    step: Step,
}

impl Ready {
    fn read(dir: &Path, settings: &settings::Finetune, context: &Context) -> Result<Ready> {
        let own: Finetune = narrow(settings, WHAT)?;
        if own.optimisation.accumulate.is_some() {
            return Err(means_nothing("accumulate", WHAT));
        }
        context.only_one(&format!("{WHAT} trains"))?;
        let model = PopulationModel::read(dir, context)?;
        let float = float(&own.output)?;
        let training = own.training();
        let data = open(
            &model,
            DataPlan::new(&training)?,
            own.optimisation.batch,
            context,
        )?;
        let resolved = TrainingPlan::of_images(&training, DEFAULTS)?.resolve(&data)?;
        let frozen = own.freeze.unwrap_or_default();
        finetune::check_frozen(&model.weights, &frozen)?;
        let memory = memory(&model.shape);
        let step = Step::new(memory, &data, &resolved, model.shape.networks)?;
        Ok(Ready {
            model,
            float,
            frozen,
            data,
            resolved,
            step,
        })
    }
}

impl Trainee for Ready {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        finetune::variables(&self.model.weights, &self.frozen, &self.resolved, 0, device)
    }

    /// The mean over all networks: each network's gradient is divided by their number, which Adam
    /// cancels.
    fn loss(
        &self,
        live: &Live,
        batch: &Batch,
        images: &Tensor,
        _: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let shape = &self.model.shape;
        let logits = network::logits(shape, &live.weights, images)?;
        let smoothing = self.resolved.label_smoothing;
        let targets = wave_train::batch_targets(batch, shape.classes, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        scores(&self.model.shape, values, &self.data.tests)
    }
}

/// The output of `wave finetune --dry-run` for a population.
///
/// # Errors
/// As [`finetune()`]'s own, before its first step.
pub(super) fn describe(
    dir: &Path,
    settings: &settings::Finetune,
    context: &Context,
) -> Result<String> {
    let ready = Ready::read(dir, settings, context)?;
    Ok(format!(
        "{:#?}\n{} parameters\n{}{}{}",
        ready.model.shape,
        ready.model.parameters(),
        ready.data.describe(),
        ready.resolved.describe(&ready.data),
        ready.step.words()
    ))
}

/// Images for all networks: a batch holds those of every network.
fn open(
    model: &PopulationModel,
    plan: DataPlan,
    batch: Option<BatchSize>,
    context: &Context,
) -> Result<Data> {
    let of_each = match batch {
        None => BATCH,
        Some(BatchSize::Images(images)) => images,
        Some(BatchSize::Auto) => {
            return Err(request(format!(
                "batch = auto is for transformers; give a number of images for each network of {WHAT}"
            )));
        }
    };
    let plan = DataPlan {
        batch: BatchSize::Images(of_each * model.shape.networks),
        spec: plan.spec.or_else(|| own_data(model)),
        ..plan
    };
    let data = Data::open(&plan, Input::Like(model.transform.clone()), context)?;
    data.check_classes(model.shape.classes, REMEDY)?;
    Ok(data)
}

/// Mean scores of all networks on the same test images.
fn scores(shape: &PopulationShape, weights: &Weights, tests: &TestImages) -> Result<Scores> {
    let weights = tests.context.place(weights)?;
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
    let logits = |images: &Tensor| network::logits(shape, &weights, images);
    let mut scores = wave_train::evaluate(tests.context.ranks(), batches, logits)?;
    scores.images /= n;
    Ok(scores)
}
