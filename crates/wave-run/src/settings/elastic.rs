//! Settings of trainings that draw the sizes of each step.

use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of every command whose steps draw from `--depths` and `--widths`.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Sizes of a step")]
#[group(skip)]
pub struct Elastic {
    /// Share of the steps, 0 to 1, over which the most of --depths grows from the least, and the
    /// widest of --widths from the narrowest: small models first, whose steps cost less and teach the
    /// larger ones as much [default: 0.9; of finetune 0]
    #[arg(long, value_name = "X")]
    pub growth: Option<f64>,
    /// Power with which they grow over that share: 1 is linear, more stays small for longer
    /// [default: 3]
    #[arg(long, value_name = "P")]
    pub growth_power: Option<f64>,
    /// Sizes that each step trains: with two or more one is the smallest, with three or more another the
    /// largest so far (the sandwich rule) [default: 1]
    #[arg(long, value_name = "N")]
    pub sizes_per_step: Option<usize>,
    /// Weight of the divergence from the largest model of the step, from which its others then learn as
    /// well (in-place distillation); with --sizes-per-step [default: 0]
    #[arg(long, value_name = "X")]
    pub inplace_weight: Option<f64>,
}
