//! Parts of training that all stages share: drop path, accuracies, an untrained classifier.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use rand::Rng;
use wave_artefacts::model::{Model, Network};
use wave_data::Batch;
use wave_hub::FloatType;
use wave_models::vit::{self, VitShape};
use wave_models::{Weights, refuse, resample};
use wave_run::data::{Data, TestImages};
use wave_run::forecast;
use wave_run::train::{self, LossInput, Resolved};
use wave_train::{MicroBatch, Scores};

/// Drop-path scales (depth, 2, b) for a micro-batch, if any branch may be dropped; `depth` is 0 if there is none.
pub(crate) fn drop_path(depth: usize, part: &MicroBatch, settings: &Resolved) -> Option<Vec<f32>> {
    let drop_path = settings.transformer.drop_path;
    (drop_path > 0.0 && depth > 0).then(|| {
        let mut rng = train::step_generator(settings.seed ^ 0xd809, part.step);
        let scales = vit::drop_path_scales(depth, part.batch, drop_path, || rng.random());
        part.of(scales)
    })
}

/// The cross-entropy of a transformer with the labels of a micro-batch, whose images are resized for it.
pub(crate) fn label_loss(
    shape: &VitShape,
    weights: &Weights,
    on: &LossInput<Batch>,
    settings: &Resolved,
) -> candle_core::Result<Tensor> {
    let scales = drop_path(shape.depth, on.part, settings);
    let images = resample::images(on.input, shape.image_size)?;
    let logits = vit::logits_in(settings.mode, shape, weights, &images, scales)?;
    let targets = wave_train::batch_targets(on.batch, shape.classes, settings.label_smoothing)?;
    wave_ops::soft_cross_entropy(&logits, &targets)
}

/// Accuracy of trained values on the test images.
pub fn score(network: &Network, values: &Weights, tests: &TestImages) -> Result<Scores> {
    let values = tests.context.place(values)?;
    score_by(network, tests, |images| network.logits(&values, images))
}

/// Accuracy on the test images of a network whose class scores `logits` computes.
pub(crate) fn score_by(
    network: &Network,
    tests: &TestImages,
    logits: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<Scores> {
    let at_once = forecast::test_batch(forecast::of_forward(network));
    let (ranks, batches) = (tests.context.ranks(), tests.batches(at_once));
    Ok(wave_train::evaluate(ranks, batches, logits)?)
}

/// Accuracy of the stored model: equal to that of its f32 weights, or measured again for a narrower type.
pub(crate) fn stored_scores(
    model: &Model,
    float: FloatType,
    data: &Data,
    scores: Option<Scores>,
) -> Result<Option<Scores>> {
    if float == FloatType::F32 || scores.is_none() {
        return Ok(scores);
    }
    let weights = model.network.prepare(&float.rounded(&model.weights)?)?;
    score(&model.network, &weights, &data.tests).map(Some)
}

/// Refuses a name part, given by the setting `key`, that none of the weights' `names` contains.
pub(crate) fn check_parts<'a>(
    key: &str,
    parts: &[String],
    names: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let held = |part: &&String| names.iter().any(|name| name.contains(*part));
    match parts.iter().find(|part| !held(part)) {
        None => Ok(()),
        Some(part) => refuse!(
            "{key}: no weight name contains {part}; the names are {}",
            names.join(", ")
        ),
    }
}

/// Refuses weights with values that are not finite, after `who` made them.
pub(crate) fn check_finite(weights: &Weights, who: &str, remedy: &str) -> Result<()> {
    for (name, tensor) in weights {
        if wave_hub::not_finite(tensor)? > 0 {
            refuse!("{who} values of {name} that are not finite; {remedy}");
        }
    }
    Ok(())
}

/// The weights of an untrained classifier.
pub(crate) fn zero_head(name: &str, classes: usize, width: usize) -> Result<Weights> {
    let zeros = |dims: &[usize]| Tensor::zeros(dims, DType::F32, &Device::Cpu);
    Ok(Weights::from([
        (format!("{name}.weight"), zeros(&[classes, width])?),
        (format!("{name}.bias"), zeros(&[classes])?),
    ]))
}
