//! A command that makes a directory: its settings, then the plan or the work.

use super::arguments::Makes;
use crate::run;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::forecast;
use wave_run::out_dir;
use wave_run::progress::Verbosity;
use wave_run::recipe::{Recipe, to_table};
use wave_run::run_dir::{self, Options};
use wave_run::terminal::detail;

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
    pub(super) fn recipe(&self, recipe: &Path, data: Option<String>, bench: bool) -> Result<Value> {
        let mut recipe = Recipe::read(recipe, &self.flags.set)?;
        if let Some(data) = data {
            if Recipe::empty("recipe", &self.flags.set)?.has_data() {
                refuse!("--set and a flag both give data; give one of them");
            }
            recipe.set_data(data);
        }
        if bench && !recipe.has("bench") {
            refuse!("the recipe has no [bench] table; add one, or use `wave run`");
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

    /// The name of a recipe, and the settings of a stage: its table, overridden by flags. `-v` prints them. Without a
    /// recipe, `--set` makes one.
    pub(super) fn settings<T>(
        &self,
        recipe: Option<&Path>,
        table: &str,
        flags: &T,
    ) -> Result<(String, T)>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let set = Recipe::empty(table, &self.flags.set)?;
        let flags = to_table(flags)?;
        set.refuse_beside(table, &flags)?;
        let recipe = match recipe {
            Some(path) => Recipe::read(path, &self.flags.set)?,
            None => set.clone(),
        };
        recipe.refuse_in_levels(table, [&set.table_of(table), &flags])?;
        let settings = recipe.stage(table, Some(&flags))?;
        let text = toml::to_string(&to_table(&settings)?)?;
        detail(|| format!("[{table}] of {}:\n{}", recipe.name, text.trim_end()));
        Ok((recipe.name, settings))
    }

    /// Returns the plan or does the work, in a directory named after `name` unless one is given.
    pub(super) fn make(
        &self,
        name: &str,
        describe: impl FnOnce() -> Result<String>,
        work: impl FnOnce(&Path, &Options) -> Result<Value>,
    ) -> Result<Value> {
        let out = self.flags.out.as_deref();
        out.map_or(Ok(()), out_dir::check)?;
        if !self.flags.dry_run || out.is_none() && self.options.resume {
            return out_dir::work_in(out, name, &self.options, work);
        }
        let out = out.unwrap_or(Path::new("runs"));
        let mut plan = describe()?;
        if let Some(free) = forecast::on_disk(out) {
            let free = forecast::bytes(free as f64);
            plan += &format!("{free} free on the disk that holds {}\n", out.display());
        }
        plan += &run_dir::held(out, &self.options).unwrap_or_default();
        Ok(json!({ "plan": plan }))
    }
}
