//! Pulling artefacts from and publishing them to a hub that speaks Hugging Face's API, with the crate hf-hub.
//!
//! The cache is the one of Python's `huggingface_hub`, with the same environment variables; each finds what the other
//! downloaded. Only artefact files of a model are downloaded or sent: no pickles, and no code but wave's own
//! `expand.py`, which is sent with templates and never downloaded. Every download is compared with the hub's checksum
//! before it gets its name. The token is sent only to the hub's own address, and appears in no message.
//!
//! Nothing here runs unless a name says `hf:` or a caller publishes.
//!
//! # Additions to hf-hub
//!
//! The files here add what hf-hub 1.0.0 lacks, and each part is removed once hf-hub has it:
//!
//! | own | why | file |
//! |---|---|---|
//! | every file compared with its checksum, in a cache of hf-hub's own, before it moves to the shared one | hf-hub stores the response to a file's GET whatever its status, and checks no content | `pull.rs` |
//! | one lock for all downloads from a repository | hf-hub gives up on a file's lock after 10 seconds | `cache.rs` |
//! | attempts, `Retry-After`, timeouts, errors with a remedy and without signed addresses | hf-hub retries without regard for `Retry-After`, and has no read timeout | `client.rs` |
//! | the list of a repository's files, limited in length and time | hf-hub reads a response of any length | `client.rs`, `ask` |
//! | offline use, and a mark of complete downloads | hf-hub does not read `HF_HUB_OFFLINE`; its snapshot may lack files | `cache.rs`, `settings.rs` |
//! | a Git LFS batch request before the commit | without Xet hf-hub sends weights as base64 in the commit, with a warning only | `publish.rs`, `check_storage` |
//! | pull requests: opened as a draft, then committed to as `refs/pr/N` | `create_pr` asks for write access to `main` (<https://github.com/huggingface/hf-hub/pull/199>, merged, unreleased) | `publish.rs`, `propose` |
//! | dry run, scan for secrets, rules for artefacts | specific to wave | `plan.rs`, `publish.rs`, `hub.rs` |
//!
//! Two weaknesses of hf-hub 1.0.0 cannot be fixed from outside: it takes the headers `ETag` and `X-Repo-Commit` as
//! file names unchecked, so that a malicious hub can write outside the cache (`HF_ENDPOINT` has to be trusted); and
//! its HEAD requests have no timeout.

use std::sync::Arc;

pub use hf_hub::progress::FileProgress;
use hf_hub::progress::{DownloadEvent, ProgressEvent, ProgressHandler, UploadEvent};

use crate::directory::{ARTEFACT_FILES, EXPAND_FILE, PICTURE_FILE};

mod cache;
mod client;
mod name;
mod plan;
mod publish;
mod pull;
mod search;
mod settings;
#[cfg(test)]
mod tests;

pub use cache::cached;
pub use name::{HubName, RepoName};
pub use plan::{PlannedFile, Published};
pub use publish::{PublishOptions, publish};
pub use pull::{Choose, Pulled, checkout, pull, pull_data};
pub use search::{Found, search};
pub use settings::{HubSettings, Token};

/// Called as files are transferred, several at a time, from other threads. Total bytes are 0 if the hub does not say.
pub type OnProgress = Arc<dyn Fn(&FileProgress) + Send + Sync>;

/// Forwards hf-hub's events.
struct Events(OnProgress);

impl ProgressHandler for Events {
    fn on_progress(&self, event: &ProgressEvent) {
        if let ProgressEvent::Download(DownloadEvent::Progress { files })
        | ProgressEvent::Upload(UploadEvent::Progress { files, .. }) = event
        {
            files.iter().for_each(|file| (self.0)(file));
        }
    }
}

/// True if a file of this name, at the top of an artefact's directory, is part of the artefact.
fn is_artefact_file(name: &str) -> bool {
    let licences = ["LICENSE", "LICENSE.md", "LICENSE.txt"];
    let plain = !name.starts_with('.') && !name.contains(['/', '\\']);
    let known = match name {
        EXPAND_FILE => false,
        "tokenizer_config.json" | PICTURE_FILE => true,
        name => ARTEFACT_FILES.contains(&name) || licences.contains(&name),
    };
    plain && (known || name.ends_with(".safetensors") || name.ends_with(".onnx"))
}

/// True if a name is that of a pickle, or of a format that often contains one: reading it may run code.
fn is_pickle_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill", ".npy", ".npz",
        ".mar",
    ]
    .iter()
    .any(|ending| name.ends_with(ending))
}
