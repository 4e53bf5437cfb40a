//! Reading and writing of sequence models.

use super::network::SequenceShape;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use wave_data::Tokenizer;
use wave_data::task::Task;
use wave_hub::{CardFront, FloatType};
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::locate;
use wave_run::settings::{Format, Output};
use wave_stages::layout;
use wave_stages::model::card_front;
use wave_stages::origin;

/// A sequence model as stored in a directory.
#[derive(Clone, Debug)]
pub struct SequenceModel {
    /// Sizes and mixers.
    pub shape: SequenceShape,
    /// Weights under transformers' names.
    pub weights: Weights,
    /// Provenance; `data` is the task.
    pub provenance: Value,
    /// What makes its tokens of text, if they are no characters.
    pub tokenizer: Option<Arc<Tokenizer>>,
}

impl SequenceModel {
    /// Reads a model directory.
    ///
    /// # Errors
    /// If a file is missing or broken, or the weights or the tokenizer differ from those described in
    /// `config.json`.
    pub fn read(path: &Path, context: &Context) -> Result<SequenceModel> {
        let dir = locate::locate(path, context)?;
        let (config, weights) = wave_hub::read_transformers(&dir)?;
        let shape = SequenceShape::from_config(&config)?;
        shape.check_weights(&weights)?;
        wave_hub::check_digests(&dir)?;
        Ok(SequenceModel {
            shape,
            weights,
            tokenizer: tokenizer(&dir, &config["wave"])?,
            provenance: config["wave"].clone(),
        })
    }

    /// Writes a model directory.
    ///
    /// # Errors
    /// If the work fails.
    pub fn write(&self, dir: &Path, float: FloatType, summary: &str) -> Result<()> {
        let mut config = self.shape.config();
        config["wave"] = self.provenance.clone();
        let card = self.card(summary, &config);
        let tokenizer = self.tokenizer.as_ref().map(|tokenizer| tokenizer.json());
        wave_hub::write_language_model(dir, &config, tokenizer, &self.weights, &card, float)?;
        Ok(())
    }

    /// The number of values in all weights.
    pub fn parameters(&self) -> usize {
        self.weights.values().map(|t| t.elem_count()).sum()
    }

    /// The number of values in a layer, counted from 0.
    pub fn layer_parameters(&self, layer: usize) -> usize {
        let start = format!("backbone.layers.{layer}.");
        let of_layer = self
            .weights
            .iter()
            .filter(|(name, _)| name.starts_with(&start));
        of_layer.map(|(_, t)| t.elem_count()).sum()
    }

    /// The task of the model's initialisation or training.
    ///
    /// # Errors
    /// If its directory does not record it.
    pub fn task(&self) -> Result<Task> {
        let Some(spec) = self.provenance["data"].as_str() else {
            return Err(request(
                "the model does not say which task it is for; give --data, such as copy:length=16",
            ));
        };
        self.task_of(spec)
    }

    /// A task in the model's tokens.
    ///
    /// # Errors
    /// If it is none, or its text cannot be read.
    pub fn task_of(&self, spec: &str) -> Result<Task> {
        Ok(Task::read(spec, self.tokenizer.as_ref())?)
    }

    /// Records what a text's tokens stand for.
    pub fn know(&mut self, task: &Task) {
        if let Some(tokenizer) = &self.tokenizer {
            self.provenance[KEY] = json!(wave_hub::sha256_hex(tokenizer.json()));
        } else if let Some(characters) = task.characters() {
            self.provenance["characters"] = json!(characters);
        }
    }

    /// Checks that a task has the model's vocabulary.
    ///
    /// # Errors
    /// If it has another.
    pub fn check_task(&self, task: &Task) -> Result<()> {
        let characters = task.characters();
        let known = self.provenance["characters"].as_str();
        if characters.is_some() && known.is_some() && characters.as_deref() != known {
            return Err(request(format!(
                "{task} has other characters than the text that the model was made for; start a model for \
                 this text with `wave init METHOD --arch A --data {task}`"
            )));
        }
        let (found, own) = (task.vocabulary(), self.shape.vocabulary);
        // A vocabulary is often padded to a round number.
        if found == own || (self.tokenizer.is_some() && task.text().is_some() && found < own) {
            return Ok(());
        }
        Err(request(format!(
            "{task} has {found} different tokens, the model {own}; choose symbols= accordingly, or \
             start a model for this task with `wave init METHOD --arch A --data {task}`"
        )))
    }

    fn card(&self, summary: &str, config: &Value) -> String {
        let native = config["model_type"] != json!("wave_sequence");
        let mut front = CardFront {
            pipeline_tag: Some("text-generation".into()),
            ..card_front()
        };
        let mut loading = "";
        if native {
            front.library_name = Some("transformers".into());
            front.tags.push("transformers".into());
            loading = FROM_TRANSFORMERS;
        }
        let mut names: Vec<&str> = self.shape.mixers.iter().map(|m| m.name()).collect();
        names.dedup();
        let title = format!(
            "{}, {} layers, width {}",
            names.join(", "),
            self.shape.depth(),
            self.shape.width
        );
        let body = format!(
            "{summary}\n\n{} parameters, {} tokens, state {}.\n{loading}",
            self.parameters(),
            self.shape.vocabulary,
            self.shape.state
        );
        origin::card(front, &self.provenance, &title, &body)
    }
}

const FROM_TRANSFORMERS: &str = "
```python
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(\"DIR\")
```
";

/// The digest of the tokenizer among the provenance.
const KEY: &str = "tokenizer_sha256";

/// The tokenizer of the model in `dir`. One whose tokens are characters, or of a task, has none.
fn tokenizer(dir: &Path, provenance: &Value) -> Result<Option<Arc<Tokenizer>>> {
    let file = dir.join(wave_hub::TOKENIZER_FILE);
    let said = provenance[KEY].as_str();
    if said.is_none() && (!provenance.is_null() || !file.exists()) {
        return Ok(None);
    }
    if !file.exists() {
        return Err(request(format!(
            "{} is missing, which makes the model's tokens; copy it there from the model's origin",
            file.display()
        )));
    }
    let tokenizer = Tokenizer::read(&file)?;
    if said.is_some_and(|said| said != wave_hub::sha256_hex(tokenizer.json())) {
        return Err(request(format!(
            "{} is not the one that the model was made with ({KEY} of config.json); copy that one there",
            file.display()
        )));
    }
    Ok(Some(Arc::new(tokenizer)))
}

/// The element type of the weights, from `dtype`.
///
/// # Errors
/// If another layout than transformers' is asked for.
pub(super) fn float(output: &Output) -> Result<FloatType> {
    if let Some(format) = output.format.filter(|f| *f != Format::Transformers) {
        return Err(request(format!(
            "format = {format}: a sequence network has no place there; leave it out (its directory is \
             transformers')"
        )));
    }
    layout::float(output.dtype.as_deref())
}
