//! Populations: `wave init --arch population`, and `finetune`, `eval` and `inspect` of its output.
//!
//! They share commands, settings, data, training loop and run directories with single networks. The
//! differences: each network has its own images in a step, and `inspect` shows statistics over the
//! networks' weights.

mod finetune;
mod init;
mod inspect;
mod model;

mod settings;

pub use model::PopulationModel;
pub use settings::Flags;

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use toml::Table;
use wave_run::settings::{Eval, Finetune};
use wave_stages::family::{Family, refuse_heads};
use wave_stages::finetune::Options;

/// The name of the architecture.
pub const ARCHITECTURE: &str = "population";

/// Name in messages.
const WHAT: &str = "a population";

/// The family of populations of small networks.
pub struct Populations;

impl Family for Populations {
    fn architectures(&self) -> Vec<&'static str> {
        vec![ARCHITECTURE]
    }

    fn holds(&self, config: &Value) -> bool {
        model::is_model(config)
    }

    fn help(&self) -> String {
        let mut text =
            "For a population, many small isotropic ConvNeXts side by side:\n".to_string();
        for method in wave_init::population::METHODS {
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
        inspect::inspect(model, plots, html)
    }
}
