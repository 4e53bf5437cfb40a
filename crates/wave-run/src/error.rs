//! Errors, and the exit code of each.

use crate::hint::did_you_mean;
use std::fmt;

/// A wrong request: a flag, a recipe or an input file. Exit code 2.
#[derive(Debug)]
pub struct Request(pub String);

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Request {}

/// An error that blames the request.
pub fn request(message: impl Into<String>) -> anyhow::Error {
    Request(message.into()).into()
}

/// The message of an error: its causes, with a suggestion for a misspelt name.
pub fn describe(error: &anyhow::Error) -> String {
    let hint = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(wave_init::InitError::UnknownName {
            found, expected, ..
        }) => Some(did_you_mean(found, expected.split(", "))),
        _ => None,
    });
    format!("{error:#}{}", hint.unwrap_or_default())
}

/// Exit code of an error: 2 for a wrong request, 130 after an interrupt, else 1.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(wave_train::TrainError::Interrupted(_)) = cause.downcast_ref() {
            return 130;
        }
        let blamed = cause.is::<Request>()
            || cause.is::<wave_models::ShapeError>()
            || cause.is::<wave_learngene::PlanError>()
            || cause.is::<wave_init::InitError>()
            || cause
                .downcast_ref::<wave_hub::HubError>()
                .is_some_and(|e| e.is_request())
            || cause
                .downcast_ref::<wave_data::DataError>()
                .is_some_and(|e| e.is_request())
            || match cause.downcast_ref() {
                Some(wave_train::TrainError::Mismatch(_)) => true,
                // In the chain it hides the error of the data.
                Some(wave_train::TrainError::Data(error)) => error.is_request(),
                _ => false,
            };
        if blamed {
            return 2;
        }
    }
    1
}
