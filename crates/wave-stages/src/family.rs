//! Families of networks, each with its own `init`, `finetune`, `eval` and `inspect`.

use crate::finetune::Options;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use toml::Table;
use wave_run::error::request;
use wave_run::settings::{Eval, Finetune};

/// A family of networks. A new one is an implementation, and an entry in the command's table.
///
/// Methods that return a `Value` do the work and return the output of `--json`. Those that begin with
/// `describe` check everything in advance and return the output of `--dry-run`.
pub trait Family: Sync {
    /// Values of `--arch` for its networks.
    fn architectures(&self) -> Vec<&'static str>;

    /// The method of `wave init` for its networks, where that selects the family instead of `--arch`.
    fn method(&self) -> Option<&'static str> {
        None
    }

    /// Whether a directory with this `config.json` holds a network of the family.
    fn holds(&self, config: &Value) -> bool;

    /// Whether `wave convert` has several layouts for its networks.
    fn has_layouts(&self) -> bool {
        false
    }

    /// Text on its methods in `wave init --help`.
    fn help(&self) -> String;

    /// Initialises a network and writes it to `out`. The family selects the settings that apply to it.
    ///
    /// # Errors
    /// If settings are missing or wrong, or the work fails.
    fn init(&self, method: &str, settings: &Table, out: &Path, options: Options) -> Result<Value>;

    /// The plan of [`Family::init`].
    ///
    /// # Errors
    /// As the work's own, before it begins.
    fn describe_init(&self, method: &str, settings: &Table) -> Result<String>;

    /// Trains the network in `model` and writes it to `out`.
    ///
    /// # Errors
    /// If settings are wrong or do not fit the network, or the work fails.
    fn finetune(
        &self,
        model: &Path,
        settings: &Finetune,
        out: &Path,
        options: Options,
    ) -> Result<Value> {
        let _ = (settings, out, options);
        Err(only_drawn(model))
    }

    /// The plan of [`Family::finetune`].
    ///
    /// # Errors
    /// As the work's own, before its first step.
    fn describe_finetune(&self, model: &Path, settings: &Finetune) -> Result<String> {
        let _ = settings;
        Err(only_drawn(model))
    }

    /// Accuracy of the network in `model`.
    ///
    /// # Errors
    /// If settings are wrong or do not fit the network, or the work fails.
    fn eval(&self, model: &Path, settings: &Eval) -> Result<Value> {
        let _ = settings;
        Err(only_drawn(model))
    }

    /// Contents of `model`; pictures go to the directory `plots`, a page to the file `html`.
    ///
    /// # Errors
    /// If it cannot be read, or there is no such picture or page.
    fn inspect(&self, model: &Path, plots: Option<&Path>, html: Option<&Path>) -> Result<Value> {
        let _ = (plots, html);
        Err(only_drawn(model))
    }
}

fn only_drawn(model: &Path) -> anyhow::Error {
    request(format!(
        "{} is of a kind that `wave init` draws, and no other command reads",
        model.display()
    ))
}

/// Refuses `--heads` for a network whose `config.json` has all sizes.
///
/// # Errors
/// If it was given.
pub fn refuse_heads(heads: Option<usize>) -> Result<()> {
    match heads {
        None => Ok(()),
        Some(heads) => Err(request(format!(
            "--heads {heads}: the model's config.json has all its sizes; leave it out"
        ))),
    }
}
