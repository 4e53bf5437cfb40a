//! Errors, divided into bad requests and failures.

use std::io;
use std::path::{Path, PathBuf};

/// Errors of data sets. Every message states the found and the expected value.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A directory is no data set, or a file is malformed: truncated, of another format, contradicting its header.
    #[error("{path}: {problem}")]
    Content {
        /// The file or directory at fault.
        path: String,
        /// The found and the expected value.
        problem: String,
    },
    /// A setting is out of range or does not fit the data, the data spec (`--data`) names nothing that
    /// exists, or too many images cannot be decoded.
    #[error("{0}")]
    Settings(String),
    /// The operating system returned an error.
    #[error("cannot {action} {}: {cause}", path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or directory at fault.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
        /// True while the data set is being opened, false later.
        opening: bool,
    },
    /// The background thread that makes batches could not start, or ended early.
    #[error("the thread that loads images failed: {0}")]
    Worker(String),
}

impl DataError {
    /// `path` could not be read while opening the data set.
    pub(crate) fn open(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        Self::io("read", path, true)
    }

    /// `path` could not be read after the data set was opened.
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        Self::io("read", path, false)
    }

    /// `path` could not be written.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        Self::io("write", path, false)
    }

    fn io(action: &'static str, path: &Path, opening: bool) -> impl Fn(io::Error) -> Self + Copy {
        move |cause| Self::Io {
            action,
            path: path.to_owned(),
            cause,
            opening,
        }
    }

    /// `path` is not laid out as a data set, or its content is malformed.
    pub(crate) fn content(path: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        Self::Content {
            path: path.as_ref().display().to_string(),
            problem: problem.into(),
        }
    }

    /// True if the request was wrong (spec, layout, content, setting), false if a valid one failed at run time.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Content { .. } | Self::Settings(_) => true,
            Self::Io { opening, .. } => *opening,
            Self::Worker(_) => false,
        }
    }
}

/// Gives an enumeration the list of its choices, and their names in settings and files.
macro_rules! named {
    ($kind:ident, $what:literal, $($name:literal => $choice:ident),+) => {
        impl $kind {
            /// All variants.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$choice),+];
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $($kind::$choice => $name),+
                })
            }
        }

        impl std::str::FromStr for $kind {
            type Err = $crate::DataError;

            fn from_str(name: &str) -> Result<Self, $crate::DataError> {
                let named = Self::ALL.into_iter().find(|choice| choice.to_string() == name);
                named.ok_or_else(|| {
                    let all = [$($name),+].join(", ");
                    let what = format!("{} is `{name}`, expected one of {all}", $what);
                    $crate::DataError::Settings(what)
                })
            }
        }
    };
}
pub(crate) use named;
