//! Families of networks: the work of `init`, `finetune`, `eval` and `inspect` depends on which one it is.

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use toml::Table;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::run_dir::Options;
use wave_run::settings::{Eval, Finetune, Pictures};

/// A family of networks. A new one is a value of this type, and a line in the command's table.
///
/// A function that returns a `Value` does the work and returns what `--json` prints. One whose name begins
/// with `describe` checks all that can be checked before, and returns what `--dry-run` prints.
pub struct Family {
    /// The names of its networks for `--arch`.
    pub architectures: fn() -> Vec<&'static str>,
    /// The method of `wave init` that starts its networks, if that tells it and not `--arch`.
    pub method: Option<&'static str>,
    /// Text of `wave init --help` on its methods.
    pub help: fn() -> String,
    /// Starts a network by a method and writes it. The family itself takes from the settings what means
    /// something to it.
    pub init: fn(&str, &Table, &Path, &Options) -> Result<Value>,
    /// The plan of `init`.
    pub describe_init: fn(&str, &Table, &Context) -> Result<String>,
    /// The commands that read its networks; none, if they are for `wave init` alone.
    pub commands: Option<Commands>,
}

/// The commands that read a network of a family.
pub struct Commands {
    /// Whether a directory with this `config.json` holds one.
    pub holds: fn(&Value) -> bool,
    /// Whether `wave convert` has several layouts for it.
    pub has_layouts: bool,
    /// Trains the network in a directory and writes it to another.
    pub finetune: fn(&Path, &Finetune, &Path, &Options) -> Result<Value>,
    /// The plan of `finetune`.
    pub describe_finetune: fn(&Path, &Finetune, &Context) -> Result<String>,
    /// Measures its accuracy.
    pub eval: fn(&Path, &Eval, &Context) -> Result<Value>,
    /// Tells its contents, and draws them.
    pub inspect: fn(&Path, &Pictures, &Context) -> Result<Value>,
}

/// Refuses what `wave eval` takes for networks of images: `--heads`, where `config.json` has all sizes,
/// names of classes, and neighbours.
///
/// # Errors
/// If one was given.
pub fn refuse_of_images(settings: &Eval) -> Result<()> {
    if settings.knn.is_some() || settings.train_limit.is_some() {
        return Err(request(
            "knn and train_limit measure the features of a network of single images; leave them out",
        ));
    }
    match settings.heads {
        None if settings.zero_shot.is_given() => Err(request(
            "labels and prompt name the classes of a CLIP or SigLIP; leave them out",
        )),
        None => Ok(()),
        Some(heads) => Err(request(format!(
            "--heads {heads}: the model's config.json has all its sizes; leave it out"
        ))),
    }
}
