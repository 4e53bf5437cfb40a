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
pub mod learned;
mod network;
mod plan;
mod problem;
mod settings;
pub mod small;
mod trial;

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use wave_run::context::Context;
use wave_run::recipe::{means_nothing, narrow, to_table};
use wave_stages::family::Family;
use wave_stages::finetune::Options;
use wave_stages::init::method_line;

use settings::Draw;
pub use settings::{Meta, MetaMethod};

/// The method of `wave init` that makes models from what was learned.
const METHOD: &str = "learned";

/// Its name in messages.
const WHAT: &str = "method learned, whose network is that of --from";

/// Learns an initialiser and writes it to `out`. Returns the output of `--json`. Distributions must be
/// learned inside [`wave_train::second_order`].
///
/// # Errors
/// If settings are wrong, or the work fails.
pub fn meta(name: &str, settings: &Meta, out: &Path, options: &Options) -> Result<Value> {
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
pub fn describe(settings: &Meta, context: &Context) -> Result<String> {
    match settings.method.unwrap_or_default() {
        MetaMethod::Normal | MetaMethod::Plif => distribution::describe(settings, context),
        MetaMethod::Ghn3 => {
            of_distributions(settings)?;
            ghn3::describe(&settings.hypernetwork, &settings.training, context)
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

/// Models drawn from what `wave meta` learned.
pub const LEARNED: Family = Family {
    architectures: Vec::new,
    method: Some(METHOD),
    help: || {
        let of = "drawn from the distributions in --from (Baranchuk and Babenko 2020, section 2)";
        let line = method_line(METHOD, of);
        format!("For what `wave meta` wrote to --from:\n{line}")
    },
    init: |_, settings, out, options| {
        let settings: Draw = narrow(settings, WHAT)?;
        distribution::draw(&settings.dir(&options.context)?, &settings, out, options)
    },
    describe_init: |_, settings, context| {
        let settings: Draw = narrow(settings, WHAT)?;
        distribution::describe_draw(&settings.dir(context)?, context)
    },
    commands: None,
};

#[cfg(test)]
mod tests;
