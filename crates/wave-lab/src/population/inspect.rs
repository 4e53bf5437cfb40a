//! `wave inspect` of a population: statistics of its weights, in numbers and pictures (thesis, sections
//! 3.4.1 and 3.4.3).

use super::model::PopulationModel;
use super::statistics::{LayerStatistics, across_layers, centre, layers, network, of_channels};
use anyhow::Result;
use candle_core::Tensor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::paths::text;
use wave_run::plot;
use wave_run::recipe::means_nothing;
use wave_run::settings::Pictures;

/// Hidden channels in the picture of a covariance; further ones look the same.
const SHOWN: usize = 4;

/// A name, rows, columns and values.
type Panel = (String, usize, usize, Vec<f32>);

/// Describes the population in `dir`, and draws correlations over its networks into the directory
/// `pictures.plots`. Returns the output of `--json`.
///
/// # Errors
/// If the population cannot be read or has a single network, or a page is asked for; or the work fails.
pub(super) fn inspect(dir: &Path, pictures: &Pictures, context: &Context) -> Result<Value> {
    if pictures.data.is_some() {
        return Err(means_nothing("data", "a population"));
    }
    if pictures.html.is_some() {
        return Err(request(
            "--html: there is no page of a population; draw its correlations with --plots DIR",
        ));
    }
    let model = PopulationModel::read(dir, context)?;
    let found = layers(&model.shape, &model.weights)?;
    let across = across_layers(&model.shape, &model.weights)?;
    let whole = network(&model.shape, &model.weights)?;
    let of_layers = found.iter().map(|layer| {
        let mut out = json!({
            "stripes_fc1": layer.stripes_fc1,
            "stripes_fc2": layer.stripes_fc2,
            "fc1_fc2": layer.fc1_fc2,
        });
        if let Some(product) = &layer.filter_product {
            out["centre_product"] = json!(centre(product)?);
        }
        Ok(out)
    });
    let mut out = json!({
        "kind": "population",
        "parameters": model.parameters(),
        "networks": model.shape.networks,
        "depth": model.shape.depth,
        "width": model.shape.width,
        "layers": of_layers.collect::<Result<Vec<_>>>()?,
        "fc2_across_layers": across.to_vec2::<f64>()?,
        "tensors": whole.tensors,
        "between_tensors": whole.between.to_vec2::<f64>()?,
        "bias_with_row": whole.bias_with_row.iter().cloned().collect::<BTreeMap<_, _>>(),
        "provenance": model.provenance,
    });
    if let Some(plots) = &pictures.plots {
        wave_hub::prepare_out(plots)?;
        let panels = |of_layers: Vec<Tensor>| -> Result<Vec<Panel>> {
            let panel = |(l, t): (usize, &Tensor)| panel(format!("layer {l}"), t);
            of_layers.iter().enumerate().map(panel).collect()
        };
        let covariances = found.iter().map(covariance).collect::<Result<_>>()?;
        let shown = SHOWN.min(model.shape.hidden);
        let channels = (0..model.shape.depth).map(|layer| {
            let found = of_channels(&model.shape, &model.weights, layer, shown)?;
            Ok(off_diagonal(&found)?)
        });
        let mut pictures = vec![
            ("covariance", panels(covariances)?),
            (
                "covariance-of-channels",
                panels(channels.collect::<Result<_>>()?)?,
            ),
            ("network", vec![panel("all weights".into(), &whole.shown)?]),
            (
                "between-tensors",
                vec![panel("root mean square".into(), &whole.between)?],
            ),
            (
                "fc2-across-layers",
                vec![panel("W2".into(), &off_diagonal(&across)?)?],
            ),
        ];
        let products = found.iter().map(|layer| layer.filter_product.clone());
        if let Some(products) = products.collect() {
            pictures.push(("filter-product", panels(products)?));
        }
        let mut written: Vec<String> = Vec::new();
        for (name, panels) in pictures {
            let path = plots.join(format!("{name}.png"));
            let png = plot::heat_map_grid(&panels, panels.len())?;
            wave_hub::write_atomic(&path, &png)?;
            written.push(text(&path));
        }
        out["plots"] = json!(written);
    }
    Ok(out)
}

/// Correlations of the weights of a few hidden channels, first all of W1, then all of W2, as in figure
/// 3.35 of the thesis. The diagonal is left out.
fn covariance(layer: &LayerStatistics) -> Result<Tensor> {
    let both = layer.within.dim(0)?;
    let h = both / 2;
    let quarter = |rows: usize, columns: usize| -> Result<Tensor> {
        let part = |t: &Tensor| t.narrow(0, rows * h, h)?.narrow(1, columns * h, h);
        let (mut within, between) = (part(&layer.within)?, part(&layer.between)?);
        if rows == columns {
            within = off_diagonal(&within)?;
        }
        let line = |i: usize| {
            let blocks: Vec<&Tensor> = (0..SHOWN)
                .map(|j| if i == j { &within } else { &between })
                .collect();
            Tensor::cat(&blocks, 1)
        };
        let lines = (0..SHOWN)
            .map(line)
            .collect::<candle_core::Result<Vec<_>>>()?;
        Ok(Tensor::cat(&lines, 0)?)
    };
    let upper = Tensor::cat(&[quarter(0, 0)?, quarter(0, 1)?], 1)?;
    let lower = Tensor::cat(&[quarter(1, 0)?, quarter(1, 1)?], 1)?;
    Ok(Tensor::cat(&[upper, lower], 0)?)
}

/// A square matrix without its diagonal.
fn off_diagonal(t: &Tensor) -> candle_core::Result<Tensor> {
    let eye = Tensor::eye(t.dim(0)?, t.dtype(), t.device())?;
    t * (1.0 - eye)?
}

fn panel(name: String, t: &Tensor) -> Result<Panel> {
    let (rows, columns) = t.dims2()?;
    let values = t
        .to_dtype(candle_core::DType::F32)?
        .flatten_all()?
        .to_vec1()?;
    Ok((name, rows, columns, values))
}
