//! `wave predict`: what a model sees in images.

use crate::device::place;
use crate::error::request;
use crate::model::Model;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Classifies image files. Returns what `--json` prints.
pub fn predict(dir: &Path, heads: Option<usize>, images: &[PathBuf]) -> Result<Value> {
    let model = Model::read_with_heads(dir, heads)?;
    let weights = place(&model.network.prepare(&model.weights)?)?;
    let mut predictions = Vec::new();
    for path in images {
        let name = path.display().to_string();
        let bytes = wave_hub::read_bytes(path)
            .map_err(|e| request(format!("cannot read the image {e}")))?;
        let image = wave_data::decode(&bytes, &name)?;
        let t = &model.transform;
        let input = t.evaluate(&image)?;
        let shape = (1, t.channels, t.image_size, t.image_size);
        let input = Tensor::from_vec(input, shape, &Device::Cpu)?;
        let logits = model
            .network
            .logits(&weights, &input)?
            .squeeze(0)?
            .to_vec1::<f32>()?;
        if let Some(class) = logits.iter().position(|z| !z.is_finite()) {
            anyhow::bail!(
                "{name}: the logit of class {class} is {}, though all weights are finite numbers. \
                 They overflow on this image; train again with a smaller learning rate",
                logits[class]
            );
        }
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = logits.iter().map(|z| (z - max).exp()).sum();
        let index = logits.iter().position(|z| *z == max).unwrap_or(0);
        predictions.push(json!({
            "image": name,
            "index": index,
            "label": model.label_names.get(index),
            "probability": 1.0 / total,
            "logits": logits,
        }));
    }
    Ok(json!({ "predictions": predictions }))
}
