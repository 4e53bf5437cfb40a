//! The command line.

mod arguments;
mod data;
mod make;
mod result;

use crate::{hub, inspect, manual, predict, shipped};
use anyhow::Result;
use arguments::{Cli, Command, Common};
use clap::FromArgMatches;
use make::Make;
use serde_json::Value;
use std::process::ExitCode;
use wave_run::context::Context;
use wave_run::error::{describe, exit_code, request};
use wave_run::interrupt::Interruption;
use wave_run::progress::{self, Verbosity};
use wave_run::ranks::World;
use wave_run::terminal::{self, detail, tell};
use wave_run::{device, lock, threads};
use wave_stages::{eval, speed};

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
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            tell(&format!("wave: {}", describe(&error)));
            return ExitCode::from(exit_code(&error));
        }
    };
    let interruption = Interruption::default();
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

/// On Ctrl-C: lets a training save its state. Without a training, and the second time, ends the
/// process.
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
    let ranks = world.connect(&device)?;
    // Ranks stop together, at the next step of a training.
    let _together = (ranks.size() > 1).then(|| interruption.saving());
    let context = Context::new(device, ranks, interruption.clone());
    let work = || {
        dispatch(command, &common, &context)?;
        detail(|| {
            let memory = speed::peak_memory().map_or(String::new(), |bytes| {
                format!(", peak memory {} MiB", bytes >> 20)
            });
            format!("done on {} threads{memory}", rayon::current_num_threads())
        });
        Ok(())
    };
    threads::pool(common.threads)?.install(work)
}

/// Output of a command.
enum Done {
    /// The output of `--json`.
    Result(Value),
    /// The output of `--dry-run`.
    Plan(String),
    /// Text for another program.
    Text(String),
}

fn dispatch(command: Command, common: &Common, context: &Context) -> Result<()> {
    only_shared_on_ranks(&command, context.ranks().size())?;
    let verbosity = match common.quiet || !context.is_first() {
        true => Verbosity::Quiet,
        false => Verbosity::Normal,
    };
    progress::set_verbosity(verbosity);
    let with = |flags| Make::new(flags, verbosity, context);
    let done = match command {
        Command::Run(it) => with(it.run).run(&it.recipe, it.data, false)?,
        Command::Bench(it) => with(it.run).run(&it.recipe, it.data, true)?,
        Command::Condense {
            recipe,
            settings,
            print_recipe,
            run,
        } => with(run).condense(recipe.as_deref(), &settings, print_recipe)?,
        Command::Expand {
            templates,
            settings,
            run,
        } => with(run).expand(templates.as_deref(), &settings)?,
        Command::Adapt {
            templates,
            recipe,
            settings,
            run,
        } => with(run).adapt(&templates, recipe.as_deref(), &settings)?,
        Command::Init {
            method,
            settings,
            run,
        } => with(run).init(&method, &settings)?,
        Command::Finetune {
            model,
            recipe,
            settings,
            run,
        } => with(run).finetune(&model, recipe.as_deref(), &settings)?,
        Command::Convert { model, output, run } => with(run).convert(&model, &output)?,
        Command::Eval { model, settings } => Done::Result(eval::eval(&model, &settings, context)?),
        Command::Predict(it) => Done::Result(predict::predict(&it, verbosity, context)?),
        Command::Inspect { path, pictures } => {
            for written in pictures.plots.iter().chain(&pictures.html) {
                lock::check_idle(written)?;
            }
            Done::Result(inspect::inspect(&path, &pictures, context)?)
        }
        Command::Templates { hub: true, .. } => Done::Result(shipped::on_hub()?),
        Command::Templates { dirs, .. } => Done::Result(shipped::list(&dirs, context)?),
        Command::Data { command } => Done::Result(data::data(command)?),
        Command::Publish {
            dir,
            settings,
            dry_run,
        } => Done::Result(hub::publish(&dir, &settings, dry_run, context)?),
        Command::Pull { name, out } => Done::Result(hub::pull(&name, out.as_deref())?),
        Command::Speed { settings } => Done::Result(speed::speed(&settings, context)?),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut arguments::command(), "wave", &mut script);
            Done::Text(String::from_utf8_lossy(&script).into_owned())
        }
        Command::Man { dir } => {
            lock::check_idle(&dir)?;
            Done::Result(manual::write(arguments::command(), &dir)?)
        }
    };
    // Predictions are printed even if some images could not be read.
    let whole = match &done {
        Done::Result(result) => predict::check(result),
        _ => Ok(()),
    };
    print(common, done, context)?;
    whole
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
        size @ 2.. if !shared => Err(request(format!(
            "{size} ranks were started, but only run, condense, expand, adapt, finetune and eval \
             work on several; start wave without mpirun"
        ))),
        _ => Ok(()),
    }
}

/// Prints on the first rank, unless only errors are wanted.
fn print(common: &Common, done: Done, context: &Context) -> Result<()> {
    let text = match (done, common.json) {
        (Done::Text(text), _) => return terminal::print(&text),
        (Done::Plan(plan), true) => format!("{}\n", serde_json::json!({ "plan": plan })),
        (Done::Plan(plan), false) => plan,
        (Done::Result(result), true) => format!("{result}\n"),
        (Done::Result(result), false) => result::text(&result, common.verbose),
    };
    match context.is_first() && (common.json || !common.quiet) {
        true => terminal::print(&text),
        false => Ok(()),
    }
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
