//! Data for training and validation.

use super::settings::{Arch, Settings};
use super::small::{Examples, Small};
use super::unrolled::{Phase, Unrolled};
use crate::ssm::task::{Task, TaskLoader, TokenBatch};
use anyhow::Result;
use candle_core::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;
use wave_data::{Augment, Batch, Loader, Transform};
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_train::Examples as _;

/// Default number of examples in a batch.
const BATCH: usize = 128;

/// Default number of examples for a test curve.
const TESTS: usize = 512;

/// Separates the random numbers of validation examples from training's.
const VALIDATION: u64 = 0x7661_6c69;

/// Images, or sequences of a task.
pub(super) enum Source {
    /// Images; validation uses held-out images, or else the test images.
    Images(Box<Data>),
    /// A task, and the number of sequences in a batch.
    Tokens(Task, usize),
}

impl Source {
    /// Opens `spec`: a task for a sequence network, else images. Images of another size or number of channels than
    /// those of `like` are prepared like them.
    pub(super) fn open(
        spec: &str,
        settings: &Settings,
        like: Option<&Source>,
        context: &Context,
    ) -> Result<Source> {
        let batch = settings.batch.unwrap_or(BATCH);
        if settings.arch == Some(Arch::Lstm) {
            return Ok(Source::Tokens(spec.parse()?, batch));
        }
        let plan = DataPlan {
            spec: Some(spec.into()),
            batch,
            ..DataPlan::of_images(&settings.images, settings.seed)?
        };
        let mut data = crate::images::open(&plan, context)?;
        let frame = |transform: &Transform| (transform.image_size, transform.channels);
        if let Some(Source::Images(like)) = like
            && frame(&like.transform) != frame(&data.transform)
        {
            data = Data::open(&plan, Input::Like(like.transform.clone()), context)?;
        }
        Ok(Source::Images(Box::new(data)))
    }

    pub(super) fn batch(&self) -> usize {
        match self {
            Source::Images(data) => data.plan.batch,
            Source::Tokens(_, batch) => *batch,
        }
    }

    /// Batches for training, in the order of a seed, and batches for validation.
    pub(super) fn stream(&self, seed: u64) -> Result<[Batches; 2]> {
        let other = seed ^ VALIDATION;
        match self {
            Source::Images(data) => {
                let batches = |source: &Arc<dyn wave_data::Source>, of: &[u32], seed| {
                    let (transform, augment) = (data.transform.clone(), Augment::NONE);
                    let (source, of) = (source.clone(), of.to_vec());
                    let loader =
                        Loader::train(source, of, transform, augment, data.plan.batch, None, seed)?;
                    let batches: Batches = Box::new(move |number| images(&loader.batch(number)?));
                    Ok::<_, anyhow::Error>(batches)
                };
                Ok([
                    batches(&data.train, &data.train_indices, seed)?,
                    batches(&data.tests.source, &data.tests.indices, other)?,
                ])
            }
            Source::Tokens(task, batch) => {
                let batches = |seed| -> Result<Batches> {
                    let loader = TaskLoader::new(task.clone(), *batch, seed)?;
                    Ok(Box::new(move |number| tokens(&loader.batch(number))))
                };
                Ok([batches(seed)?, batches(other)?])
            }
        }
    }

    /// The examples for a test curve, the same for all initialisations and seeds: the first test
    /// images, or test sequences of the longest length.
    pub(super) fn tests(&self, limit: Option<usize>) -> Result<Vec<Examples>> {
        let limit = limit.unwrap_or(TESTS);
        match self {
            Source::Images(data) => {
                let tests = &data.tests;
                let of = &tests.indices[..tests.indices.len().min(limit)];
                let (source, transform, broken) = (&tests.source, &tests.transform, &tests.broken);
                let batch = data.plan.batch;
                let batches = wave_data::evaluation_batches(source, of, transform, batch, broken);
                batches.map(|batch| images(&batch?)).collect()
            }
            Source::Tokens(task, batch) => {
                let batches = task.test_batches(task.lengths.1, limit, *batch);
                batches.iter().map(tokens).collect()
            }
        }
    }
}

/// Batches, each a pure function of its index.
pub(super) type Batches = Box<dyn Fn(u64) -> Result<Examples>>;

fn images(batch: &Batch) -> Result<Examples> {
    Ok(Examples {
        input: batch.input()?,
        targets: batch.labels.clone(),
        positions: Vec::new(),
    })
}

fn tokens(batch: &TokenBatch) -> Result<Examples> {
    Ok(Examples {
        input: batch.input()?,
        targets: batch.targets.clone(),
        positions: batch.positions.clone(),
    })
}

/// The examples of one training run, read once, since its steps run forwards and then backwards.
pub(super) struct Episode {
    training: Vec<Examples>,
    validation: BTreeMap<u64, Vec<Examples>>,
}

impl Episode {
    /// Training run `k`; `judged` maps the index of a validation, counted over all runs, to its examples.
    pub(super) fn new(
        trained: &Batches,
        run: &Unrolled,
        k: u64,
        judged: impl Fn(u64) -> Result<Vec<Examples>>,
    ) -> Result<Episode> {
        let first = k * run.steps;
        let training = (first..first + run.steps).map(trained);
        let first = k * run.validate.len() as u64;
        let numbered = (first..).zip(&run.validate);
        let validation = numbered.map(|(number, t)| Ok((*t, judged(number)?)));
        Ok(Episode {
            training: training.collect::<Result<_>>()?,
            validation: validation.collect::<Result<_>>()?,
        })
    }

    /// The loss of a step, as [`Unrolled`] needs it.
    pub(super) fn loss(
        &self,
        network: &Small,
        phase: Phase,
        weights: &Weights,
    ) -> candle_core::Result<Tensor> {
        match phase {
            Phase::Training(t) => network.loss(weights, &self.training[t as usize - 1]),
            Phase::Validation(t) => {
                let batches = self.validation[&t].iter();
                let losses = batches.map(|batch| network.loss(weights, batch));
                let losses: Vec<Tensor> = losses.collect::<candle_core::Result<_>>()?;
                Tensor::stack(&losses, 0)?.mean_all()
            }
        }
    }
}
