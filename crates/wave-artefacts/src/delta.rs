//! Reading and writing delta directories, and applying a delta to templates.

use crate::templates::{self, TemplateDir};
use anyhow::Result;
use candle_core::Tensor;
use std::path::Path;
use wave_hub::{DeltaConfig, FloatType};
use wave_models::Weights;
use wave_models::vit;
use wave_run::context::Context;
use wave_run::error::{Error, request};

/// A delta directory.
pub struct DeltaDir {
    /// Tensors by the names of [`wave_learngene::Learngene::tensors`].
    pub tensors: Weights,
    /// Its configuration.
    pub config: DeltaConfig,
}

/// Reads a delta directory, or `hf:OWNER/NAME` after a download.
pub fn fetch(name: &Path, context: &Context) -> Result<DeltaDir, Error> {
    Ok(read(&wave_run::locate::locate(name, context)?)?)
}

fn read(dir: &Path) -> Result<DeltaDir> {
    let (config, stored) = wave_hub::read_delta(dir)?;
    wave_hub::check_digests(dir)?;
    let mut tensors = Weights::new();
    for part in stored.keys().filter_map(|n| n.strip_prefix("bank.0.")) {
        let anchors = (0..config.anchors).map(|a| &stored[&format!("bank.{a}.{part}")]);
        let anchors: Vec<&Tensor> = anchors.collect();
        tensors.insert(format!("bank.{part}"), Tensor::stack(&anchors, 0)?);
    }
    let mut inherited = Weights::new();
    for (name, t) in &stored {
        if name.starts_with("templates.") {
            tensors.insert(name.clone(), t.clone());
        } else if let Some(name) = name.strip_prefix("auxiliary.") {
            inherited.insert(name.to_owned(), t.clone());
        }
    }
    let inherited = vit::stack(&inherited, config.anchors);
    let file = dir.join("delta.safetensors");
    let wrong = |error| request(format!("{}: {error}", file.display()));
    tensors.extend(inherited.map_err(wrong)?);
    Ok(DeltaDir { tensors, config })
}

/// Writes a delta directory, all values as `float`.
pub fn write(dir: &Path, delta: &DeltaDir, float: FloatType, card: &str) -> Result<()> {
    let stored = templates::stored(delta.tensors.clone())?;
    wave_hub::write_delta(dir, &delta.config, &stored, float, card)?;
    Ok(())
}

impl TemplateDir {
    /// The templates with a delta applied that was made for them: for its data, with its classes and recorded
    /// accuracies.
    ///
    /// # Errors
    /// If it was made for other templates, or its tensors do not fit these.
    pub fn adapted(mut self, delta: &DeltaDir) -> Result<TemplateDir, Error> {
        let made_for = &delta.config.templates_sha256;
        if *made_for != self.digest {
            return Err(request(format!(
                "the delta was made for templates with SHA-256 {made_for:.16}..., but these have \
                 {:.16}...; use the templates that `wave adapt` used",
                self.digest
            ))
            .into());
        }
        let learngene = self.learngene.with_delta(&delta.tensors);
        self.learngene = learngene.map_err(|error| request(error.to_string()))?;
        let config = delta.config.clone();
        self.config.classes = config.classes;
        self.config.label_names = config.label_names;
        self.config.accuracies = config.accuracies;
        self.config.shapes = config.shapes;
        self.config.provenance = config.provenance;
        Ok(self)
    }
}
