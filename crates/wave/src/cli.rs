//! The command line.

mod arguments;
mod data;
mod make;
mod result;

use crate::{convert, hub, inspect, predict, shipped};
use anyhow::Result;
use arguments::{Cli, Command, Common};
use clap::FromArgMatches;
use make::Make;
use serde_json::Value;
use std::process::ExitCode;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::interrupt::Interruption;
use wave_run::progress::{self, Verbosity};
use wave_run::ranks::World;
use wave_run::terminal::{self, detail, tell};
use wave_run::{device, forecast, lock, threads};
use wave_stages::ancestor::Ancestors;
use wave_stages::{adapt, condense, eval, expand, finetune, init, speed};

/// Runs the command line of this process.
///
/// # Safety
/// No other thread of the process may run yet.
pub unsafe fn main() -> ExitCode {
    let parsed = arguments::command().try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if cli.common.verbose {
        terminal::show_details();
    }
    let interruption = Interruption::default();
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => return World::default().fail(&error, &interruption),
    };
    let handled = interruption.clone();
    if let Err(error) = ctrlc::set_handler(move || interrupt(&handled)) {
        tell(&format!("wave: Ctrl-C will not save: {error}"));
    }
    match execute(cli, &world, &interruption) {
        Ok(()) => world.leave(),
        Err(error) => world.fail(&error, &interruption),
    }
}

/// Prints help, or the error in the arguments.
fn usage(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(e) if !error.use_stderr() && e.kind() != std::io::ErrorKind::BrokenPipe => {
            tell(&format!("wave: cannot print the help: {e}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// On Ctrl-C: lets a training save its state. Without a training, and the second time, ends the process.
fn interrupt(interruption: &Interruption) {
    let again = interruption.request();
    if again || !interruption.saves() {
        let _until_the_end = wave_hub::remove_own_temporaries();
        tell("wave: interrupted");
        std::process::exit(130);
    }
}

fn execute(cli: Cli, world: &World, interruption: &Interruption) -> Result<()> {
    let Cli { command, common } = cli;
    let device = device::choose(&common.device, world.local_rank())?;
    // Ranks stop together, at the next step of a training.
    let ranks = world.ranks();
    let _together = (ranks.size() > 1).then(|| interruption.saving());
    let context = Context::new(device, ranks, interruption.clone());
    let work = || {
        dispatch(command, &common, &context)?;
        detail(|| {
            let memory = forecast::peak().map_or(String::new(), |n| {
                format!(", peak memory {}", forecast::bytes(n as f64))
            });
            format!("done on {} threads{memory}", rayon::current_num_threads())
        });
        Ok(())
    };
    threads::pool(common.threads)?.install(work)
}

fn dispatch(command: Command, common: &Common, context: &Context) -> Result<()> {
    only_shared_on_ranks(&command, context.ranks().size())?;
    let verbosity = match common.quiet || !context.is_first() {
        true => Verbosity::Quiet,
        false => Verbosity::Normal,
    };
    progress::set_verbosity(verbosity);
    let with = |flags| Make::new(flags, verbosity, context);
    let result = match command {
        Command::Run(it) => with(it.run).recipe(&it.recipe, it.data, false)?,
        Command::Bench(it) => with(it.run).recipe(&it.recipe, it.data, true)?,
        Command::Condense {
            recipe,
            settings,
            print_recipe,
            run,
        } => {
            let make = with(run);
            let (name, mut settings) = make.settings(recipe.as_deref(), "condense", &*settings)?;
            if recipe.is_none() {
                settings.minutes.get_or_insert(condense::MINUTES);
            }
            if print_recipe {
                return terminal::print(&condense::print_recipe(&settings, context)?);
            }
            let ancestors = Ancestors::default();
            make.make(
                "condense",
                || condense::describe(&settings, None, context),
                |out, options| condense::condense(&name, &settings, &ancestors, out, options),
            )?
        }
        Command::Expand {
            templates,
            settings,
            run,
        } => {
            let make = with(run);
            let (_, settings) = make.settings(None, "expand", &*settings)?;
            expand::check(&settings, &[])?;
            let templates = shipped::resolve(templates.as_deref(), context)?;
            make.make(
                "expand",
                || expand::describe(&templates.path, &settings, context),
                |out, options| expand::expand(&templates, &settings, out, options),
            )?
        }
        Command::Adapt {
            templates,
            recipe,
            settings,
            run,
        } => {
            let make = with(run);
            let (_, settings) = make.settings(recipe.as_deref(), "adapt", &*settings)?;
            let templates = shipped::resolve(Some(&templates), context)?.path;
            make.make(
                "adapt",
                || adapt::describe(&templates, &settings, context),
                |out, options| adapt::adapt(&templates, &settings, out, options),
            )?
        }
        Command::Init {
            method,
            settings,
            run,
        } => {
            let make = with(run);
            let (_, settings) = make.settings(None, "init", &*settings)?;
            make.make(
                "init",
                || init::describe(&method, &settings, context),
                |out, options| init::init(&method, &settings, out, options),
            )?
        }
        Command::Finetune {
            model,
            recipe,
            settings,
            run,
        } => {
            let make = with(run);
            let (_, settings) = make.settings(recipe.as_deref(), "finetune", &*settings)?;
            make.make(
                "finetune",
                || finetune::describe(&model, &settings, context),
                |out, options| finetune::finetune(&model, &settings, out, options),
            )?
        }
        Command::Convert { model, output, run } => {
            if !run.set.is_empty() {
                refuse!("--set: convert has no recipe; give --format and --dtype");
            }
            with(run).make(
                "convert",
                || convert::describe(&model, &output, context),
                |out, options| convert::convert(&model, &output, out, options),
            )?
        }
        Command::Eval { model, settings } => eval::eval(&model, &settings, context)?,
        Command::Predict(it) => predict::predict(&it, verbosity, context)?,
        Command::Inspect { path, pictures } => {
            for written in pictures.plots.iter().chain(&pictures.html) {
                lock::check_idle(written)?;
            }
            inspect::inspect(&path, &pictures, context)?
        }
        Command::Templates { hub: true, .. } => shipped::on_hub()?,
        Command::Templates { dirs, .. } => shipped::list(&dirs, context)?,
        Command::Data { command } => data::data(command)?,
        Command::Publish {
            dir,
            settings,
            dry_run,
        } => hub::publish(&dir, &settings, dry_run, context)?,
        Command::Pull { name, out } => hub::pull(&name, out.as_deref())?,
        Command::Speed { settings } => speed::speed(&settings, context)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut arguments::command(), "wave", &mut script);
            return terminal::print(&String::from_utf8_lossy(&script));
        }
    };
    print(common, &result, context)?;
    // Predictions are printed even if some images could not be read.
    predict::check(&result)
}

/// Refuses several ranks for commands that run in one process only.
fn only_shared_on_ranks(command: &Command, ranks: usize) -> Result<()> {
    let shared = matches!(
        command,
        Command::Run(_)
            | Command::Condense { .. }
            | Command::Expand { .. }
            | Command::Adapt { .. }
            | Command::Finetune { .. }
            | Command::Eval { .. }
    );
    match ranks {
        size @ 2.. if !shared => refuse!(
            "{size} ranks were started, but only run, condense, expand, adapt, finetune and eval \
             work on several; start wave without mpirun"
        ),
        _ => Ok(()),
    }
}

/// Prints a result on the first rank, unless only errors are wanted.
fn print(common: &Common, result: &Value, context: &Context) -> Result<()> {
    if !context.is_first() || (common.quiet && !common.json) {
        return Ok(());
    }
    terminal::print(&match common.json {
        true => format!("{result}\n"),
        false => result::text(result, common.verbose),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_that_of_a_flag() {
        let cli = arguments::command();
        let flags: Vec<_> = cli
            .get_subcommands()
            .flat_map(|command| command.get_arguments())
            .map(|flag| flag.get_id().as_str())
            .collect();
        for (key, _) in wave_run::settings::ranges() {
            assert!(flags.contains(key), "{key}");
        }
    }
}
