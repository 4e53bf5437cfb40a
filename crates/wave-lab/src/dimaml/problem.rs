//! Data for training and validation.

use super::settings::{Arch, Settings};
use super::small::{Examples, Small};
use super::unrolled::{Phase, Unrolled};
use crate::ssm::task::{Task, TaskLoader, TokenBatch};
use anyhow::Result;
use candle_core::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;
use wave_data::{Augment, Loader};
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::settings::BatchSize;
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
    /// Opens `spec`: a task for a sequence network, else images, with the preprocessing `transform` if
    /// given.
    pub(super) fn open(
        spec: &str,
        settings: &Settings,
        like: Option<wave_data::Transform>,
        context: &Context,
    ) -> Result<Source> {
        let batch = settings.batch.unwrap_or(BATCH);
        if settings.arch == Some(Arch::Lstm) {
            return Ok(Source::Tokens(spec.parse()?, batch));
        }
        let plan = DataPlan {
            spec: Some(spec.into()),
            batch: BatchSize::Images(batch),
            ..DataPlan::of_images(&settings.images, settings.seed)?
        };
        let dataset = wave_run::data::open(plan.spec.as_deref(), context)?;
        let image_size = dataset
            .train
            .native_size()
            .map_or(28, |(_, height, _)| height);
        let input = match like {
            Some(transform) => Input::Like(transform),
            None => Input::Size {
                image_size,
                channels: None,
            },
        };
        Ok(Source::Images(Box::new(Data::open(&plan, input, context)?)))
    }

    /// Side, channels and classes of images.
    pub(super) fn frame(&self) -> Option<(usize, usize, usize)> {
        let data = self.images()?;
        let (transform, classes) = (&data.transform, data.class_names.len());
        Some((transform.image_size, transform.channels, classes))
    }

    pub(super) fn images(&self) -> Option<&Data> {
        match self {
            Source::Images(data) => Some(data),
            Source::Tokens(..) => None,
        }
    }

    pub(super) fn vocabulary(&self) -> Option<usize> {
        match self {
            Source::Images(_) => None,
            Source::Tokens(task, _) => Some(task.vocabulary()),
        }
    }

    pub(super) fn batch(&self) -> usize {
        match self {
            Source::Images(data) => data.batch,
            Source::Tokens(_, batch) => *batch,
        }
    }

    /// Batches for training, in the order of a seed, and batches for validation.
    pub(super) fn stream(&self, seed: u64) -> Result<[Batches; 2]> {
        let other = seed ^ VALIDATION;
        match self {
            Source::Images(data) => {
                let loader = |source: &Arc<dyn wave_data::Source>, of: &[u32], seed| {
                    let (transform, augment) = (data.transform.clone(), Augment::NONE);
                    let (source, of) = (source.clone(), of.to_vec());
                    Loader::train(source, of, transform, augment, data.batch, None, seed)
                };
                let batches = |loader: Loader| -> Batches {
                    Box::new(move |number| images(&loader.batch(number)?))
                };
                Ok([
                    batches(loader(&data.train, &data.train_indices, seed)?),
                    batches(loader(&data.tests.source, &data.tests.indices, other)?),
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
        let limit = limit.unwrap_or(TESTS).max(1);
        match self {
            Source::Images(data) => {
                let tests = &data.tests;
                let of = &tests.indices[..tests.indices.len().min(limit)];
                let (transform, broken) = (&tests.transform, &tests.broken);
                let batches =
                    wave_data::evaluation_batches(&tests.source, of, transform, data.batch, broken);
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

fn images(batch: &wave_data::Batch) -> Result<Examples> {
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
    /// Training run `k`, with a new batch for each validation.
    pub(super) fn new([trained, judged]: &[Batches; 2], run: &Unrolled, k: u64) -> Result<Episode> {
        let first = k * run.steps;
        let training = (first..first + run.steps).map(trained);
        let first = k * run.validate.len() as u64;
        let validation = (first..)
            .zip(&run.validate)
            .map(|(number, t)| Ok((*t, vec![judged(number)?])));
        Ok(Episode {
            training: training.collect::<Result<_>>()?,
            validation: validation.collect::<Result<_>>()?,
        })
    }

    /// A training run with the same examples for each validation.
    pub(super) fn judged_by(
        [trained, _]: &[Batches; 2],
        run: &Unrolled,
        tests: &[Examples],
    ) -> Result<Episode> {
        let training = (0..run.steps).map(trained);
        Ok(Episode {
            training: training.collect::<Result<_>>()?,
            validation: run.validate.iter().map(|t| (*t, tests.to_vec())).collect(),
        })
    }

    /// The loss of a step, as [`Unrolled`] needs it.
    pub(super) fn loss(
        &self,
        network: &Small,
        phase: Phase,
        weights: &wave_models::Weights,
    ) -> candle_core::Result<Tensor> {
        match phase {
            Phase::Training(t) => network.loss(weights, &self.training[t as usize - 1]),
            Phase::Validation(t) => {
                let batches = self.validation.get(&t).map_or(&[][..], Vec::as_slice);
                let losses = batches.iter().map(|batch| network.loss(weights, batch));
                let losses: Vec<Tensor> = losses.collect::<candle_core::Result<_>>()?;
                Tensor::stack(&losses, 0)?.mean_all()
            }
        }
    }
}
