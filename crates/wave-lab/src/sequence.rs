//! Sequence networks: `wave init --arch mamba2`, and `finetune`, `eval` and `inspect` of its output.
//!
//! They share commands, settings, training loop and run directories with networks of images. The
//! differences: the data are tokens of a task, and the model is stored as transformers' own Mamba or
//! Mamba-2.

mod finetune;
mod init;
mod maps;
mod model;

mod settings;

pub use model::SequenceModel;
pub use settings::Flags;

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use toml::Table;
use wave_models::SequenceShape;
use wave_run::settings::{Eval, Finetune};
use wave_stages::family::{Family, refuse_heads};
use wave_stages::finetune::Options;

/// Name in messages.
const WHAT: &str = "a sequence network";

/// The family of sequence networks.
pub struct Sequences;

impl Family for Sequences {
    fn architectures(&self) -> Vec<&'static str> {
        init::architectures()
    }

    fn holds(&self, config: &Value) -> bool {
        SequenceShape::describes(config)
    }

    fn help(&self) -> String {
        let names = self.architectures().join(", ");
        let mut text = format!("For the sequence networks {names}:\n");
        for method in wave_init::state_space::METHODS {
            text += &format!("  {:20} {}\n", method.name, method.description);
        }
        text
    }

    fn init(&self, method: &str, settings: &Table, out: &Path, options: Options) -> Result<Value> {
        init::init(method, settings, out, options)
    }

    fn describe_init(&self, method: &str, settings: &Table) -> Result<String> {
        init::describe(method, settings)
    }

    fn finetune(
        &self,
        model: &Path,
        settings: &Finetune,
        out: &Path,
        options: Options,
    ) -> Result<Value> {
        finetune::finetune(model, settings, out, options)
    }

    fn describe_finetune(&self, model: &Path, settings: &Finetune) -> Result<String> {
        finetune::describe(model, settings)
    }

    fn eval(&self, model: &Path, settings: &Eval) -> Result<Value> {
        refuse_heads(settings.heads)?;
        finetune::eval(model, settings)
    }

    fn inspect(&self, model: &Path, plots: Option<&Path>, html: Option<&Path>) -> Result<Value> {
        maps::inspect(model, plots, html)
    }
}
