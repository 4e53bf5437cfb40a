//! A CLIP or SigLIP model, whose classes are given later as texts.

use super::{decimals, describe_steps, shapes};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::model::{decimal, without_article};
use wave_artefacts::{towers, zero_shot};
use wave_models::transformer::TransformerShape;

/// The output of `--json` for a directory that holds one.
pub(super) fn describe(dir: &Path) -> Result<Option<Value>> {
    let Some((_, dual)) = towers::read(dir)? else {
        return Ok(None);
    };
    let (image, text) = (&dual.images.tower, &dual.text);
    let (steps, transform) = zero_shot::preprocessing(dir, &dual)?;
    let mut vision = tower(image);
    vision["patch"] = json!(image.patch);
    let mut parts = image.parts();
    parts.retain(|part| part != "no classifier"); // texts take its place
    vision["parts"] = json!(parts);
    let mut words = tower(&text.blocks);
    words["vocabulary"] = json!(text.vocabulary);
    words["context"] = json!(text.context);
    let (tensors, _) = wave_hub::read_tensors(&dir.join("model.safetensors"))?;
    let mut all = json!({
        "kind": "model",
        "architecture": without_article(dual.images.family),
        "classes": "texts, by --labels",
        "image_tower": vision,
        "text_tower": words,
        "embedding": dual.images.embedding,
        "logit_scale": decimal(dual.logit_scale.exp()),
        "trains": false,
        "image_size": image.image_size,
        "channels": image.channels,
        "mean": decimals(&transform.mean),
        "std": decimals(&transform.std),
        "crop_pct": decimal(transform.crop_pct),
        "preprocessing": describe_steps(&steps),
        "parameters": dual.parameters(),
        "tensors": shapes(&tensors),
    });
    if let Some(bias) = dual.logit_bias {
        all["logit_bias"] = json!(decimal(bias));
    }
    Ok(Some(all))
}

fn tower(shape: &TransformerShape) -> Value {
    json!({"depth": shape.depth, "width": shape.width, "heads": shape.heads})
}
