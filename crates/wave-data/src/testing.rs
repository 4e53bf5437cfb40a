//! Helpers of this crate's tests.

use std::path::Path;

use crate::{DataError, Dataset};

/// Asserts that the request was wrong, and that the message holds each of `parts`.
#[track_caller]
pub(crate) fn check_refused<T>(result: Result<T, DataError>, parts: &[&str]) {
    let error = result.err().expect("must be refused");
    assert!(error.is_request(), "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "no `{part}` in: {error}");
    }
}

pub(crate) fn open(path: &Path) -> Result<Dataset, DataError> {
    crate::open(path.to_str().unwrap())
}

/// Pillow's numbers, as `tests/fixtures/make_pillow.py` wrote them.
pub(crate) fn pillow() -> serde_json::Value {
    serde_json::from_str(include_str!("../tests/fixtures/pillow.json")).unwrap()
}
