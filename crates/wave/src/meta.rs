//! `wave meta`: learns how to start a network, from its training.
//!
//! What is learned is a directory, from which `wave init learned` makes models. A method is a file under
//! `meta/`, and a line in [`meta`] and [`draw`]:
//!
//! - `normal` and `plif` (`distribution.rs`): a distribution for each weight tensor, by back-propagating
//!   through the training run (DIMAML). `problem.rs` is what is trained on what, `network.rs` the
//!   networks, `learn.rs` the outer loop, `trial.rs` the learned start beside others on another task;
//! - `ghn3` ([`crate::hypernetwork`]): a graph hypernetwork that predicts weights; `wave init ghn3` makes
//!   models by it.

mod distribution;
mod learn;
mod network;
mod plan;
mod problem;
mod trial;

use crate::error::request;
use crate::finetune::Options;
use crate::hypernetwork;
use crate::locate;
use crate::recipe::to_table;
use crate::settings::{Init, Meta};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;

/// The method of `wave init` that makes models from what was learned.
pub const LEARNED: &str = "learned";

/// One line on it.
pub const DESCRIPTION: &str =
    "drawn from the distributions in --from (Baranchuk and Babenko 2020, section 2)";

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
            hypernetwork::train(&to_table(settings)?, own, training, out, options)
        }
        other => Err(unknown(other)),
    }
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
            hypernetwork::describe(&settings.hypernetwork, &settings.training)
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

/// `wave init learned`: makes a model from what `wave meta` wrote to `--from`. Returns what `--json`
/// prints.
///
/// # Errors
/// If there is no such directory, or the work fails.
pub fn draw(settings: &Init, out: &Path, options: Options) -> Result<Value> {
    distribution::draw(&learned(settings)?, settings, out, options)
}

/// What `--dry-run` prints of that.
///
/// # Errors
/// As [`draw`].
pub fn describe_draw(settings: &Init) -> Result<String> {
    distribution::describe_draw(&learned(settings)?)
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
