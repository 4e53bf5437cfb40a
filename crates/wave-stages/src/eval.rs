//! `wave eval`: accuracy of a model.

use crate::finetune;
use crate::model::check_classifier;
use crate::zero_shot;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_run::context::Context;
use wave_run::data::{DataPlan, TestImages, count_broken};
use wave_run::settings::Eval;

/// Accuracy of a model directory on the test images of `--data`. Returns the output of `--json`.
pub fn eval(dir: &Path, settings: &Eval, context: &Context) -> Result<Value> {
    let (model, _) = zero_shot::open(dir, settings.heads, &settings.zero_shot, context)?;
    check_classifier(&model.network)?;
    let plan = DataPlan::of_images(&settings.images(), settings.seed)?;
    let tests = TestImages::open(&plan, &model.transform, context)?;
    tests.check_classes(
        model.network.classes(),
        "choose data with the model's classes",
    )?;
    tests.tell_classes(&model.label_names);
    let frozen = model.network.freeze(&context.place(&model.weights)?)?;
    let scores = finetune::score_by(&model.network, &tests, |images| frozen.logits(images))?;
    if !scores.loss.is_finite() {
        anyhow::bail!(
            "the loss is {}: some logits are not finite numbers, though all weights are. The weights \
             overflow on this data; train again with a smaller learning rate",
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
