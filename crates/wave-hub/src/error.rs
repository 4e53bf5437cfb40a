//! Errors of reading and writing.

use std::io;
use std::path::{Path, PathBuf};

/// A failed read or write. Every message names the path, what was found and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A file or directory that was asked for is not there.
    #[error("{}: {found}; {remedy}", .path.display())]
    Missing {
        /// The path looked for.
        path: PathBuf,
        /// The content found in its place.
        found: String,
        /// The remedy.
        remedy: String,
    },
    /// The content of a file is not what it should be.
    #[error("{}: {found}; {remedy}", .path.display())]
    Malformed {
        /// The file or directory read.
        path: PathBuf,
        /// Found and expected.
        found: String,
        /// The remedy.
        remedy: String,
    },
    /// The content handed over for writing could not be read back, so it was not written.
    #[error("{} was not written: {found}; {remedy}", .path.display())]
    Unwritable {
        /// Its destination.
        path: PathBuf,
        /// The fault of the content.
        found: String,
        /// The remedy.
        remedy: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {cause}", .path.display())]
    Io {
        /// The attempt, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// A hub, or the network, refused. No secret is ever part of this.
    #[error("{about}: {found}; {remedy}")]
    Remote {
        /// The repository, or the file in it.
        about: String,
        /// The failure.
        found: String,
        /// The remedy.
        remedy: String,
        /// True if the request was wrong, rather than the hub or the network out of order.
        request: bool,
    },
    /// The tensor library refused.
    #[error("{}: tensor `{tensor}`: {cause}", .path.display())]
    Tensor {
        /// The file read or written.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The error of candle.
        cause: Box<candle_core::Error>,
    },
}

impl HubError {
    /// True if the request was wrong (missing or malformed input) rather than the work
    /// having failed (a write, the disk, permissions).
    pub fn is_request(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::Malformed { .. } => true,
            Self::Remote { request, .. } => *request,
            Self::Unwritable { .. } | Self::Io { .. } | Self::Tensor { .. } => false,
        }
    }

    #[cfg(feature = "hub")]
    pub(crate) fn remote(
        about: &str,
        found: impl Into<String>,
        remedy: impl Into<String>,
        request: bool,
    ) -> Self {
        Self::Remote {
            about: about.to_owned(),
            found: found.into(),
            remedy: remedy.into(),
            request,
        }
    }

    /// For `map_err`: an I/O error met while doing `action` to `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io {
            action,
            path: path.to_owned(),
            cause,
        }
    }

    /// For `map_err`: a tensor error met on `tensor` of `path`.
    pub(crate) fn tensor(path: &Path, tensor: &str) -> impl FnOnce(candle_core::Error) -> Self {
        move |cause| Self::Tensor {
            path: path.to_owned(),
            tensor: tensor.to_owned(),
            cause: Box::new(cause),
        }
    }
}

/// Constructors of the errors of a path, with the fault and the remedy.
macro_rules! of_path {
    ($($name:ident => $variant:ident),+) => {
        impl HubError {
            $(pub(crate) fn $name(path: &Path, found: impl Into<String>, remedy: impl Into<String>) -> Self {
                Self::$variant {
                    path: path.to_owned(),
                    found: found.into(),
                    remedy: remedy.into(),
                }
            })+
        }
    };
}
of_path!(missing => Missing, malformed => Malformed, unwritable => Unwritable);
