//! Papers related to WAVE, with a command of `wave-lab` and a folder for each.
//!
//! A command takes its settings from a recipe under `recipes/papers`; flags override the recipe's keys. It
//! initialises a network, trains and measures it in one run, and writes `result.json`, the weights and pictures to
//! `--out`. The training loop, the data and the log are `wave`'s. A run takes minutes and cannot be resumed.

#![allow(
    unreachable_pub,
    reason = "a program, whose modules are each other's only users"
)]

mod attention;
mod dimaml;
mod images;
mod population;
mod run;
mod ssm;
#[cfg(test)]
mod testing;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand, value_parser};
use run::{Run, settings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use wave_run::error::{describe, exit_code};
use wave_run::progress::{self, Verbosity};
use wave_run::run_dir::Options;
use wave_run::terminal::{self, tell};

/// As in `wave`: training allocates the same large tensors at every step.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Papers other than WAVE: each command initialises, trains and measures networks as in one paper.
#[derive(Parser)]
#[command(name = "wave-lab", version, about, max_term_width = 100)]
#[command(after_help = "Example: wave-lab dimaml recipes/papers/dimaml.toml --out runs/dimaml")]
struct Cli {
    #[command(subcommand)]
    paper: Paper,
    /// Output directory for result.json, weights and pictures
    #[arg(long, global = true, value_name = "DIR", default_value = "runs/lab")]
    out: PathBuf,
    /// Number of threads [default: one per core]
    #[arg(long, global = true, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

#[derive(Subcommand)]
enum Paper {
    /// Sequence models: mimetic initialisation of Mamba, Mamba-2 and transformers (thesis, sections 3.2.6 and
    /// 3.3)
    Ssm(Of<ssm::Settings>),
    /// Populations of small networks and statistics of their weights (thesis, section 3.4)
    Population(Of<population::Settings>),
    /// Positional attention: GPSA and convolutions (thesis, section 3.2.4)
    Attention(Of<attention::Settings>),
    /// Distributions of initial weights, learned through whole training runs (DIMAML)
    Dimaml(Of<dimaml::Settings>),
}

// Without a description of its own: clap would print it as the command's.
#[derive(Args)]
struct Of<S: Args> {
    /// Recipe file (TOML)
    recipe: PathBuf,
    #[command(flatten)]
    flags: Box<S>,
}

impl<S: Args + Serialize + DeserializeOwned + Default> Of<S> {
    fn settings(&self) -> Result<S> {
        settings(&self.recipe, &*self.flags)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // candle's own elementwise operators spin on a second set of threads, one per core, next to ours.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: no other thread runs yet; parsing starts none.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    progress::set_verbosity(Verbosity::Normal);
    let done = match cli.paper {
        Paper::Dimaml(_) => {
            // SAFETY: as above.
            unsafe { std::env::set_var(dimaml::VARIABLE, "1") };
            let done = dimaml::second_order(|| execute(cli));
            done.map_err(anyhow::Error::from).flatten()
        }
        _ => execute(cli),
    };
    match done.and_then(|result| terminal::print(&format!("{result}\n"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("wave-lab: {}", describe(&error)));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn execute(cli: Cli) -> Result<Value> {
    let threads = cli.threads.unwrap_or(0); // 0 for the default
    let mut pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into());
    if let Paper::Dimaml(_) = cli.paper {
        pool = pool.use_current_thread(); // the only one on which gradients have gradients
    }
    let pool = pool
        .build()
        .context("cannot start the threads; give fewer by --threads")?;
    let run = Run {
        out: cli.out,
        options: Options {
            verbosity: Verbosity::Normal,
            ..Options::default()
        },
    };
    pool.install(|| match &cli.paper {
        Paper::Ssm(of) => ssm::run(&of.settings()?, &run),
        Paper::Population(of) => population::run(&of.settings()?, &run),
        Paper::Attention(of) => attention::run(&of.settings()?, &run),
        Paper::Dimaml(of) => dimaml::run(&of.settings()?, &run),
    })
}
