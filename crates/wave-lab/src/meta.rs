//! `wave meta`: learns an initialisation from training.
//!
//! The output is a directory from which `wave init learned` makes models. A method is a file under
//! `meta/`, and an entry in [`meta`]:
//!
//! - `normal` and `plif` (`distribution.rs`): a distribution for each weight tensor, learned by
//!   back-propagation through the training run (DIMAML). `problem.rs` has the tasks, `network.rs` the
//!   networks, `learn.rs` the outer loop, `trial.rs` the comparison with other initialisations on
//!   another task;
//! - `ghn3` ([`wave_stages::hypernetwork`]): a graph hypernetwork that predicts weights; `wave init
//!   ghn3` makes models with it.

mod distribution;
mod ghn3;
mod learn;
mod network;
mod plan;
mod problem;
mod settings;
mod trial;

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use toml::Table;
use wave_run::recipe::{means_nothing, narrow, to_table};
use wave_stages::family::Family;
use wave_stages::finetune::Options;

pub use settings::{Meta, MetaMethod};

/// The method of `wave init` that draws from learned distributions.
const LEARNED: &str = "learned";

/// Its name in messages.
const WHAT: &str = "method learned, whose network is that of --from";

/// Learns an initialiser and writes it to `out`. Returns the output of `--json`. Distributions must be
/// learned inside [`wave_train::second_order`].
///
/// # Errors
/// If settings are wrong, or the work fails.
pub fn meta(name: &str, settings: &Meta, out: &Path, options: Options) -> Result<Value> {
    match settings.method.unwrap_or_default() {
        MetaMethod::Normal | MetaMethod::Plif => distribution::meta(name, settings, out, options),
        MetaMethod::Ghn3 => {
            of_distributions(settings)?;
            let (own, training) = (&settings.hypernetwork, &settings.training);
            ghn3::train(&to_table(settings)?, own, training, out, options)
        }
    }
}

/// Whether training needs second derivatives: for all methods except hypernetworks.
pub fn differentiates_training(settings: &Meta) -> bool {
    settings.method != Some(MetaMethod::Ghn3)
}

/// The output of `--dry-run`.
///
/// # Errors
/// As [`meta`].
pub fn describe(settings: &Meta) -> Result<String> {
    match settings.method.unwrap_or_default() {
        MetaMethod::Normal | MetaMethod::Plif => distribution::describe(settings),
        MetaMethod::Ghn3 => {
            of_distributions(settings)?;
            ghn3::describe(&settings.hypernetwork, &settings.training)
        }
    }
}

/// Refuses settings that do not apply to a hypernetwork.
fn of_distributions(settings: &Meta) -> Result<()> {
    match to_table(&settings.distribution)?.keys().next() {
        None => Ok(()),
        Some(key) => Err(means_nothing(key, "a hypernetwork")),
    }
}

/// Models drawn from the output of `wave meta`.
pub struct Learned;

impl Family for Learned {
    fn architectures(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn method(&self) -> Option<&'static str> {
        Some(LEARNED)
    }

    fn holds(&self, _: &Value) -> bool {
        false
    }

    fn help(&self) -> String {
        let description =
            "drawn from the distributions in --from (Baranchuk and Babenko 2020, section 2)";
        format!("For what `wave meta` wrote to --from:\n  {LEARNED:20} {description}\n")
    }

    fn init(&self, _: &str, settings: &Table, out: &Path, options: Options) -> Result<Value> {
        let settings: settings::Draw = narrow(settings, WHAT)?;
        distribution::draw(&settings.dir()?, &settings, out, options)
    }

    fn describe_init(&self, _: &str, settings: &Table) -> Result<String> {
        let settings: settings::Draw = narrow(settings, WHAT)?;
        distribution::describe_draw(&settings.dir()?)
    }
}

#[cfg(test)]
mod tests;
