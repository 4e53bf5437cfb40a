//! Commands that make a directory: their settings, then the plan or the work.

use super::Done;
use super::arguments::Makes;
use crate::{convert, run, shipped};
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::forecast;
use wave_run::out_dir;
use wave_run::progress::Verbosity;
use wave_run::recipe::{Recipe, means_nothing, to_table};
use wave_run::run_dir::Options;
use wave_run::settings::{Adapt, Condense, Expand, Finetune, Init, Output};
use wave_run::terminal::detail;
use wave_stages::ancestor::Ancestors;
use wave_stages::init::flags::own;
use wave_stages::{adapt, condense, expand, finetune, init};

/// A command that makes a directory.
pub(super) struct Make {
    flags: Makes,
    options: Options,
}

impl Make {
    pub(super) fn new(flags: Makes, verbosity: Verbosity, context: &Context) -> Make {
        let options = Options {
            context: context.clone(),
            resume: flags.resume,
            overwrite: flags.overwrite,
            verbosity,
            profile: flags.profile,
        };
        Make { flags, options }
    }

    /// Runs a recipe, on other data if given. A `bench` needs its table, and does not repeat complete runs.
    pub(super) fn run(&self, recipe: &Path, data: Option<String>, bench: bool) -> Result<Done> {
        let mut recipe = Recipe::read(recipe, &self.flags.set)?;
        if let Some(data) = data {
            recipe.set_data(data);
        }
        if bench && !recipe.has("bench") {
            return Err(request(
                "the recipe has no [bench] table; add one, or use `wave run`",
            ));
        }
        self.make(
            &recipe.name,
            || run::describe(&recipe, &self.options.context),
            |out, options| {
                let options = Options {
                    resume: options.resume || (bench && !options.overwrite),
                    ..options.clone()
                };
                run::run(&recipe, out, &options)
            },
        )
    }

    pub(super) fn condense(
        &self,
        recipe: Option<&Path>,
        flags: &Condense,
        print_recipe: bool,
    ) -> Result<Done> {
        let (name, mut settings) = self.settings(recipe, "condense", flags)?;
        if recipe.is_none() {
            settings.minutes.get_or_insert(condense::MINUTES);
        }
        if print_recipe {
            let text = condense::print_recipe(&settings, &self.options.context)?;
            return Ok(Done::Text(text));
        }
        self.make(
            "condense",
            || condense::describe(&settings, None, &self.options.context),
            |out, options| {
                let ancestors = Ancestors::default();
                condense::condense(&name, &settings, &ancestors, out, options)
            },
        )
    }

    pub(super) fn expand(&self, templates: Option<&Path>, flags: &Expand) -> Result<Done> {
        let settings = self.settings(None, "expand", flags)?.1;
        let training = &settings.training;
        if training.images.data.is_none() {
            let mut keys = to_table(training)?.into_iter().map(|(key, _)| key);
            // A number of steps is refused with its own advice; a seed draws scalers too.
            if let Some(key) = keys.find(|key| !["seed", "steps", "epochs"].contains(&&**key)) {
                return Err(means_nothing(&key, "expand without --data"));
            }
        }
        let templates = &shipped::resolve(templates, &self.options.context)?;
        self.make(
            "expand",
            || expand::describe(&templates.path, &settings, &self.options.context),
            |out, options| expand::expand(templates, &settings, out, options),
        )
    }

    pub(super) fn adapt(
        &self,
        templates: &Path,
        recipe: Option<&Path>,
        flags: &Adapt,
    ) -> Result<Done> {
        let settings = self.settings(recipe, "adapt", flags)?.1;
        let templates = &shipped::resolve(Some(templates), &self.options.context)?.path;
        self.make(
            "adapt",
            || adapt::describe(templates, &settings, &self.options.context),
            |out, options| adapt::adapt(templates, &settings, out, options),
        )
    }

    pub(super) fn init(&self, method: &str, flags: &Init) -> Result<Done> {
        let (_, settings) = self.settings(None, "init", flags)?;
        let settings = own(method, &to_table(&settings)?)?;
        self.make(
            "init",
            || init::describe(method, &settings, &self.options.context),
            |out, options| init::init(method, &settings, out, options),
        )
    }

    pub(super) fn finetune(
        &self,
        model: &Path,
        recipe: Option<&Path>,
        flags: &Finetune,
    ) -> Result<Done> {
        let settings = self.settings(recipe, "finetune", flags)?.1;
        self.make(
            "finetune",
            || finetune::describe(model, &settings, &self.options.context),
            |out, options| finetune::finetune(model, &settings, out, options),
        )
    }

    pub(super) fn convert(&self, model: &Path, output: &Output) -> Result<Done> {
        if !self.flags.set.is_empty() {
            return Err(request(
                "--set: convert has no recipe; give --format and --dtype",
            ));
        }
        self.make(
            "convert",
            || convert::describe(model, output, &self.options.context),
            |out, options| convert::convert(model, output, out, options),
        )
    }

    /// The name of a recipe, and the settings of a stage: its table, overridden by flags. `-v` prints them. Without a
    /// recipe, `--set` makes one.
    fn settings<T>(&self, recipe: Option<&Path>, table: &str, flags: &T) -> Result<(String, T)>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let recipe = match recipe {
            Some(path) => Recipe::read(path, &self.flags.set)?,
            None => Recipe::empty(table, &self.flags.set)?,
        };
        let settings = recipe.stage(table, Some(&to_table(flags)?))?;
        let text = toml::to_string(&to_table(&settings)?)?;
        detail(|| format!("[{table}] of {}:\n{}", recipe.name, text.trim_end()));
        Ok((recipe.name, settings))
    }

    /// Returns the plan or does the work, in a directory named after `name` unless one is given.
    fn make(
        &self,
        name: &str,
        describe: impl FnOnce() -> Result<String>,
        work: impl FnOnce(&Path, &Options) -> Result<Value>,
    ) -> Result<Done> {
        let out = self.flags.out.as_deref();
        out.map_or(Ok(()), out_dir::check)?;
        if self.flags.dry_run {
            let out = out.unwrap_or(Path::new("runs"));
            let mut plan = describe()?;
            if let Some(free) = forecast::on_disk(out) {
                let free = forecast::bytes(free as f64);
                plan += &format!("{free} free on the disk that holds {}\n", out.display());
            }
            return Ok(Done::Plan(plan));
        }
        let result = out_dir::work_in(out, name, &self.options, work)?;
        Ok(Done::Result(result))
    }
}
