//! The table of families, and the family of images.

use crate::inspect;
use anyhow::Result;
use std::path::Path;
use toml::Table;
use wave_lab::meta::LEARNED;
use wave_lab::population::POPULATIONS;
use wave_lab::sequence::SEQUENCES;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::locate;
use wave_stages::family::{Commands, Family};
use wave_stages::init::flags::own;
use wave_stages::layout::Layout;
use wave_stages::{eval, finetune, init};

/// Every family, in the order in which they are asked: images take what no other does.
const FAMILIES: [&Family; 4] = [&LEARNED, &SEQUENCES, &POPULATIONS, &IMAGES];

/// Networks that classify images; also what is to be refused, which they do best.
const IMAGES: Family = Family {
    architectures: init::architectures,
    method: None,
    help: init::help,
    init: |method, settings, out, options| {
        init::init(method, &own(method, settings)?, out, options)
    },
    describe_init: |method, settings, context| {
        let settings = own(method, settings)?;
        let model = init::new_model(method, &settings, context)?;
        Layout::of(&settings.output, &model.network)?;
        let n = model.parameters();
        Ok(format!("{:#?}\n{n} parameters\n", model.network))
    },
    commands: Some(IMAGE_COMMANDS),
};

const IMAGE_COMMANDS: Commands = Commands {
    holds: |_| true,
    has_layouts: true,
    finetune: finetune::finetune,
    describe_finetune: finetune::describe,
    eval: eval::eval,
    inspect: inspect::inspect,
};

/// The family of the networks that `wave init METHOD` makes.
///
/// # Errors
/// If there is no such architecture.
pub(crate) fn started(method: &str, settings: &Table) -> Result<&'static Family> {
    let mut all = FAMILIES.into_iter();
    if let Some(family) = all.find(|family| family.method == Some(method)) {
        return Ok(family);
    }
    let Some(arch) = settings.get("arch").and_then(toml::Value::as_str) else {
        return Ok(&IMAGES);
    };
    let mut all = FAMILIES.into_iter();
    all.find(|family| (family.architectures)().contains(&arch))
        .ok_or_else(|| {
            let all = FAMILIES.iter().rev();
            let known: Vec<&str> = all.flat_map(|family| (family.architectures)()).collect();
            request(format!(
                "arch = {arch}; expected {}{}",
                known.join(", "),
                did_you_mean(arch, known.iter().copied())
            ))
        })
}

/// The commands for the network in a directory or file.
///
/// # Errors
/// If it is a name on a hub that cannot be fetched.
pub(crate) fn of(path: &Path, context: &Context) -> Result<&'static Commands> {
    let config = locate::config(path, context)?;
    let mut all = FAMILIES
        .into_iter()
        .filter_map(|family| family.commands.as_ref());
    Ok(all
        .find(|commands| (commands.holds)(&config))
        .unwrap_or(&IMAGE_COMMANDS))
}

/// Text of `wave init --help` on the methods, of images first.
pub(crate) fn help() -> String {
    let all = FAMILIES.iter().rev();
    all.map(|family| (family.help)())
        .collect::<Vec<_>>()
        .join("\n")
}
