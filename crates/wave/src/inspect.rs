//! `wave inspect`: what is inside a directory or file, in numbers and pictures.

use crate::elastic::{self, TemplateDir};
use crate::model::{Model, Network};
use crate::plot;
use anyhow::Result;
use candle_core::Tensor;
use serde_json::{Value, json};
use std::path::Path;
use wave_models::Weights;
use wave_models::vit::VitShape;

/// One matrix of a picture: name, rows, columns, values.
type Panel = (String, usize, usize, Vec<f32>);

/// Describes a template directory, a model directory or a safetensors file, and draws heat maps
/// into `plots`, if given. Returns what `--json` prints.
pub fn inspect(path: &Path, plots: Option<&Path>) -> Result<Value> {
    if path.is_file() {
        let (weights, metadata) = wave_hub::read_tensors(path)?;
        let mut out = json!({
            "kind": "tensors",
            "parameters": count(&weights),
            "metadata": metadata,
            "tensors": shapes(&weights),
        });
        draw(&mut out, plots, &Model::read(path).ok(), None)?;
        return Ok(out);
    }
    match wave_hub::directory_kind(path)? {
        wave_hub::Kind::Templates => {
            let templates = elastic::read(path)?;
            let gene = &templates.learngene;
            let ledger = gene.ledger();
            let mut out = json!({
                "kind": "templates",
                "parameters": ledger.iter().map(|(_, n)| n).sum::<usize>(),
                "ledger": ledger.iter().map(|(k, n)| (k.to_string(), json!(n))).collect::<serde_json::Map<_, _>>(),
                "kronecker": templates.config.kronecker,
                "template_size": templates.config.template_size,
                "counts": templates.config.counts,
                "anchors": templates.config.anchors,
                "auxiliary": templates.config.auxiliary,
                "head_width": templates.config.head_width,
                "accuracies": templates.config.accuracies,
                "provenance": templates.config.provenance,
            });
            draw(&mut out, plots, &None, Some(&templates))?;
            Ok(out)
        }
        wave_hub::Kind::Model | wave_hub::Kind::Transformers => {
            let model = Model::read(path)?;
            let scalers = path.join("scalers.safetensors");
            let fitted = if scalers.is_file() {
                count(&wave_hub::read_tensors(&scalers)?.0)
            } else {
                0
            };
            let (depth, width) = model.network.size();
            let mut out = json!({
                "kind": "model",
                "parameters": model.parameters(),
                "ledger": ledger(&model, fitted),
                "depth": depth,
                "width": width,
                "classes": model.network.classes(),
                "provenance": model.provenance,
                "tensors": shapes(&model.weights),
            });
            draw(&mut out, plots, &Some(model), None)?;
            Ok(out)
        }
    }
}

/// Parameters by where they came from.
fn ledger(model: &Model, scalers: usize) -> Value {
    match model.provenance.get("parameters") {
        Some(from_templates) => from_templates.clone(),
        None if scalers > 0 => json!({ "scalers": scalers }),
        None => json!({ "fresh": model.parameters() }),
    }
}

fn count(weights: &Weights) -> usize {
    weights.values().map(Tensor::elem_count).sum()
}

fn shapes(weights: &Weights) -> Value {
    weights
        .iter()
        .map(|(name, t)| (name.clone(), json!(t.dims())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn draw(
    out: &mut Value,
    plots: Option<&Path>,
    model: &Option<Model>,
    templates: Option<&TemplateDir>,
) -> Result<()> {
    let Some(dir) = plots else { return Ok(()) };
    wave_hub::prepare_out(dir)?;
    let mut pictures: Vec<(String, usize, Vec<Panel>)> = Vec::new();
    if let Some(templates) = templates {
        for (set, t) in &templates.learngene.templates {
            let panels = (0..t.dim(0)?).map(|i| panel(format!("{set} {i}"), &t.get(i)?));
            pictures.push((
                format!("templates-{set}"),
                8,
                panels.collect::<Result<_>>()?,
            ));
        }
        let gene = &templates.learngene;
        let weights = wave_models::vit::unstack(&gene.weights(&gene.auxiliary)?)?;
        attention_pictures(&gene.auxiliary, &weights, &mut pictures)?;
    }
    if let Some(Model {
        network: Network::Vit(shape),
        weights,
        ..
    }) = model
    {
        attention_pictures(shape, weights, &mut pictures)?;
    }
    let mut written = Vec::new();
    for (name, columns, panels) in pictures {
        let path = dir.join(format!("{name}.png"));
        wave_hub::write_atomic(&path, &plot::heat_map_grid(&panels, columns)?)?;
        written.push(path);
    }
    out["plots"] = json!(written);
    Ok(())
}

/// `W_Q W_K^T` of each head and `W_V W_proj` of each layer, in the convention `y = x W`.
fn attention_pictures(
    shape: &VitShape,
    weights: &Weights,
    pictures: &mut Vec<(String, usize, Vec<Panel>)>,
) -> Result<()> {
    let (d, h) = (shape.width, shape.head_width());
    let (mut qk, mut vp) = (Vec::new(), Vec::new());
    for l in 0..shape.depth {
        let qkv = &weights[&format!("blocks.{l}.attn.qkv.weight")]; // (3 d, d)
        let proj = &weights[&format!("blocks.{l}.attn.proj.weight")]; // (d, d)
        for head in 0..shape.heads {
            let q = qkv.narrow(0, head * h, h)?; // (h, d), the transpose of W_Q
            let k = qkv.narrow(0, d + head * h, h)?;
            qk.push(panel(
                format!("layer {l} head {head}"),
                &q.t()?.matmul(&k)?,
            )?);
        }
        let v = qkv.narrow(0, 2 * d, d)?;
        vp.push(panel(
            format!("layer {l}"),
            &v.t()?.contiguous()?.matmul(&proj.t()?.contiguous()?)?,
        )?);
    }
    pictures.push(("query-key".into(), shape.heads, qk));
    pictures.push(("value-projection".into(), 4, vp));
    Ok(())
}

fn panel(name: String, t: &Tensor) -> Result<Panel> {
    let (rows, cols) = t.dims2()?;
    Ok((name, rows, cols, t.flatten_all()?.to_vec1()?))
}
