//! Errors of reading and writing.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A failed read or write. Every message names the path, what was found and what to do.
///
/// Reading gives [`HubError::Missing`], [`HubError::Malformed`] or [`HubError::Io`]. Writing gives
/// [`HubError::Unwritable`] for content that reading would refuse, else [`HubError::Io`] or [`HubError::Tensor`]; no
/// temporary file stays behind then, and unless the failure falls between two renames, nothing has changed. The hub's
/// functions add [`HubError::Remote`]. Functions document only further cases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A file or directory that was asked for is not there.
    #[error("{0}")]
    Missing(Fault),
    /// The content of a file is not what it should be.
    #[error("{0}")]
    Malformed(Fault),
    /// The content handed over for writing could not be read back, so it was not written.
    #[error("{} was not written: {}; {}", .0.path.display(), .0.found, .0.remedy)]
    Unwritable(Fault),
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
    #[error("{fault}")]
    Remote {
        /// The failure, with the repository, or the file in it, as the path.
        fault: Fault,
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

/// A fault that somebody can mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file or directory.
    pub path: PathBuf,
    /// Found and expected.
    pub found: String,
    /// The remedy.
    pub remedy: String,
}

impl Fault {
    /// A fault at this path.
    pub fn new(
        path: impl Into<PathBuf>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, found, remedy) = (self.path.display(), &self.found, &self.remedy);
        write!(f, "{path}: {found}; {remedy}")
    }
}

impl HubError {
    /// True if the request was wrong (missing or malformed input), not the work (a write, the disk, permissions).
    pub fn is_request(&self) -> bool {
        match self {
            Self::Missing(_) | Self::Malformed(_) => true,
            Self::Remote { request, .. } => *request,
            Self::Unwritable(_) | Self::Io { .. } | Self::Tensor { .. } => false,
        }
    }

    #[cfg(feature = "hub")]
    pub(crate) fn remote(about: &str, found: String, remedy: &str, request: bool) -> Self {
        let fault = Fault::new(about, found, remedy);
        Self::Remote { fault, request }
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
                Self::$variant(Fault::new(path, found, remedy))
            })+
        }
    };
}
of_path!(missing => Missing, malformed => Malformed, unwritable => Unwritable);
