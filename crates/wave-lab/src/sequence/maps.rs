//! `wave inspect` of a sequence model: its sizes, and a picture of the attention map of every layer
//! (thesis, section 3.3.1).

use super::model::SequenceModel;
use super::network::attention_maps;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::paths::text;
use wave_run::plot;
use wave_run::recipe::means_nothing;
use wave_run::settings::Pictures;

/// Describes the sequence model in `dir`, and draws the attention maps of its layers on one test
/// sequence into the directory `pictures.plots`. Returns the output of `--json`.
///
/// # Errors
/// If the model cannot be read or has no task, a page is asked for, or the work fails.
pub(super) fn inspect(dir: &Path, pictures: &Pictures, context: &Context) -> Result<Value> {
    if pictures.data.is_some() {
        return Err(means_nothing("data", "a sequence network"));
    }
    if pictures.html.is_some() {
        return Err(request(
            "--html: there is no page of a sequence network; draw its maps with --plots DIR",
        ));
    }
    let model = SequenceModel::read(dir, context)?;
    let names: Vec<&str> = model.shape.mixers.iter().map(|m| m.name()).collect();
    let mut out = json!({
        "kind": "model",
        "parameters": model.parameters(),
        "depth": model.shape.depth(),
        "width": model.shape.width,
        "vocabulary": model.shape.vocabulary,
        "state": model.shape.state,
        "mixers": names,
        "provenance": model.provenance,
    });
    if let Some(plots) = &pictures.plots {
        let maps = maps(&model, context)?;
        wave_hub::prepare_out(plots)?;
        let path = plots.join("attention-maps.png");
        let png = plot::heat_map_grid(&maps, 4)?;
        wave_hub::write_atomic(&path, &png)?;
        out["plots"] = json!([text(&path)]);
    }
    Ok(out)
}

/// A name, rows, columns and values.
type Panel = (String, usize, usize, Vec<f32>);

/// The attention map of each layer, where it has one.
fn maps(model: &SequenceModel, context: &Context) -> Result<Vec<Panel>> {
    let task = model.task()?;
    model.check_task(&task)?;
    let batches = task.test_batches(task.lengths.1, 1, 1);
    let tokens = &batches[0].tokens;
    let tokens = Tensor::from_slice(tokens, tokens.len(), &Device::Cpu)?;
    let maps = attention_maps(&model.shape, &context.place(&model.weights)?, &tokens)?;
    let panel = |(layer, map): &(usize, Tensor)| {
        let (rows, columns) = map.dims2()?;
        let values = map.to_device(&Device::Cpu)?.flatten_all()?.to_vec1()?;
        Ok((
            format!("layer {layer}: {}", model.shape.mixers[*layer].name()),
            rows,
            columns,
            values,
        ))
    };
    maps.iter().map(panel).collect()
}
