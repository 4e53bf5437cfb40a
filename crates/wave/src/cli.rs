//! The command line.

mod arguments;
mod data;
mod result;

use crate::ancestor::Ancestors;
use crate::error::{describe, exit_code, request};
use crate::finetune::Options;
use crate::interrupt::{INTERRUPTED, Saving};
use crate::layout::Layout;
use crate::progress::{self, Verbosity};
use crate::ranks::{self, World, ranks};
use crate::recipe::{Recipe, to_table};
use crate::terminal::{self, detail, tell};
use crate::{
    condense, convert, device, eval, expand, finetune, hub, hypernetwork, init, inspect, locate,
    lock, manual, meta, paths, population, predict, run, sequence, speed,
};
use anyhow::{Context, Result};
use arguments::{Cli, Command, Common, Makes};
use clap::{CommandFactory, Parser};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use wave_models::SequenceShape;

/// More threads than this are a slip: no machine has so many cores.
const MOST_THREADS: usize = 1024;

/// Runs the command line of this process.
///
/// # Safety
/// No other thread of the process runs yet.
pub unsafe fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if !learns_from_gradients(&cli) {
        return work(cli, false);
    }
    // SAFETY: no other thread runs: that is this function's own condition, and parsing starts none.
    match unsafe { wave_train::second_order(|| work(cli, true)) } {
        Ok(code) => code,
        Err(error) => {
            tell(&format!("wave: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints help, or why the arguments are none.
fn usage(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(e) if !error.use_stderr() && e.kind() != std::io::ErrorKind::BrokenPipe => {
            tell(&format!("wave: cannot print the help: {e}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// Whether gradients need gradients: to learn distributions.
fn learns_from_gradients(cli: &Cli) -> bool {
    let Command::Meta {
        recipe,
        settings,
        run,
    } = &cli.command
    else {
        return false;
    };
    // What is wrong with a recipe is told by those who do the work.
    let settings =
        Recipe::read(recipe, &run.set).and_then(|recipe| recipe.stage("meta", None, &**settings));
    settings.is_ok_and(|settings| settings.method.as_deref() != Some(hypernetwork::METHOD))
}

/// Does the work, on `this_thread` where that matters, else among the threads that share it.
fn work(cli: Cli, this_thread: bool) -> ExitCode {
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
    if let Err(error) = ctrlc::set_handler(interrupt) {
        tell(&format!("wave: Ctrl-C will not save: {error}"));
    }
    match execute(cli, &world, this_thread) {
        Ok(()) => world.leave(),
        Err(error) => world.fail(&error),
    }
}

/// On Ctrl-C: lets a training save its state. Without one, and the second time, ends the process.
fn interrupt() {
    let again = INTERRUPTED.swap(true, Ordering::SeqCst);
    if again || !Saving::now() {
        let _until_the_end = wave_hub::remove_own_temporaries();
        tell("wave: interrupted");
        std::process::exit(130);
    }
}

fn execute(cli: Cli, world: &World, this_thread: bool) -> Result<()> {
    let Cli { command, common } = cli;
    let chosen = device::choose(&common.device, world.local_rank());
    let connected = world.connect(device::device()); // also without it, so that one rank speaks for all
    chosen.and(connected)?;
    // Ranks stop together: at the next step of a training.
    let _together = (ranks().size() > 1).then(Saving::begin);
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = threads(&common)? {
        pool = pool.num_threads(threads);
    }
    let work = || {
        dispatch(command, &common)?;
        detail(|| {
            let memory = speed::peak_memory().map_or(String::new(), |bytes| {
                format!(", at most {} MiB of memory", bytes >> 20)
            });
            format!("done on {} threads{memory}", rayon::current_num_threads())
        });
        Ok(())
    };
    let cannot = "cannot start the threads; give fewer by --threads";
    if this_thread {
        let _pool = pool.use_current_thread().build().context(cannot)?;
        return work();
    }
    pool.build().context(cannot)?.install(work)
}

/// Threads that are asked for, by the flag or by rayon's variable.
fn threads(common: &Common) -> Result<Option<usize>> {
    const VARIABLE: &str = "RAYON_NUM_THREADS";
    let (name, threads) = match common.threads {
        Some(0) => return Err(request("--threads 0; expected at least 1")),
        Some(threads) => ("--threads", Some(threads)),
        // There 0 is one per core.
        None => {
            let text = std::env::var(VARIABLE).ok();
            let number = text.and_then(|text| text.parse().ok());
            (VARIABLE, number.filter(|threads| *threads > 0))
        }
    };
    match threads {
        Some(threads) if threads > MOST_THREADS => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Err(request(format!(
                "{name} {threads}; expected 1 to {MOST_THREADS}, best one for each of the {cores} cores"
            )))
        }
        threads => Ok(threads),
    }
}

/// The settings of a stage, told with `-v`.
fn settings<T>(recipe: &Recipe, table: &str, flags: &T) -> Result<T>
where
    T: Serialize + DeserializeOwned + Default,
{
    let settings = recipe.stage(table, None, flags)?;
    let text = toml::to_string(&to_table(&settings)?)?;
    detail(|| format!("[{table}] of {}:\n{}", recipe.name, text.trim_end()));
    Ok(settings)
}

fn dispatch(command: Command, common: &Common) -> Result<()> {
    let shared = matches!(
        command,
        Command::Run { .. }
            | Command::Condense { .. }
            | Command::Expand { .. }
            | Command::Finetune { .. }
            | Command::Eval { .. }
    );
    if ranks().size() > 1 && !shared {
        return Err(request(format!(
            "{} ranks were started; run, condense, expand, finetune and eval work on several, other \
             commands in one process: start wave without mpirun",
            ranks().size()
        )));
    }
    let verbosity = match (common.quiet || !ranks::is_first(), common.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    progress::set_verbosity(verbosity);
    let options = |run: &Makes| Options {
        resume: run.resume,
        overwrite: run.overwrite,
        verbosity,
    };
    let unused = OnceCell::new();
    let out_dir = |run: &Makes, name: &str| out_dir(run, name, &unused);
    let result = match command {
        Command::Run { recipe, run: flags } => {
            let recipe = Recipe::read(&recipe, &flags.set)?;
            if flags.dry_run {
                return plan(common, run::describe(&recipe)?);
            }
            let out = out_dir(&flags, &recipe.name)?;
            run::run(&recipe, &out, options(&flags))?
        }
        Command::Bench { recipe, run: flags } => {
            let recipe = Recipe::read(&recipe, &flags.set)?;
            if !recipe.has("bench") {
                return Err(request(
                    "the recipe has no [bench] table; add one, or use `wave run`",
                ));
            }
            if flags.dry_run {
                return plan(common, run::describe(&recipe)?);
            }
            let out = out_dir(&flags, &recipe.name)?;
            let options = Options {
                resume: !flags.overwrite,
                ..options(&flags)
            };
            run::run(&recipe, &out, options)?
        }
        Command::Condense {
            recipe,
            settings: flags,
            run,
        } => {
            let recipe = Recipe::read(&recipe, &run.set)?;
            let settings = settings(&recipe, "condense", &*flags)?;
            if run.dry_run {
                return plan(common, condense::describe(&settings, None)?);
            }
            let ancestors = Ancestors::default();
            let out = out_dir(&run, "condense")?;
            condense::condense(&recipe.name, &settings, &ancestors, &out, options(&run))?
        }
        Command::Expand {
            templates,
            settings: flags,
            run,
        } => {
            let recipe = Recipe::empty("expand", &run.set)?;
            let settings = settings(&recipe, "expand", &*flags)?;
            if run.dry_run {
                return plan(common, expand::describe(&templates, &settings)?);
            }
            let out = out_dir(&run, "expand")?;
            expand::expand(&templates, &settings, &out, options(&run))?
        }
        Command::Init {
            method,
            settings: flags,
            run,
        } => {
            let recipe = Recipe::empty("init", &run.set)?;
            let settings = settings(&recipe, "init", &*flags)?;
            let out = || out_dir(&run, "init");
            if method == meta::LEARNED {
                if run.dry_run {
                    return plan(common, meta::describe_draw(&settings)?);
                }
                meta::draw(&settings, &out()?, options(&run))?
            } else if sequence::is_architecture(&settings) {
                if run.dry_run {
                    return plan(common, sequence::describe(&method, &settings)?);
                }
                sequence::init(&method, &settings, &out()?, options(&run))?
            } else if population::is_architecture(&settings) {
                if run.dry_run {
                    return plan(common, population::describe(&method, &settings)?);
                }
                population::init(&method, &settings, &out()?, options(&run))?
            } else if run.dry_run {
                init::flags::check(&method, &settings)?;
                let model = init::new_model(&method, &settings)?;
                Layout::of(&settings.output, &model.network)?;
                let n = model.parameters();
                return plan(common, format!("{:#?}\n{n} parameters\n", model.network));
            } else {
                init::flags::check(&method, &settings)?;
                init::init(&method, &settings, &out()?, options(&run))?
            }
        }
        Command::Meta {
            recipe,
            settings: flags,
            run,
        } => {
            let recipe = Recipe::read(&recipe, &run.set)?;
            let settings = settings(&recipe, "meta", &*flags)?;
            if run.dry_run {
                return plan(common, meta::describe(&settings)?);
            }
            let out = out_dir(&run, "meta")?;
            meta::meta(&recipe.name, &settings, &out, options(&run))?
        }
        Command::Finetune {
            model,
            recipe,
            settings: flags,
            run,
        } => {
            let recipe = match recipe {
                Some(path) => Recipe::read(&path, &run.set)?,
                None => Recipe::empty("finetune", &run.set)?,
            };
            let settings = settings(&recipe, "finetune", &*flags)?;
            let family = Family::of(&model)?;
            if run.dry_run {
                let describe = match family {
                    Family::Sequence => sequence::describe_finetune,
                    Family::Population => population::describe_finetune,
                    Family::Images => finetune::describe,
                };
                return plan(common, describe(&model, &settings)?);
            }
            let finetune = match family {
                Family::Sequence => sequence::finetune,
                Family::Population => population::finetune,
                Family::Images => finetune::finetune,
            };
            let out = out_dir(&run, "finetune")?;
            finetune(&model, &settings, &out, options(&run))?
        }
        Command::Eval { model, settings } => match (Family::of(&model)?, settings.heads) {
            (Family::Images, heads) => eval::eval(&model, heads, &settings.into())?,
            (_, Some(heads)) => {
                return Err(request(format!(
                    "--heads {heads}: the model's config.json has all its sizes; leave it out"
                )));
            }
            (Family::Sequence, None) => sequence::eval(&model, &settings.into())?,
            (Family::Population, None) => population::eval(&model, &settings.into())?,
        },
        Command::Predict {
            model,
            heads,
            images,
            csv,
        } => predict::predict(&model, heads, &images, csv.as_deref(), verbosity)?,
        Command::Convert { model, output, run } => {
            if !run.set.is_empty() {
                return Err(request(
                    "--set: convert has no recipe; give --format and --dtype",
                ));
            }
            if run.dry_run {
                return plan(common, convert::describe(&model, &output)?);
            }
            convert::convert(&model, &output, &out_dir(&run, "convert")?, options(&run))?
        }
        Command::Inspect { path, plots, html } => {
            for written in plots.iter().chain(&html) {
                lock::check_idle(written)?;
            }
            let inspect = match Family::of(&path)? {
                Family::Sequence => sequence::inspect,
                Family::Population => population::inspect,
                Family::Images => inspect::inspect,
            };
            inspect(&path, plots.as_deref(), html.as_deref())?
        }
        Command::Data { command } => data::data(command)?,
        Command::Publish {
            dir,
            settings,
            dry_run,
        } => hub::publish(&dir, &settings, dry_run)?,
        Command::Pull { name, out } => hub::pull(&name, out.as_deref())?,
        Command::Speed { settings } => speed::speed(&settings)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "wave", &mut script);
            return terminal::print(&String::from_utf8_lossy(&script));
        }
        Command::Man { dir } => {
            lock::check_idle(&dir)?;
            manual::write(Cli::command(), &dir)?
        }
    };
    say(common, || match common.json {
        true => format!("{result}\n"),
        false => result::text(&result),
    })
}

/// Prints what would be done.
fn plan(common: &Common, text: String) -> Result<()> {
    say(common, || match common.json {
        true => format!("{}\n", serde_json::json!({ "plan": text })),
        false => text,
    })
}

/// Prints on the first rank, unless errors alone are wanted.
fn say(common: &Common, text: impl FnOnce() -> String) -> Result<()> {
    match ranks::is_first() && (common.json || !common.quiet) {
        true => terminal::print(&text()),
        false => Ok(()),
    }
}

/// Whose work a directory is.
enum Family {
    /// A network of token sequences.
    Sequence,
    /// Many small networks.
    Population,
    /// A network of images, templates, or what is to be refused.
    Images,
}

impl Family {
    fn of(path: &Path) -> Result<Family> {
        let config = locate::config(path)?;
        Ok(if SequenceShape::describes(&config) {
            Family::Sequence
        } else if population::is_model(&config) {
            Family::Population
        } else {
            Family::Images
        })
    }
}

/// A directory made for output, which goes again if nothing comes to be in it.
struct Unused(PathBuf);

impl Drop for Unused {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0); // only an empty one
    }
}

/// The directory that is asked for, or a new one, which `unused` then is.
fn out_dir(flags: &Makes, name: &str, unused: &OnceCell<Unused>) -> Result<PathBuf> {
    if let Some(out) = &flags.out {
        return Ok(out.clone());
    }
    if flags.resume {
        return Err(request("--resume needs the --out of the run to continue"));
    }
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let parent = Path::new("runs");
    let number = match ranks::is_first() {
        true => paths::create_unused(parent, name, seconds)?,
        false => 0,
    };
    // The first rank's on all of them.
    let [seconds, number] = [seconds, number].map(|n| ranks().of_first(n as f64) as u64);
    let out = paths::numbered(parent, name, seconds, number);
    if ranks::is_first() {
        let _ = unused.set(Unused(out.clone())); // a command asks once
    }
    Ok(out)
}
