//! Errors, and the exit code of each.

use crate::hint::did_you_mean;
use std::fmt;
use wave_data::DataError;
use wave_hub::HubError;
use wave_models::{NetworkError, Refusal, ShapeError};
use wave_train::TrainError;

/// An error for a wrong request: a flag, a recipe or an input file. Exit code 2. `refuse!` returns such an error.
pub fn request(message: impl Into<String>) -> anyhow::Error {
    Refusal::new(message).into()
}

/// The message of an error: its causes, with a suggestion for a misspelt name.
pub fn describe(error: &anyhow::Error) -> String {
    let hint = error.chain().find_map(|cause| {
        let (found, known) = refusal(cause)?.names()?;
        Some(did_you_mean(found, known.iter().map(String::as_str)))
    });
    format!("{error:#}{}", hint.unwrap_or_default())
}

/// The cause as a `Refusal`, if it is one.
fn refusal<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Refusal> {
    match cause.downcast_ref() {
        Some(NetworkError::Refused(refusal)) => Some(refusal),
        _ => cause.downcast_ref(),
    }
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request was wrong: a size, a setting, or an input file. The message says what was expected.
    Request,
    /// The run was interrupted. Its state is saved.
    Interrupted,
    /// The request was right, but the work failed: no disk, no memory, no network.
    Failed,
}

/// An error of the library. Its message names what was found, what was expected, and what to do.
///
/// ```
/// use wave_run::error::{Error, ErrorKind, request};
///
/// let error = Error::from(request("depth 0; expected at least 1"));
/// assert_eq!(error.kind(), ErrorKind::Request);
/// assert_eq!(error.to_string(), "depth 0; expected at least 1");
/// ```
#[derive(thiserror::Error)]
#[error("{}", describe(.0))] // with all causes; a source would only repeat them
pub struct Error(anyhow::Error);

impl Error {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        kind(&self.0)
    }
}

impl From<anyhow::Error> for Error {
    fn from(cause: anyhow::Error) -> Self {
        Error(cause)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of any error here.
pub fn kind(error: &anyhow::Error) -> ErrorKind {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return error.kind();
        }
        let blamed = match cause.downcast_ref() {
            Some(TrainError::Interrupted(_)) => return ErrorKind::Interrupted,
            Some(TrainError::Mismatch(_)) => true,
            // It hides the data error in the chain of causes.
            Some(TrainError::Data(error)) => error.is_request(),
            _ => {
                let of_hub: Option<&HubError> = cause.downcast_ref();
                let of_data: Option<&DataError> = cause.downcast_ref();
                cause.is::<ShapeError>()
                    || refusal(cause).is_some()
                    || of_hub.is_some_and(HubError::is_request)
                    || of_data.is_some_and(DataError::is_request)
            }
        };
        if blamed {
            return ErrorKind::Request;
        }
    }
    ErrorKind::Failed
}

/// Exit code of an error: 2 for a wrong request, 130 after an interrupt, else 1.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    match kind(error) {
        ErrorKind::Request => 2,
        ErrorKind::Interrupted => 130,
        ErrorKind::Failed => 1,
    }
}
