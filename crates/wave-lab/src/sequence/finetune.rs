//! `wave finetune` and `wave eval` of a sequence model.

use super::WHAT;
use super::memory::memory;
use super::model::{SequenceModel, float};
use super::network::{SequenceShape, logits_at};
use super::settings::Finetune;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;
use wave_data::task::{Task, TaskLoader, TokenBatch};
use wave_hub::FloatType;
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::forecast::Step;
use wave_run::inputs::Inputs;
use wave_run::recipe::{means_nothing, narrow, to_table};
use wave_run::run_dir::{self, Made};
use wave_run::settings::{self, BatchSize, Duration, Eval, OfTransformers};
use wave_run::train::{
    self, Course, Defaults, Live, Resolved, Trainee, TrainingData, TrainingPlan,
};
use wave_stages::family::refuse_of_images;
use wave_stages::finetune::{self, Options};
use wave_stages::origin;
use wave_train::{MicroBatch, Scores, TokenScores, Variable, evaluate_tokens};

/// Values for settings that are not given.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(1000),
    lr: 5e-3,
    weight_decay: 0.1,
};

/// Default number of sequences in a step.
const BATCH: usize = 32;

/// Default number of test sequences of each length.
const TESTS: usize = 512;

/// Sequences of a test batch.
const TEST_BATCH: usize = 32;

/// Multiples of the longest training length for tests.
const FACTORS: [usize; 3] = [1, 2, 4];

/// A task as data for training.
struct TaskData {
    task: Task,
    loader: TaskLoader,
    /// Number of test sequences of each length.
    tests: usize,
    context: Context,
}

impl TaskData {
    fn new(
        task: Task,
        batch: Option<BatchSize>,
        tests: Option<usize>,
        seed: u64,
        context: &Context,
    ) -> Result<TaskData> {
        let batch = match batch {
            None => BATCH,
            Some(BatchSize::Images(sequences)) => sequences,
            Some(BatchSize::Auto) => {
                return Err(request(
                    "batch = auto is for images; give a number for a sequence network",
                ));
            }
        };
        Ok(TaskData {
            loader: TaskLoader::new(task.clone(), batch, seed)?,
            task,
            tests: tests.unwrap_or(TESTS),
            context: context.clone(),
        })
    }

    fn scores(
        &self,
        shape: &SequenceShape,
        weights: &Weights,
        length: usize,
    ) -> Result<TokenScores> {
        let batches = self.task.test_batches(length, self.tests, TEST_BATCH);
        let weights = self.context.place(weights)?;
        let logits = |tokens: &Tensor, at: &Tensor| logits_at(shape, &weights, tokens, at);
        Ok(evaluate_tokens(&batches, logits)?)
    }

    /// Scores at multiples of the longest training length, as far as the task has such sequences.
    fn lengths(&self, shape: &SequenceShape, weights: &Weights) -> Result<Vec<Length>> {
        FACTORS
            .into_iter()
            .map(|factor| (factor, factor * self.task.lengths.1))
            .filter(|(_, length)| self.task.has(*length))
            .map(|(factor, length)| {
                Ok(Length {
                    factor,
                    length,
                    scores: self.scores(shape, weights, length)?,
                    unit: self.task.text().map(|text| text.vocabulary().unit().0),
                })
            })
            .collect()
    }
}

impl TrainingData for TaskData {
    type Batches = TaskLoader;

    fn batches(&self) -> &TaskLoader {
        &self.loader
    }

    fn has_tests(&self) -> bool {
        true
    }

    fn in_pairs(&self) -> bool {
        false
    }

    fn context(&self) -> &Context {
        &self.context
    }
}

/// Scores at one length.
struct Length {
    factor: usize,
    length: usize,
    scores: TokenScores,
    /// What a token of a text is.
    unit: Option<&'static str>,
}

impl Length {
    /// Bits per token, given the preceding ones: log2 of the perplexity.
    fn bits(&self) -> f64 {
        self.scores.tokens.loss / std::f64::consts::LN_2
    }

    fn json(&self) -> Value {
        let TokenScores {
            tokens,
            exact,
            sequences,
        } = self.scores;
        let mut found = json!({
            "factor": self.factor,
            "length": self.length,
            "top1": tokens.top1,
            "exact": exact,
            "loss": tokens.loss,
            "sequences": sequences,
        });
        if let Some(unit) = self.unit {
            found[format!("bits_per_{unit}")] = json!(self.bits());
        }
        found
    }

    fn words(&self) -> String {
        if let Some(unit) = self.unit {
            return format!(
                "{}x ({}): {:.3} bits per {unit}",
                self.factor,
                self.length,
                self.bits()
            );
        }
        format!(
            "{}x ({}): {:.2} % of tokens, {:.2} % of sequences",
            self.factor,
            self.length,
            100.0 * self.scores.tokens.top1,
            100.0 * self.scores.exact
        )
    }
}

/// Trains the sequence network in `dir` on a task, tests it at multiples of the training length, and
/// writes it to `out`. Returns the output of `--json`.
///
/// # Errors
/// If settings are wrong or do not fit the model, or the work fails.
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
        .task(&ready.data.task);
    run_dir::fill(out, &to_table(settings)?, &inputs, options, |run| {
        let course = Course {
            label: "finetune",
            data: &ready.data,
            resolved: &ready.resolved,
            every_epoch: true,
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
        let lengths = data.lengths(&model.shape, &float.rounded(&model.weights)?)?;
        let found: Vec<Value> = lengths.iter().map(Length::json).collect();
        model.provenance = json!({
            "stage": "finetune",
            "version": env!("CARGO_PKG_VERSION"),
            "data": data.task.to_string(),
            "seed": resolved.seed,
            "steps": outcome.steps,
            "sequences_seen": outcome.steps * data.loader.batch_size() as u64,
            "lengths": found,
            "origin": origin::of(dir, &model.provenance, context),
            "start": model.provenance,
        });
        model.know(&data.task);
        let words: Vec<String> = lengths.iter().map(Length::words).collect();
        let summary = format!(
            "Trained on {} for {} steps with wave. At multiples of the training length: {}.",
            data.task,
            outcome.steps,
            words.join("; ")
        );
        let mut result = json!({
            "parameters": model.parameters(),
            "top1": found[0]["top1"],
            "lengths": found,
        });
        outcome.tell(&mut result);
        Ok(Made {
            result,
            write: Box::new(move || model.write(out, float, &summary)),
        })
    })
}

/// A sequence network with all inputs of its training, checked.
struct Ready {
    model: SequenceModel,
    float: FloatType,
    frozen: Vec<String>,
    data: TaskData,
    resolved: Resolved,
    step: Step,
}

impl Ready {
    fn read(dir: &Path, settings: &settings::Finetune, context: &Context) -> Result<Ready> {
        let own: Finetune = narrow(settings, WHAT)?;
        context.only_one("sequence networks train")?;
        let model = SequenceModel::read(dir, context)?;
        let float = float(&own.output)?;
        let none = OfTransformers::default();
        let plan = TrainingPlan::new(&own.optimisation, &none, &own.saving, DEFAULTS)?;
        let task = task(&model, own.data.as_deref())?;
        let data = TaskData::new(
            task,
            own.optimisation.batch,
            own.test_limit,
            plan.seed,
            context,
        )?;
        let resolved = plan.resolve(&data)?;
        let frozen = own.freeze.unwrap_or_default();
        finetune::check_frozen(&model.weights, &frozen)?;
        let batch = data.loader.batch(0);
        let tokens = batch.tokens.len() / batch.size.max(1);
        let memory = memory(&model.shape, tokens);
        Ok(Ready {
            step: Step::new(memory, &data, &resolved, 1)?,
            model,
            float,
            frozen,
            data,
            resolved,
        })
    }
}

impl Trainee for Ready {
    type Batch = TokenBatch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        finetune::variables(&self.model.weights, &self.frozen, &self.resolved, 0, device)
    }

    fn loss(
        &self,
        live: &Live,
        batch: &TokenBatch,
        tokens: &Tensor,
        _: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let shape = &self.model.shape;
        let m = batch.positions.len();
        let positions = Tensor::from_slice(&batch.positions, m, tokens.device())?;
        let logits = logits_at(shape, &live.weights, tokens, &positions)?.flatten_to(1)?;
        let smoothing = self.resolved.label_smoothing;
        let targets = wave_train::smoothed_targets(&batch.targets, shape.vocabulary, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let longest = self.data.task.lengths.1;
        Ok(self.data.scores(&self.model.shape, values, longest)?.tokens)
    }
}

/// The output of `wave finetune --dry-run` for a sequence network.
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
        "{:#?}\n{} parameters\ntask: {}\n{}{}",
        ready.model.shape,
        ready.model.parameters(),
        ready.data.task,
        ready.resolved.describe(&ready.data),
        ready.step.words()
    ))
}

/// Scores of the sequence network in `dir` at multiples of a task's length. Returns the output of
/// `--json`.
///
/// # Errors
/// If settings are wrong or do not fit the model, or the work fails.
pub(super) fn eval(dir: &Path, settings: &Eval, context: &Context) -> Result<Value> {
    refuse_of_images(settings)?;
    if settings.hold_out.is_some() {
        return Err(means_nothing("hold_out", WHAT));
    }
    let model = SequenceModel::read(dir, context)?;
    let task = task(&model, settings.data.as_deref())?;
    let data = TaskData::new(
        task,
        None,
        settings.test_limit,
        settings.seed.unwrap_or(0),
        context,
    )?;
    let lengths = data.lengths(&model.shape, &model.weights)?;
    let first = lengths[0].scores;
    let found: Vec<Value> = lengths.iter().map(Length::json).collect();
    Ok(json!({
        "top1": first.tokens.top1,
        "top5": first.tokens.top5,
        "loss": first.tokens.loss,
        "images": first.sequences, // the examples, whatever they are
        "lengths": found,
    }))
}

/// The given task, or the model's own.
fn task(model: &SequenceModel, spec: Option<&str>) -> Result<Task> {
    let task = match spec {
        Some(spec) => model.task_of(spec)?,
        None => model.task()?,
    };
    model.check_task(&task)?;
    Ok(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave_data::task::EPOCH;

    #[test]
    fn a_model_is_tested_as_often_as_there_are_lengths() {
        for (spec, expected) in [
            ("copy:length=3", &[3, 6, 12][..]),
            ("sort:length=5,symbols=16", &[5, 10]),
        ] {
            let task: Task = spec.parse().unwrap();
            let shape = SequenceShape {
                state: 4,
                ..SequenceShape::new(
                    task.vocabulary(),
                    1,
                    8,
                    crate::sequence::network::Mixer::Mamba2,
                )
            };
            let choices = crate::sequence::start::SequenceChoices::default();
            let weights =
                crate::sequence::start::start("mimetic", &shape, &choices, None, 0).unwrap();
            let data = TaskData::new(task, None, Some(3), 0, &Context::default()).unwrap();
            assert_eq!(data.batches().steps_per_epoch(), EPOCH / BATCH);
            let lengths = data.lengths(&shape, &weights).unwrap();
            let found: Vec<usize> = lengths.iter().map(|l| l.length).collect();
            assert_eq!(found, expected);
            assert!(lengths.iter().all(|l| l.scores.sequences == 3));
        }
    }
}
