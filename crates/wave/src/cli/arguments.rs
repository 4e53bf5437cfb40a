//! The arguments of the command line.

use crate::hub;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use wave_run::settings::{
    Adapt, Condense, Eval, Expand, Finetune, Init, Output, Pictures, Speed, ZeroShot,
};

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

/// The flags that `-h` lists of commands with many; `--help` lists all.
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

/// The command line, with help in two depths.
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
    /// Device: cpu; in builds with the feature cuda also cuda or cuda:N [with cuda, each of several processes on a
    /// machine takes its own]
    #[arg(long, global = true, default_value = "cpu", value_name = "D")]
    pub(super) device: String,
    /// Threads [default: one per core]
    #[arg(long, global = true, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Print errors only; with --json also the result
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Also print the settings, the data found, tensors, and the time and memory taken
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
    /// Continue the interrupted run in --out. Finished work is never repeated
    #[arg(long)]
    pub(super) resume: bool,
    /// Replace the content of --out: an unfinished or another run, or a foreign artefact
    #[arg(long, conflicts_with = "resume")]
    pub(super) overwrite: bool,
    /// Override a recipe key: table.key=value
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Print the plan and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Profile training: time of products, attention, composition, ancestor, loading, tests
    #[arg(long)]
    pub(super) profile: bool,
}

/// Arguments of a command that takes a recipe as a whole.
#[derive(Args)]
#[group(skip)]
pub(super) struct Whole {
    /// The recipe
    pub(super) recipe: PathBuf,
    /// Images, in the place of the recipe's `data`
    #[arg(long, value_name = "D", help_heading = "Images")]
    pub(super) data: Option<String>,
    #[command(flatten)]
    pub(super) run: Makes,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run all stages that a recipe names, in order
    #[command(after_help = "Example: wave run recipes/quickstart.toml --out quickstart")]
    Run(Whole),
    /// Compare ways to start models: the methods, sizes, data sets and seeds of the recipe's [bench]
    /// table. Skips finished runs in --out
    #[command(after_help = "Example: wave bench recipes/bench/shapes.toml --out bench")]
    Bench(Whole),
    /// Distil an ancestor into weight templates. Without a recipe, settings not given are planned for --minutes
    #[command(
        after_help = "Example: wave condense --ancestor ancestors/deit --data photos --minutes 60 --out mine"
    )]
    Condense {
        /// The recipe
        recipe: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Condense>,
        /// Print the recipe planned for --minutes and do nothing else
        #[arg(long)]
        print_recipe: bool,
        #[command(flatten)]
        run: Makes,
    },
    /// Make a model of any depth and width from weight templates
    #[command(after_help = "Example: wave expand --depth 6 --width 576 --out model")]
    Expand {
        /// A template directory, hf:OWNER/NAME, or a name listed by `wave templates` [default: cifar-10, shipped
        /// with wave like fashion-mnist]
        templates: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Expand>,
        #[command(flatten)]
        run: Makes,
    },
    /// Adapt weight templates to other data once, for models of all sizes
    #[command(
        after_help = "Example: wave adapt templates/fashion-mnist --data photos --train-limit 1000 --out \
                      photos-delta\n         wave expand templates/fashion-mnist --delta photos-delta \
                      --depth 6 --width 96 --out model"
    )]
    Adapt {
        /// A template directory, hf:OWNER/NAME, or a name listed by `wave templates`
        templates: PathBuf,
        /// Take settings from the `[adapt]` table of this recipe
        #[arg(long, value_name = "R")]
        recipe: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<Adapt>,
        #[command(flatten)]
        run: Makes,
    },
    /// Initialise a model in closed form, from a size alone or a trained model (not `git init`)
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
        /// A model directory, or a safetensors file
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
        /// A model directory, or a safetensors file
        model: PathBuf,
        #[command(flatten)]
        settings: Eval,
    },
    /// Classify images
    #[command(after_help = "Example: wave predict tuned shirt.png photos/ --csv labels.csv")]
    Predict {
        /// A model directory, or a safetensors file
        model: PathBuf,
        /// Attention heads of a transformer whose config.json lacks them
        #[arg(long, value_name = "N")]
        heads: Option<usize>,
        /// JPEG, PNG, WebP, GIF, BMP, TIFF or PNM files, or directories of images
        #[arg(required = true)]
        images: Vec<PathBuf>,
        /// Also write a CSV table with a line per image: image, index, label, probability
        #[arg(long, value_name = "FILE")]
        csv: Option<PathBuf>,
        #[command(flatten)]
        classes: ZeroShot,
    },
    /// Write a model in another layout or precision: the same weights, without data
    #[command(
        after_help = "Example: wave convert tuned --format transformers --dtype bf16 --out tuned-bf16"
    )]
    Convert {
        /// A model directory, or a safetensors file
        model: PathBuf,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        run: Makes,
    },
    /// Show the content of a directory or file
    #[command(after_help = "Example: wave inspect tuned --html tuned.html")]
    Inspect {
        /// A template directory, a model directory or a safetensors file
        path: PathBuf,
        #[command(flatten)]
        pictures: Pictures,
    },
    /// List local template sets: shipped with wave, in ./templates, and downloaded
    #[command(after_help = "Example: wave templates")]
    Templates {
        /// Template directories, or directories that hold some
        dirs: Vec<PathBuf>,
        /// List the most downloaded on the Hugging Face hub instead, by their tags
        #[arg(long, conflicts_with = "dirs")]
        hub: bool,
    },
    /// Send a template or model directory to a hub, as one commit
    #[command(after_help = "Example: wave publish model --repo you/model --dry-run")]
    Publish {
        /// The directory
        dir: PathBuf,
        #[command(flatten)]
        settings: hub::Publish,
        /// List the files to send, and send nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Download templates or a model, to --out or the cache that Python shares
    #[command(after_help = "Example: wave pull you/model --out model")]
    Pull {
        /// The repository: OWNER/NAME, or OWNER/NAME@REV
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
    /// Measure how fast this machine trains, runs and condenses a transformer
    #[command(
        after_help = "Example: wave speed --mode train --depth 12 --width 192 --precision bf16"
    )]
    Speed {
        #[command(flatten)]
        settings: Box<Speed>,
    },
    /// Print a completion script for a shell
    #[command(
        after_help = "Example: wave completions bash > ~/.local/share/bash-completion/completions/wave"
    )]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write a manual page for every command: wave.1, wave-expand.1, ...
    #[command(after_help = "Example: wave man ~/.local/share/man/man1")]
    Man {
        /// The directory to write
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
pub(super) enum DataCommand {
    /// Decode every image and count the classes
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
        /// The directory to write
        into: PathBuf,
        /// Size of a shard in MiB
        #[arg(long, value_name = "N", default_value_t = 256)]
        shard_mb: u64,
    },
}
