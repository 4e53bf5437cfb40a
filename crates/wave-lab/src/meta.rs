//! `wave meta`: learns how to start a network, from its training.
//!
//! What is learned is a directory, from which `wave init learned` makes models. A method is a file under
//! `meta/`, and a line in [`meta`] and [`draw`]:
//!
//! - `normal` and `plif` (`distribution.rs`): a distribution for each weight tensor, by back-propagating
//!   through the training run (DIMAML). `problem.rs` is what is trained on what, `network.rs` the
//!   networks, `learn.rs` the outer loop, `trial.rs` the learned start beside others on another task;
//! - `ghn3` ([`wave_stages::hypernetwork`]): a graph hypernetwork that predicts weights; `wave init ghn3` makes
//!   models by it.

mod distribution;
mod ghn3;
mod learn;
mod network;
mod plan;
mod problem;
mod trial;

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use wave_run::error::request;
use wave_run::locate;
use wave_run::recipe::to_table;
use wave_run::settings::{Init, Meta};
use wave_stages::family::Family;
use wave_stages::finetune::Options;
use wave_stages::hypernetwork;

/// The method of `wave init` that makes models from what was learned.
const LEARNED: &str = "learned";

/// The methods there are.
const METHODS: &str = "normal, plif or ghn3";

/// Learns an initialiser and writes it to `out`. Returns what `--json` prints. To learn distributions
/// it has to run inside [`wave_train::second_order`].
///
/// # Errors
/// If settings are wrong, or the work fails.
pub fn meta(name: &str, settings: &Meta, out: &Path, options: Options) -> Result<Value> {
    match settings.method.as_deref().unwrap_or("normal") {
        "normal" | "plif" => distribution::meta(name, settings, out, options),
        hypernetwork::METHOD => {
            of_distributions(settings)?;
            let (own, training) = (&settings.hypernetwork, &settings.training);
            ghn3::train(&to_table(settings)?, own, training, out, options)
        }
        other => Err(unknown(other)),
    }
}

/// Whether gradients need gradients: for all methods but hypernetworks.
pub fn differentiates_training(settings: &Meta) -> bool {
    settings.method.as_deref() != Some(hypernetwork::METHOD)
}

/// What `--dry-run` prints.
///
/// # Errors
/// As [`meta`].
pub fn describe(settings: &Meta) -> Result<String> {
    match settings.method.as_deref().unwrap_or("normal") {
        "normal" | "plif" => distribution::describe(settings),
        hypernetwork::METHOD => {
            of_distributions(settings)?;
            ghn3::describe(&settings.hypernetwork, &settings.training)
        }
        other => Err(unknown(other)),
    }
}

/// Refuses what means nothing to a hypernetwork.
fn of_distributions(settings: &Meta) -> Result<()> {
    match to_table(&settings.distribution)?.keys().next() {
        None => Ok(()),
        Some(key) => Err(request(format!(
            "{key} means nothing to a hypernetwork; leave it out"
        ))),
    }
}

fn unknown(method: &str) -> anyhow::Error {
    request(format!("method = {method}; expected {METHODS}"))
}

/// Models drawn from what `wave meta` learned.
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

    fn init(&self, _: &str, settings: &Init, out: &Path, options: Options) -> Result<Value> {
        distribution::draw(&learned(settings)?, settings, out, options)
    }

    fn describe_init(&self, _: &str, settings: &Init) -> Result<String> {
        distribution::describe_draw(&learned(settings)?)
    }
}

/// The directory of what was learned.
fn learned(settings: &Init) -> Result<std::path::PathBuf> {
    match &settings.from {
        Some(from) => locate::locate(Path::new(from)),
        None => Err(request(format!(
            "method {LEARNED} draws from what `wave meta` learned; give --from DIR with its directory"
        ))),
    }
}

#[cfg(test)]
mod tests;
