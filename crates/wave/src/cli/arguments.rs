//! The arguments of the command line.

use crate::hub;
use crate::predict::Predict;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use wave_run::settings::{Adapt, Condense, Eval, Expand, Finetune, Init, Output, Pictures, Speed};

/// Start vision transformers of any size from one distillation.
#[derive(Parser)]
#[command(name = "wave", version, about, max_term_width = 100)]
#[command(after_help = "Example: wave run recipes/quickstart.toml")]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    pub(super) common: Common,
}

/// For commands with many flags, those that `-h` lists; `--help` lists all.
const SHORT: [(&str, &str); 5] = [
    (
        "condense",
        "ancestor data minutes sizes labels cache train_limit seed print_recipe",
    ),
    (
        "expand",
        "depth width heads max_params max_macs max_latency_ms delta data steps format dtype",
    ),
    (
        "finetune",
        "data ancestor new_head epochs batch lr muon precision hold_out seed format",
    ),
    ("adapt", "data whole epochs steps lr train_limit seed dtype"),
    (
        "init",
        "arch depth width heads patch image_size from data seed format dtype",
    ),
];

/// Flags of every command that `-h` lists.
const ALWAYS: &str = "out resume overwrite dry_run device threads json quiet verbose";

/// The command line, with short and long help.
pub(super) fn command() -> clap::Command {
    SHORT.iter().fold(Cli::command(), |cli, (name, flags)| {
        cli.mut_subcommand(name, |command| {
            command.mut_args(|arg| {
                let mut listed = flags.split(' ').chain(ALWAYS.split(' '));
                let listed = listed.any(|flag| arg.get_id() == flag) || arg.is_positional();
                arg.hide_short_help(!listed)
            })
        })
    })
}

/// Flags of every command.
#[derive(Args, Clone)]
#[command(next_help_heading = "Common")]
pub(super) struct Common {
    /// Device: cpu; in builds with the feature cuda also cuda or cuda:N (with cuda, each rank on a machine uses
    /// its own GPU)
    #[arg(long, global = true, default_value = "cpu", value_name = "D")]
    pub(super) device: String,
    /// Number of threads [default: one per core]
    #[arg(long, global = true, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Print errors only; with --json also the result
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Also print settings, data, tensors, and the time and memory used
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(super) verbose: bool,
}

/// Flags of commands with an output directory.
#[derive(Args, Clone)]
#[command(next_help_heading = "Run")]
#[group(skip)]
pub(super) struct Makes {
    /// Output directory [default: runs/NAME-DATE-TIME, in UTC]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Resume the interrupted run in --out. Finished work is not repeated
    #[arg(long)]
    pub(super) resume: bool,
    /// Replace the contents of --out: an unfinished run, another run, or files that wave did not write
    #[arg(long, conflicts_with = "resume")]
    pub(super) overwrite: bool,
    /// Override a recipe key: table.key=value
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Print the plan without running it
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Profile training: time of matrix products, attention, composition, ancestor, loading, tests
    #[arg(long)]
    pub(super) profile: bool,
}

/// Arguments of a command that takes a recipe as a whole.
#[derive(Args)]
#[group(skip)]
pub(super) struct Whole {
    /// Recipe file (TOML)
    pub(super) recipe: PathBuf,
    /// Images, instead of the recipe's `data`
    #[arg(long, value_name = "D", help_heading = "Images")]
    pub(super) data: Option<String>,
    #[command(flatten)]
    pub(super) run: Makes,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run all stages of a recipe in order
    #[command(after_help = "Example: wave run recipes/quickstart.toml --out quickstart")]
    Run(Whole),
    /// Compare initialisation methods at the sizes, data sets and seeds in the recipe's [bench] table. Skips
    /// finished runs in --out
    #[command(after_help = "Example: wave bench recipes/fashion-mnist.toml --out bench")]
    Bench(Whole),
    /// Distil an ancestor into weight templates. Without a recipe, unset settings are planned for --minutes
    #[command(
        after_help = "Example: wave condense --ancestor ancestors/deit --data photos --minutes 60 --out mine"
    )]
    Condense {
        /// Recipe file (TOML)
        recipe: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Condense>,
        /// Print the recipe planned for --minutes without running it
        #[arg(long)]
        print_recipe: bool,
        #[command(flatten)]
        run: Makes,
    },
    /// Make a model of any depth and width from weight templates
    #[command(after_help = "Example: wave expand --depth 6 --width 576 --out model")]
    Expand {
        /// Template directory, hf:OWNER/NAME, or a name listed by `wave templates` [default: cifar-10, shipped
        /// with wave like fashion-mnist]
        templates: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Expand>,
        #[command(flatten)]
        run: Makes,
    },
    /// Adapt weight templates to other data, once for models of all sizes
    #[command(
        after_help = "Example: wave adapt templates/fashion-mnist --data photos --train-limit 1000 --out \
                      photos-delta\n         wave expand templates/fashion-mnist --delta photos-delta \
                      --depth 6 --width 96 --out model"
    )]
    Adapt {
        /// Template directory, hf:OWNER/NAME, or a name listed by `wave templates`
        templates: PathBuf,
        /// Take settings from the `[adapt]` table of this recipe
        #[arg(long, value_name = "R")]
        recipe: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Adapt>,
        #[command(flatten)]
        run: Makes,
    },
    /// Initialise a model without training, from its size alone or from a trained model (not `git init`)
    #[command(after_help = wave_stages::init::help() + "\nExample: wave init mimetic --depth 6 --width 192 --patch 7 \
                            --data fashion-mnist --out start")]
    Init {
        /// One of the methods below
        method: String,
        #[command(flatten)]
        settings: Box<Init>,
        #[command(flatten)]
        run: Makes,
    },
    /// Train all weights of a model
    #[command(
        after_help = "Example: wave finetune model --data fashion-mnist --epochs 1 --out tuned"
    )]
    Finetune {
        /// Model directory or safetensors file
        model: PathBuf,
        /// Take settings from the `[finetune]` table of this recipe
        #[arg(long, value_name = "R")]
        recipe: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Finetune>,
        #[command(flatten)]
        run: Makes,
    },
    /// Measure a model's accuracy
    #[command(after_help = "Example: wave eval tuned --data fashion-mnist")]
    Eval {
        /// Model directory or safetensors file
        model: PathBuf,
        #[command(flatten)]
        settings: Eval,
    },
    /// Classify images
    #[command(after_help = "Example: wave predict tuned shirt.png photos/ --csv labels.csv")]
    Predict(Predict),
    /// Convert a model to another layout or precision, without data
    #[command(
        after_help = "Example: wave convert tuned --format transformers --dtype bf16 --out tuned-bf16"
    )]
    Convert {
        /// Model directory or safetensors file
        model: PathBuf,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        run: Makes,
    },
    /// Show the contents of a directory or file
    #[command(after_help = "Example: wave inspect tuned --html tuned.html")]
    Inspect {
        /// Template directory, model directory or safetensors file
        path: PathBuf,
        #[command(flatten)]
        pictures: Pictures,
    },
    /// List local template sets: shipped with wave, in ./templates, and downloaded
    #[command(after_help = "Example: wave templates")]
    Templates {
        /// Template directories, or directories that contain some
        dirs: Vec<PathBuf>,
        /// List the most downloaded sets on the Hugging Face hub instead, found by their tags
        #[arg(long, conflicts_with = "dirs")]
        hub: bool,
    },
    /// Upload a template or model directory to a hub as one commit
    #[command(after_help = "Example: wave publish model --repo you/model --dry-run")]
    Publish {
        /// Template or model directory
        dir: PathBuf,
        #[command(flatten)]
        settings: hub::Publish,
        /// List the files to upload without uploading them
        #[arg(long)]
        dry_run: bool,
    },
    /// Download templates or a model to --out, or to the cache shared with Python
    #[command(after_help = "Example: wave pull you/model --out model")]
    Pull {
        /// Repository: OWNER/NAME or OWNER/NAME@REV
        name: String,
        /// Output directory [default: the cache]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Check data, or write it as tar shards
    #[command(after_help = "Example: wave data check photos")]
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Benchmark training, inference or condensation of a transformer on this machine
    #[command(
        after_help = "Example: wave speed --mode train --depth 12 --width 192 --precision bf16"
    )]
    Speed {
        #[command(flatten)]
        settings: Box<Speed>,
    },
    /// Print a shell completion script
    #[command(
        after_help = "Example: wave completions bash > ~/.local/share/bash-completion/completions/wave"
    )]
    Completions {
        /// Shell that the script is for
        shell: clap_complete::Shell,
    },
}

#[derive(Subcommand)]
pub(super) enum DataCommand {
    /// Decode every image and count the images of each class
    #[command(after_help = "Example: wave data check photos")]
    Check {
        /// Images, as for --data
        data: String,
    },
    /// Write tar shards (WebDataset)
    #[command(after_help = "Example: wave data pack photos shards --shard-mb 512")]
    Pack {
        /// Images, as for --data
        data: String,
        /// Output directory
        into: PathBuf,
        /// Shard size in MiB
        #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
        shard_mb: u64,
    },
}
