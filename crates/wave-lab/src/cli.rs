//! The command line.

use crate::run::{Run, settings};
use crate::{attention, dimaml, population, ssm};
use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use wave_run::error::{describe, exit_code, request};
use wave_run::progress::{self, Verbosity};
use wave_run::run_dir::Options;
use wave_run::terminal::{self, tell};

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
    #[arg(long, global = true, value_name = "N")]
    threads: Option<usize>,
    /// Print only the result
    #[arg(short, long, global = true)]
    quiet: bool,
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

/// Runs the command line of this process.
///
/// # Safety
/// No other thread of the process may run yet.
pub unsafe fn main() -> ExitCode {
    let cli = Cli::parse();
    // candle's own elementwise operators spin on a second set of threads, one per core, next to ours.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: no other thread runs, as this function requires, and parsing starts none.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    let done = match cli.paper {
        Paper::Dimaml(_) => {
            // SAFETY: as above.
            unsafe { std::env::set_var(dimaml::VARIABLE, "1") };
            let done = dimaml::second_order(|| execute(cli));
            done.map_err(anyhow::Error::from).flatten()
        }
        _ => execute(cli),
    };
    let printed = done.and_then(|result| terminal::print(&format!("{result}\n")));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("wave-lab: {}", describe(&error)));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn execute(cli: Cli) -> Result<Value> {
    let mut pool = rayon::ThreadPoolBuilder::new();
    match cli.threads {
        Some(threads @ 1..=1024) => pool = pool.num_threads(threads),
        Some(threads) => return Err(request(format!("--threads {threads}; expected 1 to 1024"))),
        None => {}
    }
    let mut run = Run {
        out: cli.out,
        options: Options::default(),
    };
    if cli.quiet {
        run.options.verbosity = Verbosity::Quiet;
    }
    progress::set_verbosity(run.options.verbosity);
    if let Paper::Dimaml(_) = cli.paper {
        pool = pool.use_current_thread(); // the only one on which gradients have gradients
    }
    let pool = pool
        .build()
        .context("cannot start the threads; give fewer by --threads")?;
    pool.install(|| match &cli.paper {
        Paper::Ssm(of) => ssm::run(&of.settings()?, &run),
        Paper::Population(of) => population::run(&of.settings()?, &run),
        Paper::Attention(of) => attention::run(&of.settings()?, &run),
        Paper::Dimaml(of) => dimaml::run(&of.settings()?, &run),
    })
}
