//! `wave eval`: how good a model is.

use crate::data::{Data, Input};
use crate::finetune;
use crate::model::Model;
use crate::settings::{BatchSize, Training};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// Accuracy of a model directory on the test images of `--data`. Returns what `--json` prints.
pub fn eval(dir: &Path, training: &Training) -> Result<Value> {
    let model = Model::read(dir)?;
    training.validate()?;
    // A single training image is a batch: nothing is trained here.
    let training = Training {
        batch: Some(BatchSize::Images(1)),
        ..training.clone()
    };
    let data = Data::open(&training, Input::Like(model.transform.clone()))?;
    data.check_classes(
        model.network.classes(),
        "choose data with the model's classes",
    )?;
    let weights = model.network.prepare(&model.weights)?;
    let scores = finetune::score(&model.network, &weights, &data)?;
    Ok(json!({
        "top1": scores.top1,
        "top5": scores.top5,
        "loss": scores.loss,
        "images": scores.images,
    }))
}
