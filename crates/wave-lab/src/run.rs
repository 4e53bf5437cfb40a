//! The parts that the papers share: settings from a recipe, training, and result files.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use toml::Table;
use wave_models::Weights;
use wave_run::error::request;
use wave_run::plot::{self, Chart, Series, Unit};
use wave_run::recipe::{means_nothing, merge, narrow, to_table};
use wave_run::run_dir::Options;
use wave_run::settings::{Optimisation, Training};
use wave_run::train::{
    self, Defaults, LossInput, Outcome, Parameters, Resolved, TrainRun, Trainable, TrainingData,
    TrainingPlan,
};
use wave_train::{Batches, Scores, Variable};

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
    let keys: Table = text
        .parse()
        .map_err(|e| request(format!("recipe {}: {e}", recipe.display())))?;
    let mut all = Table::new();
    for (key, value) in keys {
        match value {
            toml::Value::Table(table) => merge(&mut all, &table),
            value => _ = all.insert(key, value),
        }
    }
    all.remove("name");
    merge(&mut all, &to_table(flags)?);
    wave_run::settings::check(&all)?;
    narrow(&all, "this paper")
}

/// Keys, each with the values of another setting to which it applies.
pub(crate) type Keys = [(&'static str, &'static [&'static str])];

/// Refuses settings with a key that does not apply to their value of `choice`, by default `usual`.
pub(crate) fn check_keys(
    settings: &impl Serialize,
    keys: &Keys,
    choice: &str,
    usual: &str,
) -> Result<()> {
    let given = to_table(settings)?;
    let value = given.get(choice).and_then(toml::Value::as_str);
    let value = value.unwrap_or(usual);
    for (key, values) in keys {
        if given.contains_key(*key) && !values.contains(&value) {
            return Err(means_nothing(key, &format!("--{choice} {value}")));
        }
    }
    Ok(())
}

/// The settings of a training on its data.
pub(crate) fn resolved(
    optimisation: &Optimisation,
    defaults: Defaults,
    data: &impl TrainingData,
) -> Result<Resolved> {
    let training = Training {
        optimisation: optimisation.clone(),
        ..Training::default()
    };
    TrainingPlan::new(&training, defaults)?.resolve(data)
}

/// A network to train, as functions of its weights.
pub(crate) struct Network<'a, B> {
    /// The first weights.
    pub(crate) start: &'a Weights,
    pub(crate) resolved: Resolved,
    /// The loss on a batch and its input.
    pub(crate) loss: &'a dyn Fn(&Weights, &B, &Tensor) -> candle_core::Result<Tensor>,
    pub(crate) score: &'a dyn Fn(&Weights) -> Result<Scores>,
}

impl<B> Network<'_, B> {
    pub(crate) fn train<D>(&self, data: &D, every_epoch: bool, run: &Run) -> Result<Outcome>
    where
        D: TrainingData<Batches: Batches<Batch = B>>,
    {
        wave_hub::prepare_out(&run.out)?; // fails before the training, not after it
        let train_run = TrainRun {
            label: "training",
            data,
            resolved: &self.resolved,
            every_epoch,
        };
        train::train(self, &train_run, None, &run.options)
    }
}

impl<B> Trainable for Network<'_, B> {
    type Batch = B;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let all = self.start.iter();
        all.map(|(name, t)| train::variable(name, t, &self.resolved, 0, device))
            .collect()
    }

    fn loss(&self, live: &Parameters, on: &LossInput<B>) -> candle_core::Result<Tensor> {
        (self.loss)(&live.weights, on.batch, on.input)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        (self.score)(values)
    }
}
