//! Requests that cannot be fulfilled.

use crate::ShapeError;

/// A request that cannot be fulfilled: sizes, settings or weights that do not fit each other. The message
/// says what was found, what was expected, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    message: String,
    unknown: Option<(String, Vec<String>)>,
}

impl Refusal {
    /// A refusal with this message.
    pub fn new(message: impl Into<String>) -> Refusal {
        Refusal {
            message: message.into(),
            unknown: None,
        }
    }

    /// The refusal of an unknown name; `kind` says what it names, such as `method`.
    pub fn unknown<'a>(
        kind: &str,
        found: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Refusal {
        let known: Vec<String> = known.into_iter().map(str::to_owned).collect();
        Refusal {
            message: format!("unknown {kind} `{found}`: use one of {}", known.join(", ")),
            unknown: Some((found.to_owned(), known)),
        }
    }

    /// The unknown name and the known ones, if the refusal is about a name.
    pub fn names(&self) -> Option<(&str, &[String])> {
        let (found, known) = self.unknown.as_ref()?;
        Some((found, known))
    }
}

impl From<ShapeError> for Refusal {
    fn from(error: ShapeError) -> Refusal {
        Refusal::new(error.to_string())
    }
}

impl From<ShapeError> for candle_core::Error {
    fn from(error: ShapeError) -> candle_core::Error {
        candle_core::Error::wrap(error)
    }
}

impl From<Refusal> for candle_core::Error {
    fn from(refusal: Refusal) -> candle_core::Error {
        candle_core::Error::wrap(refusal)
    }
}

/// A refusal, or a failed tensor operation.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The request cannot be fulfilled.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

impl From<ShapeError> for NetworkError {
    fn from(error: ShapeError) -> NetworkError {
        Refusal::from(error).into()
    }
}

/// Returns a refusal with a formatted message.
#[macro_export]
macro_rules! refuse {
    ($($message:tt)*) => {
        return Err($crate::Refusal::new(format!($($message)*)).into())
    };
}
