//! `wave eval`: accuracy of a model, or quality of its features.

use crate::probe::{self, Features};
use crate::score;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::model::{Model, check_classifier};
use wave_artefacts::zero_shot;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input, TestImages, count_broken};
use wave_run::error::request;
use wave_run::forecast;
use wave_run::settings::Eval;

/// Accuracy of a model directory on the test images of `--data`. Returns the output of `--json`.
pub fn eval(dir: &Path, settings: &Eval, context: &Context) -> Result<Value> {
    let (model, _) = zero_shot::open(dir, settings.heads, &settings.zero_shot, context)?;
    if let Some(k) = settings.knn {
        return features(&model, settings, k, context);
    }
    if settings.train_limit.is_some() {
        return Err(request(
            "train_limit applies only to --knn; give --knn N, or drop --train-limit",
        ));
    }
    check_classifier(&model.network)?;
    let plan = DataPlan::of_images(&settings.images(), settings.seed)?;
    let tests = TestImages::open(&plan, &model.transform, context)?;
    tests.check_classes(
        model.network.classes(),
        "choose data with the model's classes",
    )?;
    tests.tell_classes(&model.label_names);
    let frozen = model.network.freeze(&context.place(&model.weights)?)?;
    let scores = score::score_by(&model.network, &tests, |images| frozen.logits(images))?;
    if !scores.loss.is_finite() {
        anyhow::bail!(
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
fn features(model: &Model, settings: &Eval, k: usize, context: &Context) -> Result<Value> {
    context.only_one("eval --knn runs")?;
    let plan = DataPlan::of_images(&settings.images(), settings.seed)?;
    let data = Data::open(&plan, Input::Like(model.transform.clone()), context)?;
    data.tests.check()?;
    let neighbours = data.train_indices.len();
    if k == 0 || k > neighbours {
        return Err(request(format!(
            "--knn {k}: expected 1 to {neighbours}, the number of training images"
        )));
    }
    let frozen = model.network.freeze(&context.place(&model.weights)?)?;
    let at_once = forecast::test_batch(forecast::of_forward(&model.network));
    let train = Features::of(&*frozen, &data.training_images(), at_once)?;
    let test = Features::of(&*frozen, &data.tests, at_once)?;
    let classes = data.class_names.len();
    let mut result = json!({
        "knn_top1": probe::nearest(&train, &test, k, classes)?,
        "linear_top1": probe::linear(&train, &test, classes)?,
        "neighbours": k,
        "features": train.rows.dim(1)?,
        "training_images": train.labels.len(),
        "images": test.labels.len(),
    });
    count_broken(&mut result, data.tests.tell_broken());
    Ok(result)
}
