//! Statistics of a population's weights, in numbers and pictures (thesis, sections 3.4.1 and 3.4.3).

use super::network::PopulationShape;
use super::statistics::{LayerStatistics, across_layers, centre, layers, network, off_diagonal};
use crate::run::{Panel, Run, panel};
use anyhow::Result;
use candle_core::Tensor;
use serde_json::{Value, json};
use wave_models::Weights;

/// Hidden channels in the picture of a covariance; the others look the same.
const SHOWN: usize = 4;

/// Statistics over the networks, in numbers.
pub(super) fn statistics(shape: &PopulationShape, weights: &Weights) -> Result<Value> {
    let whole = network(shape, weights)?;
    let of_layers = layers(shape, weights)?.into_iter().map(|layer| {
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
    Ok(json!({
        "layers": of_layers.collect::<Result<Vec<_>>>()?,
        "fc2_across_layers": across_layers(shape, weights)?.to_vec2::<f64>()?,
        "tensors": whole.tensors,
        "between_tensors": whole.between.to_vec2::<f64>()?,
        "bias_with_row": whole.bias_with_row,
    }))
}

/// Plots correlations over the networks.
pub(super) fn draw(shape: &PopulationShape, weights: &Weights, run: &Run) -> Result<()> {
    let found = layers(shape, weights)?;
    let whole = network(shape, weights)?;
    let panels = |of_layers: Vec<Tensor>| -> Result<Vec<Panel>> {
        let panel = |(l, t): (usize, &Tensor)| panel(format!("layer {l}"), t);
        of_layers.iter().enumerate().map(panel).collect()
    };
    let covariances = found.iter().map(covariance).collect::<Result<_>>()?;
    let across = off_diagonal(&across_layers(shape, weights)?)?;
    let mut pictures = vec![
        ("covariance", panels(covariances)?),
        ("network", vec![panel("all weights".into(), &whole.shown)?]),
        ("fc2-across-layers", vec![panel("W2".into(), &across)?]),
    ];
    let products = found.iter().map(|layer| layer.filter_product.clone());
    if let Some(products) = products.collect() {
        pictures.push(("filter-product", panels(products)?));
    }
    for (name, panels) in pictures {
        run.draw(name, &panels, panels.len())?;
    }
    Ok(())
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
