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
use wave_run::recipe::{Recipe, to_table};
use wave_run::run_dir::Options;
use wave_run::settings::{Adapt, Condense, Expand, Finetune, Init, Output};
use wave_run::terminal::detail;
use wave_stages::ancestor::Ancestors;
use wave_stages::init::flags::own;
use wave_stages::{adapt, condense, expand, finetune, init};

/// Flags of a command that makes a directory.
pub(super) struct Make {
    flags: Makes,
    verbosity: Verbosity,
    context: Context,
}

impl Make {
    pub(super) fn new(flags: Makes, verbosity: Verbosity, context: &Context) -> Make {
        Make {
            flags,
            verbosity,
            context: context.clone(),
        }
    }

    /// Runs a recipe, on other data if given. A `bench` needs its table, and does not repeat complete runs.
    pub(super) fn run(&self, recipe: &Path, data: Option<String>, bench: bool) -> Result<Done> {
        let mut recipe = self.recipe(recipe)?;
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
            || run::describe(&recipe, &self.context),
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
        let (recipe, settings) = match recipe {
            Some(recipe) => {
                let recipe = self.recipe(recipe)?;
                let settings = settings(&recipe, "condense", flags)?;
                (recipe, settings)
            }
            None => {
                let mut settings = self.settings(None, "condense", flags)?;
                settings.minutes.get_or_insert(condense::MINUTES);
                (Recipe::empty("condense", &[])?, settings)
            }
        };
        if print_recipe {
            return Ok(Done::Text(condense::print_recipe(
                &settings,
                &self.context,
            )?));
        }
        self.make(
            "condense",
            || condense::describe(&settings, None, &self.context),
            |out, options| {
                let ancestors = Ancestors::default();
                condense::condense(&recipe.name, &settings, &ancestors, out, options)
            },
        )
    }

    pub(super) fn expand(&self, templates: Option<&Path>, flags: &Expand) -> Result<Done> {
        let settings = self.settings(None, "expand", flags)?;
        let templates = &shipped::resolve(templates, &self.context)?;
        self.make(
            "expand",
            || expand::describe(&templates.path, &settings, &self.context),
            |out, options| expand::expand(templates, &settings, out, options),
        )
    }

    pub(super) fn adapt(
        &self,
        templates: &Path,
        recipe: Option<&Path>,
        flags: &Adapt,
    ) -> Result<Done> {
        let settings = self.settings(recipe, "adapt", flags)?;
        let templates = &shipped::resolve(Some(templates), &self.context)?.path;
        self.make(
            "adapt",
            || adapt::describe(templates, &settings, &self.context),
            |out, options| adapt::adapt(templates, &settings, out, options),
        )
    }

    pub(super) fn init(&self, method: &str, flags: &Init) -> Result<Done> {
        let settings = own(method, &to_table(&self.settings(None, "init", flags)?)?)?;
        self.make(
            "init",
            || init::describe(method, &settings, &self.context),
            |out, options| init::init(method, &settings, out, options),
        )
    }

    pub(super) fn finetune(
        &self,
        model: &Path,
        recipe: Option<&Path>,
        flags: &Finetune,
    ) -> Result<Done> {
        let settings = self.settings(recipe, "finetune", flags)?;
        self.make(
            "finetune",
            || finetune::describe(model, &settings, &self.context),
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
            || convert::describe(model, output, &self.context),
            |out, options| convert::convert(model, output, out, options),
        )
    }

    fn recipe(&self, path: &Path) -> Result<Recipe> {
        Recipe::read(path, &self.flags.set)
    }

    /// The settings of a stage, of its table in a recipe if one is given.
    fn settings<T>(&self, recipe: Option<&Path>, table: &str, flags: &T) -> Result<T>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let recipe = match recipe {
            Some(recipe) => self.recipe(recipe)?,
            None => Recipe::empty(table, &self.flags.set)?,
        };
        settings(&recipe, table, flags)
    }

    /// Returns the plan or does the work, in a directory named after `name` unless one is given.
    fn make(
        &self,
        name: &str,
        describe: impl FnOnce() -> Result<String>,
        work: impl FnOnce(&Path, &Options) -> Result<Value>,
    ) -> Result<Done> {
        if self.flags.dry_run {
            let out = self.flags.out.as_deref().unwrap_or(Path::new("runs"));
            let mut plan = describe()?;
            if let Some(free) = forecast::on_disk(out) {
                let free = forecast::bytes(free as f64);
                plan += &format!("{free} free on the disk of {}\n", out.display());
            }
            return Ok(Done::Plan(plan));
        }
        let options = Options {
            context: self.context.clone(),
            resume: self.flags.resume,
            overwrite: self.flags.overwrite,
            verbosity: self.verbosity,
            profile: self.flags.profile,
        };
        let result = out_dir::work_in(self.flags.out.as_deref(), name, &options, work)?;
        Ok(Done::Result(result))
    }
}

/// The settings of a stage, printed with `-v`.
fn settings<T>(recipe: &Recipe, table: &str, flags: &T) -> Result<T>
where
    T: Serialize + DeserializeOwned + Default,
{
    let settings: T = recipe.stage(table, Some(&to_table(flags)?))?;
    let text = toml::to_string(&to_table(&settings)?)?;
    detail(|| format!("[{table}] of {}:\n{}", recipe.name, text.trim_end()));
    Ok(settings)
}
