//! Graph hypernetworks (GHN-3): reading, writing, and training as a method of `wave meta`.
//!
//! A directory holds the weights under their published names (`wave_init::graph`), and in `config.json`
//! the images and classes of the predicted networks. `recipes/ghn3.py` makes one from a published
//! hypernetwork.

use crate::model::{card_front, decimal};
use crate::origin;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_hub::FloatType;
use wave_init::graph;
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::locate;

/// `model_type` of the configuration.
const MODEL_TYPE: &str = "wave_hypernetwork";

/// The method of `wave init` that predicts weights.
pub const METHOD: &str = "ghn3";

/// A hypernetwork as stored in a directory.
#[derive(Clone, Debug)]
pub struct HyperModel {
    /// The hypernetwork.
    pub hypernetwork: graph::Hypernetwork,
    /// Preprocessing of the images of predicted networks.
    pub transform: Transform,
    /// Input and classes of predicted networks.
    pub about: About,
    /// Provenance.
    pub provenance: Value,
}

/// Common properties of predicted networks, as in `config.json`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct About {
    /// Side of the image in pixels.
    pub image_size: usize,
    /// Colour channels.
    pub channels: usize,
    /// Mean of each channel.
    pub mean: Vec<f64>,
    /// Standard deviation of each channel.
    pub std: Vec<f64>,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Channels of a head.
    pub head_width: usize,
    /// Names of the classes.
    pub label_names: Vec<String>,
}

impl About {
    /// A transformer of this size for these images.
    pub fn shape(&self, depth: usize, width: usize) -> VitShape {
        VitShape {
            image_size: self.image_size,
            channels: self.channels,
            patch: self.patch,
            depth,
            width,
            heads: (width / self.head_width.max(1)).max(1),
            classes: self.label_names.len(),
            class_token: false,
            ..VitShape::default()
        }
    }
}

/// Whether a directory with this `config.json` holds a hypernetwork.
pub fn is_model(config: &Value) -> bool {
    config["model_type"] == MODEL_TYPE
}

impl HyperModel {
    /// Reads a directory.
    ///
    /// # Errors
    /// If it does not hold a hypernetwork, or a file is missing or broken.
    pub fn read(path: &Path, context: &Context) -> Result<HyperModel> {
        let place = locate::locate(path, context)?;
        if !is_model(&locate::config(&place, context)?) {
            return Err(request(format!(
                "{} is no hypernetwork; name a directory that `wave meta` wrote with method {METHOD}, or \
                 recipes/ghn3.py",
                path.display()
            )));
        }
        let (config, weights) = wave_hub::read_transformers(&place)?;
        let mut hypernetwork = graph::Hypernetwork::new(weights)?;
        wave_hub::check_digests(&place)?;
        hypernetwork.epochs = config["wave"]["epochs"].as_f64().unwrap_or(0.0);
        let about: About = serde_json::from_value(config.clone())
            .with_context(|| format!("config.json of {}", place.display()))?;
        if about.mean.len() != about.channels || about.std.len() != about.channels {
            return Err(request(format!(
                "config.json of {} has {} means and {} deviations for {} channels",
                place.display(),
                about.mean.len(),
                about.std.len(),
                about.channels
            )));
        }
        let narrow = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
        Ok(HyperModel {
            hypernetwork,
            transform: Transform::new(about.image_size, narrow(&about.mean), narrow(&about.std)),
            about,
            provenance: config["wave"].clone(),
        })
    }

    /// Writes a directory.
    ///
    /// # Errors
    /// If the work fails.
    pub fn write(&self, dir: &Path, summary: &str) -> Result<()> {
        let mut config = serde_json::to_value(&self.about)?;
        config["model_type"] = json!(MODEL_TYPE);
        config["wave"] = self.provenance.clone();
        let shape = self.hypernetwork.shape();
        let title = format!(
            "Graph hypernetwork, {} layers, width {}",
            shape.layers, shape.hidden
        );
        let parameters = self.hypernetwork.parameters();
        let body = format!("{summary}\n\n{parameters} parameters.\n");
        let card = origin::card(card_front(), &self.provenance, &title, &body);
        let weights = self.hypernetwork.weights();
        wave_hub::write_transformers(dir, &config, None, weights, &[], &card, FloatType::F32)?;
        Ok(())
    }
}

/// Means and deviations as printed.
pub fn decimals(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| decimal(*v)).collect()
}
