//! Artefacts in transit: pulling from and publishing to a hub that speaks Hugging Face's API, by the crate
//! hf-hub.
//!
//! - [`resolve()`] turns `hf:OWNER/NAME[@REV]` into a directory, downloading what is not cached;
//! - [`pull()`] does the same for a parsed name and tells what it left out;
//! - [`pull_data()`] is for data sets, of which the caller chooses the files;
//! - [`cached()`] lists what was downloaded before, [`search()`] what the hub has by tag;
//! - [`checkout()`] copies a cached artefact to a directory of one's own;
//! - [`plan()`] lists what publishing a directory would send, and [`publish()`] sends it as one
//!   commit.
//!
//! The cache is the one that Python's `huggingface_hub` keeps, with the same environment
//! variables; either side finds what the other downloaded. Of a model only artefact files are downloaded or
//! sent: no pickles, no code. Whatever is downloaded is compared with the hub's own checksum
//! before it gets its name. The token goes to the hub's own address only, and into no message.
//!
//! Nothing here runs unless a name says `hf:` or a caller publishes. `crates/ARCHITECTURE.md` says what of
//! this hf-hub lacks.

use std::sync::Arc;

use hf_hub::progress::{DownloadEvent, ProgressEvent, ProgressHandler, UploadEvent};

mod cache;
mod client;
mod name;
mod plan;
mod publish;
mod pull;
mod search;
#[cfg(test)]
mod server;
mod settings;

pub use cache::cached;
pub use name::{HubName, RepoName};
pub use plan::{Plan, PlannedFile, plan};
pub use publish::{PublishOptions, Published, publish};
pub use pull::{Choose, Pulled, Refusal, checkout, pull, pull_data, resolve};
pub use search::{Found, search};
pub use settings::{HubSettings, Token};

/// The progress of the transfer of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file's name within the repository.
    pub file: &'a str,
    /// Bytes transferred.
    pub done: u64,
    /// Bytes in all; 0 where the hub does not say.
    pub total: u64,
}

/// Called as files are transferred, several at a time, from other threads.
pub type OnProgress = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// Hands hf-hub's events on.
struct Events(OnProgress);

impl ProgressHandler for Events {
    fn on_progress(&self, event: &ProgressEvent) {
        let (ProgressEvent::Download(DownloadEvent::Progress { files })
        | ProgressEvent::Upload(UploadEvent::Progress { files, .. })) = event
        else {
            return;
        };
        for file in files {
            (self.0)(Progress {
                file: &file.filename,
                done: file.bytes_completed,
                total: file.total_bytes,
            });
        }
    }
}

/// Whether a file of this name, at the top of an artefact's directory, is part of the artefact.
fn is_artefact_file(name: &str) -> bool {
    let fixed = [
        "config.json",
        crate::directory::PREPROCESSOR_FILE,
        crate::directory::PROCESSOR_FILE,
        crate::TOKENIZER_FILE,
        "tokenizer_config.json",
        "README.md",
        "LICENSE",
        "LICENSE.md",
        "LICENSE.txt",
    ];
    let kinds = [".safetensors", ".onnx"];
    let plain = !name.starts_with('.') && !name.contains(['/', '\\']);
    plain && (fixed.contains(&name) || kinds.iter().any(|kind| name.ends_with(kind)))
}

/// Whether a name is that of a pickle, or of what commonly holds one: reading it may run code.
fn is_pickle_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill", ".npy", ".npz",
        ".mar",
    ]
    .iter()
    .any(|ending| name.ends_with(ending))
}
