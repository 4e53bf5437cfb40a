//! `wave eval`: accuracy of a model, or quality of its features.

use crate::score;
use anyhow::{Result, bail};
use candle_core::{DType, Device, Tensor, Var};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::model::{Model, check_classifier};
use wave_artefacts::zero_shot;
use wave_learngene::{Standard, unit};
use wave_models::{Frozen, refuse};
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input, TestImages, count_broken};
use wave_run::forecast;
use wave_run::settings::Eval;
use wave_train::{Curve, Examples, Schedule, State, Variable};

/// Temperature of the neighbours' votes (Wu et al. 2018).
const TEMPERATURE: f32 = 0.07;
/// Number of images whose neighbours are searched at once.
const AT_ONCE: usize = 256;
/// Steps of the linear classifier, each on all training images, and their peak learning rate.
const STEPS: u64 = 300;
const LEARNING_RATE: f64 = 1e-2;
const WEIGHT_DECAY: f32 = 1e-2;

/// Accuracy of a model directory on the test images of `--data`. Returns the output of `--json`.
pub fn eval(dir: &Path, settings: &Eval, context: &Context) -> Result<Value> {
    let (model, _) = zero_shot::open(dir, settings.heads, &settings.zero_shot, context)?;
    if let Some(k) = settings.knn {
        return of_features(&model, settings, k, context);
    }
    if settings.train_limit.is_some() {
        refuse!("train_limit applies only to --knn; give --knn N, or drop --train-limit");
    }
    check_classifier(&model.network)?;
    let plan = DataPlan::of_images(&settings.images(), settings.seed)?;
    let tests = TestImages::open(&plan, &model.transform, context)?;
    let classes = model.network.classes();
    tests.check_classes(classes, "choose data with the model's classes")?;
    tests.tell_classes(&model.label_names);
    let frozen = model.network.freeze(&context.place(&model.weights)?)?;
    let scores = score::score_by(&model.network, &tests, |images| frozen.logits(images))?;
    if !scores.loss.is_finite() {
        bail!(
            "the loss is {}: some logits are not finite, although all weights are; activations \
             overflow on this data; train again with a lower learning rate",
            scores.loss
        );
    }
    let mut result = json!({
        "top1": scores.top1,
        "top5": scores.top5,
        "loss": scores.loss,
        "images": scores.images,
    });
    count_broken(&mut result, tests.tell_broken());
    Ok(result)
}

/// Accuracy of nearest neighbours and of a linear classifier on the features that the model's classifier sees.
fn of_features(model: &Model, settings: &Eval, k: usize, context: &Context) -> Result<Value> {
    context.only_one("eval --knn runs")?;
    model.network.check_features()?;
    let plan = DataPlan::of_images(&settings.images(), settings.seed)?;
    let data = Data::open(&plan, Input::Like(model.transform.clone()), context)?;
    data.tests.check()?;
    let neighbours = data.train_indices.len();
    if k == 0 || k > neighbours {
        refuse!("--knn {k}: expected 1 to {neighbours}, the number of training images");
    }
    let frozen = model.network.freeze(&context.place(&model.weights)?)?;
    let at_once = forecast::test_batch(forecast::of_forward(&model.network));
    let train = Features::of(&*frozen, &data.training_images(), at_once)?;
    let test = Features::of(&*frozen, &data.tests, at_once)?;
    let classes = data.class_names.len();
    let mut result = json!({
        "knn_top1": nearest(&train, &test, k, classes)?,
        "linear_top1": linear(&train, &test, classes)?,
        "neighbours": k,
        "features": train.rows.dim(1)?,
        "training_images": train.labels.len(),
        "images": test.labels.len(),
    });
    count_broken(&mut result, data.tests.tell_broken());
    Ok(result)
}

struct Features {
    /// (images, width)
    rows: Tensor,
    labels: Vec<u32>,
}

impl Features {
    /// The features that a network's classifier sees for these images.
    fn of(network: &dyn Frozen, images: &TestImages, at_once: usize) -> Result<Features> {
        images.check()?;
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for batch in images.batches(at_once) {
            let batch = batch?;
            rows.push(network.features(&batch.input()?)?.to_device(&Device::Cpu)?);
            labels.extend(&batch.labels);
        }
        Features::new(Tensor::cat(&rows, 0)?, labels)
    }

    /// Features (images, width), each with a label.
    fn new(rows: Tensor, labels: Vec<u32>) -> Result<Features> {
        let largest = rows.abs()?.max_all()?.to_scalar::<f32>()?;
        if !largest.is_finite() {
            bail!("some features are not finite: the model's activations overflow on this data");
        }
        Ok(Features { rows, labels })
    }
}

/// Fraction of test images whose label has the most votes among their `k` nearest training images by
/// cosine similarity, each with a vote of `exp(cosine / 0.07)`. Ties go to the first class.
fn nearest(train: &Features, test: &Features, k: usize, classes: usize) -> Result<f64> {
    let known = unit(&train.rows)?.t()?.contiguous()?; // (width, train)
    let sought = unit(&test.rows)?;
    let mut right = 0;
    for (start, labels) in (0..).step_by(AT_ONCE).zip(test.labels.chunks(AT_ONCE)) {
        let cosines = sought.narrow(0, start, labels.len())?.matmul(&known)?;
        let cosines = cosines.to_vec2::<f32>()?;
        let rows = cosines.par_iter().zip(labels);
        let found = rows.map(|(row, label)| vote(row, &train.labels, k, classes) == *label);
        right += found.filter(|is_right| *is_right).count();
    }
    Ok(right as f64 / test.labels.len().max(1) as f64)
}

/// The class with the most votes among the `k` training images with the largest cosines.
fn vote(cosines: &[f32], labels: &[u32], k: usize, classes: usize) -> u32 {
    let mut order: Vec<usize> = (0..cosines.len()).collect();
    let nearer = |a: &usize, b: &usize| cosines[*b].total_cmp(&cosines[*a]).then(a.cmp(b));
    if k < order.len() {
        order.select_nth_unstable_by(k, nearer);
        order.truncate(k);
        order.sort_unstable_by(nearer); // so that votes are summed in a fixed order
    }
    let mut votes = vec![0f32; classes];
    for i in order {
        votes[labels[i] as usize] += ((cosines[i] - 1.0) / TEMPERATURE).exp();
    }
    largest(&votes) as u32
}

/// The index of the largest value, the first among equal ones.
fn largest(values: &[f32]) -> usize {
    let all = 0..values.len();
    let best = all.max_by(|a, b| values[*a].total_cmp(&values[*b]).then(b.cmp(a)));
    best.unwrap_or(0)
}

/// Accuracy of a linear classifier on the test images: multinomial logistic regression on
/// standardised features of all training images, 300 steps of AdamW from zero.
fn linear(train: &Features, test: &Features, classes: usize) -> Result<f64> {
    let standard = Standard::of(&train.rows)?;
    let images = standard.apply(&train.rows)?;
    let targets = wave_train::smoothed_targets(&train.labels, classes, 0.0)?;
    let zeros = |name: &str, dims: &[usize], weight_decay| {
        Ok::<_, candle_core::Error>(Variable {
            name: name.into(),
            var: Var::zeros(dims, DType::F32, &Device::Cpu)?,
            rate: Some(1.0),
            weight_decay,
            muon: None,
        })
    };
    let variables = [
        zeros("weight", &[classes, train.rows.dim(1)?], WEIGHT_DECAY)?,
        zeros("bias", &[classes], 0.0)?,
    ];
    let logits = |images: &Tensor| {
        let [weight, bias] = &variables;
        wave_ops::linear(images, weight.var.as_tensor(), bias.var.as_tensor())
    };
    let schedule = Schedule {
        peak: LEARNING_RATE,
        steps: STEPS,
        curve: Curve::Cosine {
            warmup: 1,
            floor: 0.01,
        },
    };
    let mut state = State::new(&variables, false)?;
    for step in 0..STEPS {
        let loss = wave_ops::soft_cross_entropy(&logits(&images)?, &targets)?;
        wave_train::step(&loss, &variables, &mut state, schedule.at(step), None)?;
    }
    let found = logits(&standard.apply(&test.rows)?)?.to_vec2::<f32>()?;
    let right = found.iter().zip(&test.labels);
    let right = right.filter(|(z, label)| largest(z) == **label as usize);
    Ok(right.count() as f64 / test.labels.len().max(1) as f64)
}

#[cfg(test)]
#[path = "eval_tests.rs"]
mod tests;
