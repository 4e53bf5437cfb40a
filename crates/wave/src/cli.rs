//! The command line.

use crate::ancestor::Ancestors;
use crate::error::{exit_code, request};
use crate::finetune::Options;
use crate::inputs::Inputs;
use crate::layout::Layout;
use crate::manual;
use crate::paths;
use crate::progress::{self, Verbosity};
use crate::ranks::{self, World, ranks};
use crate::recipe::Recipe;
use crate::settings::{Condense, Expand, Finetune, Init, Meta, Speed, Training};
use crate::train::INTERRUPTED;
use crate::{
    condense, data, device, eval, expand, finetune, hub, init, inspect, lock, meta, population,
    predict, run, sequence, speed,
};
use anyhow::{Context, Result};
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde_json::Value;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use wave_models::SequenceShape;

/// More threads than any machine has cores for; far more, and the system ends the process.
const MOST_THREADS: usize = 1024;

/// Start vision transformers of any size from one distillation.
#[derive(Parser)]
#[command(name = "wave", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone)]
#[command(next_help_heading = "Common")]
struct Common {
    /// Where to compute: cpu; in builds with the feature cuda also cuda, or cuda:N [of several
    /// processes on a machine each takes its own with cuda]
    #[arg(long, global = true, default_value = "cpu", value_name = "D")]
    device: String,
    /// Threads [default: one per core]
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Output directory [default: runs/NAME-DATE-TIME, in UTC]
    #[arg(long, global = true, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the interrupted run in --out. What is complete there is not repeated, with or without
    #[arg(long, global = true)]
    resume: bool,
    /// Replace what is in --out: an unfinished or another run, or an artefact that no run there wrote
    #[arg(long, global = true, conflicts_with = "resume")]
    overwrite: bool,
    /// Override a recipe key: table.key=value
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Say what would be done, and do nothing
    #[arg(long, global = true)]
    dry_run: bool,
    /// Print one JSON object on stdout
    #[arg(long, global = true)]
    json: bool,
    /// Errors only
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Say more
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run all stages that a recipe names, in order
    Run {
        /// The recipe
        recipe: PathBuf,
    },
    /// Compare ways to start models: the methods, sizes, data sets and seeds of the recipe's [bench]
    /// table. What is complete in --out does not run again
    Bench {
        /// The recipe
        recipe: PathBuf,
    },
    /// Distil an ancestor into weight templates
    Condense {
        /// The recipe
        recipe: PathBuf,
        #[command(flatten)]
        settings: Box<Condense>,
    },
    /// Make a model of any depth and width from weight templates
    Expand {
        /// A template directory
        templates: PathBuf,
        #[command(flatten)]
        settings: Box<Expand>,
    },
    /// Make a model in closed form, from a size alone or a trained model (not `git init`)
    #[command(after_help = init::help())]
    Init {
        /// One of the methods below
        method: String,
        #[command(flatten)]
        settings: Box<Init>,
    },
    /// Learn how to start a network, from its training; `wave init learned` draws from what is learned
    Meta {
        /// The recipe
        recipe: PathBuf,
        #[command(flatten)]
        settings: Box<Meta>,
    },
    /// Train all weights of a model
    Finetune {
        /// A model directory, or a safetensors file
        model: PathBuf,
        /// Take settings from the [finetune] table of this recipe
        #[arg(long, value_name = "R")]
        recipe: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Finetune>,
    },
    /// Measure a model's accuracy
    Eval {
        /// A model directory, or a safetensors file
        model: PathBuf,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        settings: Box<Training>,
    },
    /// Classify images
    Predict {
        /// A model directory, or a safetensors file
        model: PathBuf,
        #[command(flatten)]
        shape: Shape,
        /// JPEG, PNG or WebP files
        #[arg(required = true)]
        images: Vec<PathBuf>,
    },
    /// Show what is inside a directory or file
    Inspect {
        /// A template directory, a model directory or a safetensors file
        path: PathBuf,
        /// Draw heat maps into this directory
        #[arg(long, value_name = "DIR")]
        plots: Option<PathBuf>,
        /// Write all of it as one HTML page: pictures, parameters and the training's curves
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Send a template or model directory to a hub, as one commit
    Publish {
        /// The directory
        dir: PathBuf,
        #[command(flatten)]
        settings: hub::Publish,
    },
    /// Download templates or a model, to --out or the cache that Python shares
    Pull {
        /// The repository: OWNER/NAME, or OWNER/NAME@REV
        name: String,
    },
    /// Check data, or write it as tar shards
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Measure how fast this machine trains, runs and condenses a transformer
    Speed {
        #[command(flatten)]
        settings: Box<Speed>,
    },
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write a manual page for every command: wave.1, wave-expand.1, ...
    Man {
        /// The directory to write
        dir: PathBuf,
    },
}

/// What a model's weights do not show.
#[derive(clap::Args)]
struct Shape {
    /// Attention heads of a transformer without a config.json that tells them
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
}

#[derive(Subcommand)]
enum DataCommand {
    /// Decode every image and count the classes
    Check {
        /// Images, as for --data
        data: String,
    },
    /// Write tar shards (WebDataset)
    Pack {
        /// Images, as for --data
        data: String,
        /// The directory to write
        into: PathBuf,
        /// Size of a shard in MiB
        #[arg(long, value_name = "N", default_value_t = 256)]
        shard_mb: u64,
    },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse(); // usage errors exit with 2 here
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("wave: {error:#}");
            return ExitCode::from(exit_code(&error));
        }
    };
    // A second Ctrl-C does not wait for the state to be saved.
    let handler = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("wave: Ctrl-C will not save: {error}");
    }
    match execute(cli, &world) {
        Ok(()) => world.leave(),
        Err(error) => world.fail(&error),
    }
}

fn execute(cli: Cli, world: &World) -> Result<()> {
    let Cli { command, common } = cli;
    let chosen = device::choose(&common.device, world.local_rank());
    let connected = world.connect(device::device()); // also without it, so that one rank speaks for all
    chosen.and(connected)?;
    if let Some(threads) = common.threads.filter(|n| !(1..=MOST_THREADS).contains(n)) {
        return Err(request(format!(
            "--threads {threads}; expected 1 to {MOST_THREADS}"
        )));
    }
    let mut pool = rayon::ThreadPoolBuilder::new();
    if let Some(threads) = common.threads {
        pool = pool.num_threads(threads);
    }
    let pool = pool.build().context("cannot start the threads")?;
    pool.install(|| dispatch(command, &common))
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
    let options = Options {
        resume: common.resume,
        overwrite: common.overwrite,
        verbosity,
    };
    let unused = OnceCell::new();
    let out = |name: &str| out_dir(common, name, &unused);
    let result = match command {
        Command::Run { recipe } => {
            let recipe = Recipe::read(&recipe, &common.set)?;
            if common.dry_run {
                return say(common, run::describe(&recipe)?);
            }
            run::run(&recipe, &out(&recipe.name)?, options)?
        }
        Command::Bench { recipe } => {
            let recipe = Recipe::read(&recipe, &common.set)?;
            if !recipe.has("bench") {
                return Err(request(
                    "the recipe has no [bench] table; add one, or use `wave run`",
                ));
            }
            if common.dry_run {
                return say(common, run::describe(&recipe)?);
            }
            let options = Options {
                resume: !options.overwrite,
                ..options
            };
            run::run(&recipe, &out(&recipe.name)?, options)?
        }
        Command::Condense { recipe, settings } => {
            let recipe = Recipe::read(&recipe, &common.set)?;
            let settings = recipe.stage("condense", None, &*settings)?;
            if common.dry_run {
                return say(common, condense::describe(&settings, None)?);
            }
            let ancestors = Ancestors::default();
            let out = out("condense")?;
            condense::condense(&recipe.name, &settings, &ancestors, &out, options)?
        }
        Command::Expand {
            templates,
            settings,
        } => {
            let recipe = Recipe::empty("expand", &common.set)?;
            let settings = recipe.stage("expand", None, &*settings)?;
            if common.dry_run {
                return say(common, expand::describe(&templates, &settings)?);
            }
            expand::expand(&templates, &settings, &out("expand")?, options)?
        }
        Command::Init { method, settings } => {
            let recipe = Recipe::empty("init", &common.set)?;
            let settings = recipe.stage("init", None, &*settings)?;
            if method == meta::LEARNED {
                if common.dry_run {
                    return say(common, meta::describe_draw(&settings)?);
                }
                meta::draw(&settings, &out("init")?, options)?
            } else if sequence::is_architecture(&settings) {
                if common.dry_run {
                    return say(common, sequence::describe(&method, &settings)?);
                }
                sequence::init(&method, &settings, &out("init")?, options)?
            } else if population::is_architecture(&settings) {
                if common.dry_run {
                    return say(common, population::describe(&method, &settings)?);
                }
                population::init(&method, &settings, &out("init")?, options)?
            } else if common.dry_run {
                let model = init::new_model(&method, &settings)?;
                Layout::of(&settings.output, &model.network)?;
                let n = model.parameters();
                return say(common, format!("{:#?}\n{n} parameters\n", model.network));
            } else {
                init::init(&method, &settings, &out("init")?, options)?
            }
        }
        Command::Meta { recipe, settings } => {
            let recipe = Recipe::read(&recipe, &common.set)?;
            let settings = recipe.stage("meta", None, &*settings)?;
            if common.dry_run {
                return say(common, meta::describe(&settings)?);
            }
            meta::meta(&recipe.name, &settings, &out("meta")?, options)?
        }
        Command::Finetune {
            model,
            recipe,
            settings,
        } => {
            let recipe = match recipe {
                Some(path) => Recipe::read(&path, &common.set)?,
                None => Recipe::empty("finetune", &common.set)?,
            };
            let settings = recipe.stage("finetune", None, &*settings)?;
            let family = Family::of(&model)?;
            if common.dry_run {
                let describe = match family {
                    Family::Sequence => sequence::describe_finetune,
                    Family::Population => population::describe_finetune,
                    Family::Images => finetune::describe,
                };
                return say(common, describe(&model, &settings)?);
            }
            let finetune = match family {
                Family::Sequence => sequence::finetune,
                Family::Population => population::finetune,
                Family::Images => finetune::finetune,
            };
            finetune(&model, &settings, &out("finetune")?, options)?
        }
        Command::Eval {
            model,
            shape,
            settings,
        } => match (Family::of(&model)?, shape.heads) {
            (Family::Images, heads) => eval::eval(&model, heads, &settings)?,
            (_, Some(heads)) => {
                return Err(request(format!(
                    "--heads {heads}: the model's config.json tells all its sizes; leave it out"
                )));
            }
            (Family::Sequence, None) => sequence::eval(&model, &settings)?,
            (Family::Population, None) => population::eval(&model, &settings)?,
        },
        Command::Predict {
            model,
            shape,
            images,
        } => predict::predict(&model, shape.heads, &images)?,
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
        Command::Data {
            command: DataCommand::Check { data },
        } => check_data(&data)?,
        Command::Data {
            command:
                DataCommand::Pack {
                    data,
                    into,
                    shard_mb,
                },
        } => pack_data(&data, &into, shard_mb)?,
        Command::Publish { dir, settings } => hub::publish(&dir, &settings, common.dry_run)?,
        Command::Pull { name } => hub::pull(&name, common.out.as_deref())?,
        Command::Speed { settings } => speed::speed(&settings)?,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "wave", &mut std::io::stdout());
            return Ok(());
        }
        Command::Man { dir } => {
            lock::check_idle(&dir)?;
            manual::write(Cli::command(), &dir)?
        }
    };
    say(
        common,
        if common.json {
            result.to_string() + "\n"
        } else {
            plain(&result, 0)
        },
    )
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
        let config = hub::config(path)?;
        Ok(if SequenceShape::describes(&config) {
            Family::Sequence
        } else if population::is_model(&config) {
            Family::Population
        } else {
            Family::Images
        })
    }
}

/// Prints to stdout, on the first rank; a closed pipe is not an error.
fn say(common: &Common, text: String) -> Result<()> {
    use std::io::Write;
    if !ranks::is_first() {
        return Ok(());
    }
    let text = if common.json && !text.trim_start().starts_with('{') {
        serde_json::json!({ "plan": text }).to_string() + "\n"
    } else {
        text
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e).context("cannot print"),
        _ => Ok(()),
    }
}

/// A result for people: `key: value` lines, or the report that a stage made.
fn plain(value: &Value, indent: usize) -> String {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(map) if map.contains_key("report") && indent == 0 => {
            map["report"].as_str().unwrap_or_default().to_string()
        }
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| !["logits", "sizes"].contains(&key.as_str()))
            .map(|(key, value)| match value {
                Value::Null if key == "top1" => format!("{pad}top1: not measured\n"),
                Value::Object(_) => format!("{pad}{key}:\n{}", plain(value, indent + 1)),
                Value::Array(items) if items.iter().any(Value::is_object) => {
                    let items: Vec<String> = items.iter().map(|v| plain(v, indent + 1)).collect();
                    format!("{pad}{key}:\n{}", items.join(&format!("{pad}  --\n")))
                }
                Value::String(text) => format!("{pad}{key}: {text}\n"),
                other => format!("{pad}{key}: {other}\n"),
            })
            .collect(),
        other => format!("{pad}{other}\n"),
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
fn out_dir(common: &Common, name: &str, unused: &OnceCell<Unused>) -> Result<PathBuf> {
    if let Some(out) = &common.out {
        return Ok(out.clone());
    }
    if common.resume {
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

/// Decodes every image of both splits.
fn check_data(spec: &str) -> Result<Value> {
    let dataset = data::open_one(spec)?;
    let mut out = serde_json::Map::new();
    let mut broken = Vec::new();
    for (name, source) in [("train", &dataset.train), ("test", &dataset.test)] {
        let report = wave_data::check(&**source, |_| {});
        let classes: serde_json::Map<String, Value> = report
            .classes
            .into_iter()
            .map(|(class, n)| (class, n.into()))
            .collect();
        out.insert(name.into(), classes.into());
        if report.unlabelled > 0 {
            let key = format!("{name}_unlabelled");
            out.insert(key, report.unlabelled.into());
        }
        let describe =
            |image: &wave_data::BrokenImage| format!("{}: {}", image.path, image.problem);
        broken.extend(report.broken.iter().map(describe));
    }
    if broken.is_empty() {
        out.insert("broken".into(), Value::Array(Vec::new()));
        return Ok(out.into());
    }
    Err(request(format!(
        "{} of the images of {spec} are broken: {}",
        broken.len(),
        broken.join("; ")
    )))
}

/// Writes both splits as tar shards.
fn pack_data(spec: &str, out: &Path, shard_mb: u64) -> Result<Value> {
    let dataset = data::open_one(spec)?;
    if dataset.train.class_names().is_empty() {
        return Err(request(format!(
            "the images of {spec} have no labels, and shards keep one for each; sort them into \
             train/CLASS/ and val/CLASS/"
        )));
    }
    Inputs::default().place(Some(spec)).check_out(out)?;
    lock::check_idle(out)?;
    wave_hub::prepare_out(out)?;
    let packed = wave_data::pack(&dataset, out, shard_mb.saturating_mul(1 << 20), || {})?;
    Ok(serde_json::json!({
        "out": paths::text(out),
        "shards": packed.shards.len(),
        "images": packed.images,
        "bytes": packed.bytes,
    }))
}
