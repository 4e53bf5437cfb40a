//! `wave inspect`: the contents of a directory or file, as numbers and plots.

use anyhow::Result;
use candle_core::Tensor;
use pictures::Picture;
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::delta::{self, DeltaDir};
use wave_artefacts::model::{Model, Network, decimal, without_article};
use wave_artefacts::templates::{self, TemplateDir};
use wave_artefacts::{preprocessing, towers};
use wave_hub::{Preprocessing, Source};
use wave_models::transformer::TransformerShape;
use wave_models::vit::VitShape;
use wave_models::{Weights, refuse};
use wave_run::context::Context;
use wave_run::data::{DataPlan, TestImages};
use wave_run::log;
use wave_run::paths::{check_replaceable, text};
use wave_run::plot;
use wave_run::recipe::means_nothing;
use wave_run::settings::{Images, Pictures};
use wave_stages::record::Surface;

mod composer;
mod html;
mod page;
mod pictures;

pub(crate) use page::sides;

/// Describes a template directory, a model directory or a safetensors file; plots heat maps, recorded accuracies
/// and attention maps, and writes all of them to one page. Returns the output of `--json`.
pub fn inspect(path: &Path, asked: &Pictures, context: &Context) -> Result<Value> {
    let (plots, html) = (asked.plots.as_deref(), asked.html.as_deref());
    if let Some(file) = html {
        check_replaceable(file, "html")?;
    }
    let place = &wave_run::locate::locate(path, context)?;
    let found = Found::read(place, context)?;
    let mut out = found.summary.clone();
    let pictures = match (plots.or(html), &asked.data) {
        (Some(_), data) => found.pictures(data.as_deref(), context)?,
        (None, None) => Vec::new(),
        (None, Some(_)) => {
            refuse!(
                "--data draws attention maps; give --plots DIR or --html FILE to write them to"
            );
        }
    };
    let surface = match &found.templates {
        Some(templates) => Surface::new(&templates.config.accuracies).plot()?,
        None => None,
    };
    if let Some(dir) = plots {
        wave_hub::prepare_out(dir)?;
        let mut written = Vec::new();
        for picture in &pictures {
            let path = dir.join(format!("{}.png", picture.name));
            let png = plot::heat_map_grid(&picture.panels, picture.columns)?;
            wave_hub::write_atomic(&path, &png)?;
            written.push(text(&path));
        }
        if let Some(svg) = &surface {
            let path = dir.join("accuracy.svg");
            wave_hub::write_atomic(&path, svg.as_bytes())?;
            written.push(text(&path));
        }
        out["plots"] = json!(written);
    }
    if let Some(file) = html {
        let log = match place.is_dir() {
            true => log::read(&place.join("run"))?,
            false => Vec::new(),
        };
        let page = page::page(path, &found, surface.as_deref(), &pictures, &log)?;
        wave_hub::write_named(file, page.as_bytes())?;
        out["html"] = json!(text(file));
    }
    Ok(out)
}

/// The contents of a directory or file.
#[derive(Default)]
struct Found {
    /// The output of `--json`.
    summary: Value,
    model: Option<Model>,
    templates: Option<TemplateDir>,
    /// Tensors, among them the `scalers.{layer}.{part}` of an expanded model.
    scalers: Weights,
}

impl Found {
    fn read(path: &Path, context: &Context) -> Result<Found> {
        let mut found = Found::default();
        if path.is_file() {
            let (weights, metadata) = wave_hub::read_tensors(path)?;
            found.model = Model::read(path, context).ok();
            found.summary = match &found.model {
                Some(model) => describe_model(path, model, 0, &weights)?,
                None => json!({ "kind": "", "parameters": 0, "tensors": shapes(&weights) }),
            };
            found.summary["kind"] = json!("tensors");
            found.summary["parameters"] = json!(count(&weights));
            found.summary["metadata"] = json!(metadata);
            found.scalers = weights;
            return Ok(found);
        }
        if let Some(summary) = describe_towers(path)? {
            found.summary = summary;
            return Ok(found);
        }
        match wave_hub::directory_kind(path)? {
            wave_hub::Kind::Templates => {
                let templates = templates::read(path)?;
                found.summary = describe_templates(&templates);
                found.templates = Some(templates);
            }
            wave_hub::Kind::Delta => {
                found.summary = describe_delta(&delta::fetch(path, context)?);
            }
            wave_hub::Kind::Model | wave_hub::Kind::Transformers => {
                let model = Model::read(path, context)?;
                let depth = model.network.size().0;
                let scalers = wave_hub::read_scalers(path, depth)?.unwrap_or_default();
                let (tensors, _) = wave_hub::read_tensors(&path.join("model.safetensors"))?;
                found.summary = describe_model(path, &model, count(&scalers), &tensors)?;
                found.model = Some(model);
                found.scalers = scalers;
            }
        }
        Ok(found)
    }

    /// The attention maps of a transformer, on test images of `data`.
    fn attention_maps(&self, data: &str, context: &Context) -> Result<Picture> {
        let Some(model) = &self.model else {
            return Err(means_nothing("data", "a directory without a model"));
        };
        let Network::Vit(shape) = &model.network else {
            return Err(means_nothing("data", model.network.family()));
        };
        let images = Images {
            data: Some(data.to_owned()),
            test_limit: Some(pictures::MAP_IMAGES),
            ..Images::default()
        };
        let plan = DataPlan::of_images(&images, None)?;
        let tests = TestImages::open(&plan, &model.transform, context)?;
        pictures::attention_maps(shape, &model.weights, &tests)
    }

    /// Heat maps of the contents, and attention maps if there is data.
    fn pictures(&self, data: Option<&str>, context: &Context) -> Result<Vec<Picture>> {
        let mut all = Vec::new();
        if let Some(templates) = &self.templates {
            let gene = &templates.learngene;
            all.extend(pictures::templates(gene)?);
            all.extend(pictures::bank(gene)?);
            let weights = gene.weights(&gene.auxiliary)?;
            all.extend(pictures::attention(&gene.auxiliary, &weights)?);
        }
        all.extend(pictures::scalers(&self.scalers)?);
        if let Some(model) = &self.model {
            if let Network::Vit(shape) = &model.network {
                all.extend(pictures::attention(shape, &model.weights)?);
            }
            all.extend(pictures::filters(&model.network, &model.weights)?);
        }
        if let Some(data) = data {
            all.push(self.attention_maps(data, context)?);
        }
        Ok(all)
    }
}

fn describe_templates(templates: &TemplateDir) -> Value {
    let ledger = templates.learngene.ledger();
    let config = &templates.config;
    let mut all = json!({
        "kind": "templates",
        "parameters": ledger.iter().map(|(_, n)| n).sum::<usize>(),
        "ledger": ledger.iter().map(|(k, n)| (k.to_string(), *n)).collect::<Value>(),
        "kronecker": config.kronecker,
        "template_size": config.template_size,
        "counts": config.counts,
        "anchors": config.anchors,
        "auxiliary": config.auxiliary,
        "head_width": config.head_width,
        "preprocessing": describe_steps(&config.preprocessing()),
        "accuracies": config.accuracies,
        "provenance": config.provenance,
    });
    if !config.levels.is_empty() {
        all["levels"] = json!(config.levels);
    }
    all
}

fn describe_delta(delta: &DeltaDir) -> Value {
    let config = &delta.config;
    json!({
        "kind": "delta",
        "parameters": count(&delta.tensors),
        "templates_sha256": config.templates_sha256,
        "anchors": config.anchors,
        "classes": config.classes,
        "accuracies": config.accuracies,
        "provenance": config.provenance,
        "tensors": shapes(&delta.tensors),
    })
}

/// A model, with its tensors as stored in the file, since some are renamed or filled in on reading.
fn describe_model(path: &Path, model: &Model, scalers: usize, tensors: &Weights) -> Result<Value> {
    let steps = preprocessing::of(path, model.network.input())?;
    let (depth, width) = model.network.size();
    let transform = &model.transform;
    let (vit, other) = match &model.network {
        Network::Vit(shape) => (Some(shape), None),
        Network::Transformer(shape) => (None, Some(shape)),
        _ => (None, None),
    };
    // Number of parameters by origin, as far as known.
    let from_templates = model.provenance.get("parameters").cloned();
    let ledger = from_templates.or((scalers > 0).then(|| json!({ "scalers": scalers })));
    let mut all = json!({
        "kind": "model",
        "architecture": without_article(model.network.family()),
        "depth": depth,
        "width": width,
        "heads": vit.map(|s| s.heads).or(other.map(|s| s.heads)),
        "mlp_ratio": vit.map(|s| s.mlp_ratio),
        "patch": vit.map(|s| s.patch).or(other.map(|s| s.patch)),
        "pooling": vit.map(pooling),
        "parts": other.map(TransformerShape::parts),
        "trains": (!model.network.trainable()).then_some(false),
        "image_size": transform.image_size,
        "channels": transform.channels,
        "classes": model.network.classes(),
        "mean": decimals(&transform.mean),
        "std": decimals(&transform.std),
        "crop_pct": decimal(transform.crop_pct),
        "parameters": model.parameters(),
        "preprocessing": describe_steps(&steps),
        "ledger": ledger,
        "provenance": model.provenance,
        "tensors": shapes(tensors),
    });
    if let Value::Object(all) = &mut all {
        all.retain(|_, value| !value.is_null());
    }
    Ok(all)
}

/// A directory with a CLIP or SigLIP, whose classes are given later as texts; `None` if it holds another model.
fn describe_towers(dir: &Path) -> Result<Option<Value>> {
    let Some((_, dual)) = towers::read(dir)? else {
        return Ok(None);
    };
    let (image, text) = (&dual.images.tower, &dual.text);
    let (steps, transform) = preprocessing::read(dir, (image.channels, image.image_size))?;
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
        "architecture": without_article(dual.images.about().family),
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

/// The tokens that the classifier reads.
fn pooling(shape: &VitShape) -> &'static str {
    match (shape.distilled, shape.class_token) {
        (true, _) => "class and distillation tokens",
        (false, true) => "class token",
        (false, false) => "average",
    }
}

/// The preprocessing steps, with the origin of each value.
fn describe_steps(steps: &Preprocessing) -> Value {
    let steps = steps.described();
    let row = |(step, value, source): &(&str, String, &Source)| json!({"step": step, "value": value, "from": source.to_string()});
    steps.iter().map(row).collect()
}

fn decimals(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| decimal(*v)).collect()
}

fn count(weights: &Weights) -> usize {
    weights.values().map(Tensor::elem_count).sum()
}

fn shapes(weights: &Weights) -> Value {
    let tensors = weights.iter();
    tensors.map(|(name, t)| (name.as_str(), t.dims())).collect()
}
