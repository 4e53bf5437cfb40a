//! The parts that the papers share: settings from a recipe, variables, and result files.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use toml::Table;
use wave_models::{ShapeError, Weights, check};
use wave_run::error::request;
use wave_run::plot::{self, Chart, Series, Unit};
use wave_run::recipe::{merge, narrow, to_table};
use wave_run::run_dir::Options;
use wave_run::settings::{BatchSize, Optimisation};
use wave_run::train::{self, Resolved};
use wave_train::Variable;

pub struct Run {
    /// The directory to write.
    pub out: PathBuf,
    pub options: Options,
}

impl Run {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// Writes a network: its sizes and weights.
    pub(crate) fn write_network(&self, shape: &impl Serialize, weights: &Weights) -> Result<()> {
        std::fs::create_dir_all(&self.out)?;
        wave_hub::write_json(&self.file("config.json"), shape)?;
        let none = std::collections::BTreeMap::new();
        wave_hub::write_tensors(&self.file("model.safetensors"), weights, &none)?;
        Ok(())
    }

    /// Writes matrices as a picture of heat maps, `columns` in a row.
    pub(crate) fn draw(&self, name: &str, panels: &[Panel], columns: usize) -> Result<()> {
        let png = plot::heat_map_grid(panels, columns)?;
        wave_hub::write_atomic(&self.file(&format!("{name}.png")), &png)?;
        Ok(())
    }

    /// Writes a chart of these lines, by name.
    pub(crate) fn chart(
        &self,
        file: &str,
        title: &str,
        [x_label, y_label]: [&str; 2],
        lines: &[(String, Vec<(f64, f64)>)],
    ) -> Result<()> {
        let series: Vec<Series> = lines.iter().map(|(n, p)| Series::new(n, p)).collect();
        let chart = Chart {
            title,
            x_label,
            y_label,
            unit: Unit::Plain,
            series: &series,
        };
        wave_hub::write_atomic(&self.file(file), chart.svg()?.as_bytes())?;
        Ok(())
    }

    /// Writes the result, the last file of a run.
    pub(crate) fn finish(&self, result: Value) -> Result<Value> {
        wave_hub::write_json(&self.file("result.json"), &result)?;
        Ok(result)
    }
}

/// A name, rows, columns and values.
pub(crate) type Panel = (String, usize, usize, Vec<f32>);

/// A matrix as a panel of a picture.
pub(crate) fn panel(name: String, t: &Tensor) -> Result<Panel> {
    let (rows, columns) = t.dims2()?;
    let values = t.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    Ok((name, rows, columns, values))
}

/// Number of values in all tensors.
pub(crate) fn count(tensors: &Weights) -> usize {
    tensors.values().map(Tensor::elem_count).sum()
}

/// Rejects weights of these shapes if they have more than `at_most` values in total.
pub(crate) fn at_most<'a>(
    at_most: usize,
    name: &'static str,
    shapes: impl Iterator<Item = &'a Vec<usize>>,
) -> std::result::Result<(), ShapeError> {
    let values = |dims: &Vec<usize>| {
        dims.iter()
            .fold(1, |n: usize, size| n.saturating_mul(*size))
    };
    let all = shapes.map(values).fold(0, usize::saturating_add);
    check::at_most(name, all, at_most)
}

/// `ln(1 + e^x)`, without overflow.
pub(crate) fn softplus(x: &Tensor) -> candle_core::Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// `ln(e^y - 1)` of a positive number, the inverse of [`softplus`].
pub(crate) fn inverse_softplus(y: f64) -> f64 {
    y + (-(-y).exp_m1()).ln()
}

/// The settings in a recipe, whose tables are only headings, overridden by the flags.
pub(crate) fn settings<T>(recipe: &Path, flags: &T) -> Result<T>
where
    T: Serialize + DeserializeOwned + Default,
{
    let text = wave_hub::read_text(recipe)
        .map_err(|e| request(format!("cannot read the recipe {e}; give a TOML file")))?;
    let mut keys: Table = text
        .parse()
        .map_err(|e| request(format!("recipe {}: {e}", recipe.display())))?;
    keys.remove("name");
    let mut all = Table::new();
    for (key, value) in keys {
        match value {
            toml::Value::Table(table) => merge(&mut all, &table),
            value => merge(&mut all, &Table::from_iter([(key, value)])),
        }
    }
    merge(&mut all, &to_table(flags)?);
    wave_run::settings::check(&all)?;
    narrow(&all, "this paper")
}

/// The number of examples per step.
pub(crate) fn batch(optimisation: &Optimisation, usual: usize) -> Result<usize> {
    match optimisation.batch {
        None => Ok(usual),
        Some(BatchSize::Images(examples)) => Ok(examples),
        Some(BatchSize::Auto) => Err(request("batch = auto; give a number here")),
    }
}

/// All weights as variables.
pub(crate) fn variables(
    weights: &Weights,
    resolved: &Resolved,
    device: &Device,
) -> Result<Vec<Variable>> {
    let all = weights.iter();
    all.map(|(name, t)| train::variable(name, t, resolved, 0, device))
        .collect()
}
