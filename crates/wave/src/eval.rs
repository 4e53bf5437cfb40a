//! `wave eval`: how good a model is.

use crate::data::{TestImages, count_broken};
use crate::finetune;
use crate::model::Model;
use crate::settings::Training;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// Accuracy of a model directory on the test images of `--data`. Returns what `--json` prints.
pub fn eval(dir: &Path, training: &Training) -> Result<Value> {
    let model = Model::read(dir)?;
    training.validate()?;
    let tests = TestImages::open(training, &model.transform)?;
    tests.check_classes(
        model.network.classes(),
        "choose data with the model's classes",
    )?;
    tests.tell_classes(&model.label_names);
    let weights = model.network.prepare(&model.weights)?;
    let scores = finetune::score(&model.network, &weights, &tests)?;
    let mut result = json!({
        "top1": scores.top1,
        "top5": scores.top5,
        "loss": scores.loss,
        "images": scores.images,
    });
    count_broken(&mut result, tests.tell_broken());
    Ok(result)
}
