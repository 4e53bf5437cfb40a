//! Names of classes for networks that classify images by texts.

use clap::Args;
use serde::{Deserialize, Serialize};

/// Keys of every command that runs a CLIP or SigLIP.
#[derive(Args, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[command(next_help_heading = "CLIP and SigLIP")]
#[group(skip)]
pub struct ZeroShot {
    /// Names of the classes of a CLIP or SigLIP: a text file, one name a line, in the order of the data's
    /// classes where it has any. Its text tower makes a classifier of them
    #[arg(long, value_name = "FILE")]
    pub labels: Option<String>,
    /// Text for a class, with {} for its name. May be given several times: a class is then the mean of its
    /// texts' embeddings [default: "a photo of a {}."]
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<Vec<String>>,
}

impl ZeroShot {
    /// Whether a class has a name here, or a text.
    pub fn is_given(&self) -> bool {
        self.labels.is_some() || self.prompt.is_some()
    }
}
