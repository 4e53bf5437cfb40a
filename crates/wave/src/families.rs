//! The table of families, and the family of images.

use crate::inspect;
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use toml::Table;
use wave_lab::meta::Learned;
use wave_lab::population::Populations;
use wave_lab::sequence::Sequences;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::locate;
use wave_run::settings::{Eval, Finetune};
use wave_stages::family::Family;
use wave_stages::finetune::Options;
use wave_stages::layout::Layout;
use wave_stages::{eval, finetune, init};

/// All families, in order of precedence: images take what no other family does.
const FAMILIES: [&dyn Family; 4] = [&Learned, &Sequences, &Populations, &Images];

/// The family of the networks that `wave init METHOD` makes.
///
/// # Errors
/// If there is no such architecture.
pub(crate) fn started(method: &str, settings: &Table) -> Result<&'static dyn Family> {
    let mut all = FAMILIES.into_iter();
    if let Some(family) = all.find(|family| family.method() == Some(method)) {
        return Ok(family);
    }
    let Some(arch) = settings.get("arch").and_then(toml::Value::as_str) else {
        return Ok(&Images);
    };
    let mut all = FAMILIES.into_iter();
    all.find(|family| family.architectures().contains(&arch))
        .ok_or_else(|| {
            let all = FAMILIES.iter().rev();
            let known: Vec<&str> = all.flat_map(|family| family.architectures()).collect();
            request(format!(
                "arch = {arch}; expected {}{}",
                known.join(", "),
                did_you_mean(arch, known.iter().copied())
            ))
        })
}

/// The family of the network in a directory or file.
///
/// # Errors
/// If there is none.
pub(crate) fn of(path: &Path) -> Result<&'static dyn Family> {
    let config = locate::config(path)?;
    let mut all = FAMILIES.into_iter();
    Ok(all.find(|family| family.holds(&config)).unwrap_or(&Images))
}

/// Text on the methods in `wave init --help`, with those of images first.
pub(crate) fn help() -> String {
    let all: Vec<String> = FAMILIES.iter().rev().map(|family| family.help()).collect();
    all.join("\n")
}

/// Networks that classify images. Whatever no family knows ends here too, for the clearest message.
struct Images;

impl Family for Images {
    fn architectures(&self) -> Vec<&'static str> {
        init::architectures()
    }

    fn holds(&self, _: &Value) -> bool {
        true
    }

    fn has_layouts(&self) -> bool {
        true
    }

    fn help(&self) -> String {
        init::help()
    }

    fn init(&self, method: &str, settings: &Table, out: &Path, options: Options) -> Result<Value> {
        let settings = init::flags::own(method, settings)?;
        init::init(method, &settings, out, options)
    }

    fn describe_init(&self, method: &str, settings: &Table) -> Result<String> {
        let settings = init::flags::own(method, settings)?;
        let model = init::new_model(method, &settings)?;
        Layout::of(&settings.output, &model.network)?;
        let n = model.parameters();
        Ok(format!("{:#?}\n{n} parameters\n", model.network))
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
        eval::eval(model, settings)
    }

    fn inspect(&self, model: &Path, plots: Option<&Path>, html: Option<&Path>) -> Result<Value> {
        inspect::inspect(model, plots, html)
    }
}
