//! The settings of populations.

use clap::Args;
use serde::{Deserialize, Serialize};
use wave_run::settings::{Augmentation, Checkpointing, Images, Optimisation, Output, Training};

/// Flags of `wave init` for populations alone.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Populations")]
#[group(skip)]
pub struct Flags {
    /// Networks of a population [default: 500]
    #[arg(long, value_name = "N")]
    pub networks: Option<usize>,
}

/// The settings of `wave init` for a population.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct Init {
    pub(super) arch: Option<String>,
    pub(super) networks: Option<usize>,
    pub(super) depth: Option<usize>,
    pub(super) width: Option<usize>,
    pub(super) mlp_ratio: Option<f64>,
    pub(super) patch: Option<usize>,
    pub(super) image_size: Option<usize>,
    pub(super) channels: Option<usize>,
    pub(super) classes: Option<usize>,
    pub(super) kernel: Option<usize>,
    pub(super) heads: Option<usize>,
    pub(super) mlp_mean: Option<String>,
    pub(super) data: Option<String>,
    pub(super) seed: Option<u64>,
    #[serde(flatten)]
    pub(super) output: Output,
}

/// The settings of `wave finetune` for a population.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub(super) struct Finetune {
    #[serde(flatten)]
    pub(super) images: Images,
    #[serde(flatten)]
    pub(super) optimisation: Optimisation,
    #[serde(flatten)]
    pub(super) saving: Checkpointing,
    pub(super) crop_padding: Option<usize>,
    pub(super) flip: Option<bool>,
    pub(super) views: Option<u32>,
    pub(super) freeze: Option<Vec<String>>,
    #[serde(flatten)]
    pub(super) output: Output,
}

impl Finetune {
    /// As settings of training on images.
    pub(super) fn training(&self) -> Training {
        let own = self.clone();
        Training {
            images: own.images,
            optimisation: own.optimisation,
            augmentation: Augmentation {
                crop_padding: own.crop_padding,
                flip: own.flip,
                views: own.views,
                ..Augmentation::default()
            },
            saving: own.saving,
            ..Training::default()
        }
    }
}
