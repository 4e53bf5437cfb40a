//! Reading and writing of populations.

use super::network::{Mixer, PopulationShape};
use super::{ARCHITECTURE, WHAT};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_hub::FloatType;
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::locate;
use wave_run::settings::Output;
use wave_stages::layout;
use wave_stages::model::{card_front, decimal};
use wave_stages::origin;

/// `model_type` of the configuration.
const MODEL_TYPE: &str = "wave_population";

/// A population as stored in a directory.
#[derive(Clone, Debug)]
pub struct PopulationModel {
    /// Sizes.
    pub shape: PopulationShape,
    /// Weights, stacked over the networks.
    pub weights: Weights,
    /// Preprocessing of images.
    pub transform: Transform,
    /// Provenance.
    pub provenance: Value,
}

/// Whether a directory with this `config.json` holds a population.
pub(super) fn is_model(config: &Value) -> bool {
    config["model_type"] == MODEL_TYPE
}

impl PopulationModel {
    /// Reads a model directory.
    ///
    /// # Errors
    /// If a file is missing or broken, or the weights differ from those described in `config.json`.
    pub fn read(path: &Path, context: &Context) -> Result<PopulationModel> {
        let dir = locate::locate(path, context)?;
        let (config, weights) = wave_hub::read_transformers(&dir)?;
        let part = |key: &str| -> Result<Value> {
            match config.get(key) {
                Some(value) => Ok(value.clone()),
                None => Err(request(format!(
                    "the population's config.json has no {key}"
                ))),
            }
        };
        let shape = serde_json::from_value::<PopulationShape>(part("shape")?)
            .context("the sizes in the population's config.json")?;
        shape.validate()?;
        shape.check_weights(&weights)?;
        wave_hub::check_digests(&dir)?;
        let of_channels = |key: &str| -> Result<Vec<f32>> {
            let values = serde_json::from_value::<Vec<f32>>(part(key)?)
                .with_context(|| format!("{key} in the population's config.json"))?;
            match values.len() == shape.channels {
                true => Ok(values),
                false => Err(request(format!(
                    "{key} in the population's config.json has {} values for {} channels",
                    values.len(),
                    shape.channels
                ))),
            }
        };
        let (mean, std) = (of_channels("mean")?, of_channels("std")?);
        let transform = Transform::new(shape.image_size, mean, std);
        Ok(PopulationModel {
            shape,
            weights,
            transform,
            provenance: config["wave"].clone(),
        })
    }

    /// Writes a model directory.
    ///
    /// # Errors
    /// If the work fails.
    pub fn write(&self, dir: &Path, float: FloatType, summary: &str) -> Result<()> {
        let decimals = |values: &[f32]| values.iter().map(|v| decimal(*v)).collect::<Vec<_>>();
        let config = json!({
            "model_type": MODEL_TYPE,
            "shape": self.shape,
            "mean": decimals(&self.transform.mean),
            "std": decimals(&self.transform.std),
            "wave": self.provenance,
        });
        let PopulationShape {
            networks,
            depth,
            width,
            mixer,
            ..
        } = self.shape;
        let kind = match mixer {
            Mixer::Convolution { .. } => "isotropic ConvNeXts",
            Mixer::Attention { .. } => "transformers",
        };
        let title = format!("{networks} {kind}, {depth} layers, width {width}");
        let body = format!("{summary}\n\n{} parameters in all.\n", self.parameters());
        let card = origin::card(card_front(), &self.provenance, &title, &body);
        wave_hub::write_transformers(dir, &config, None, &self.weights, &[], &card, float)?;
        Ok(())
    }

    /// The number of values in all weights of all networks.
    pub fn parameters(&self) -> usize {
        self.weights.values().map(|t| t.elem_count()).sum()
    }
}

/// The element type of the weights, from `dtype`.
///
/// # Errors
/// If `format` asks for a layout.
pub(super) fn float(output: &Output) -> Result<FloatType> {
    match &output.format {
        None => layout::float(output.dtype.as_deref()),
        Some(format) => Err(request(format!(
            "format = {format}: {WHAT} has no place there; leave it out (only `wave` reads the \
             networks of --arch {ARCHITECTURE})"
        ))),
    }
}
