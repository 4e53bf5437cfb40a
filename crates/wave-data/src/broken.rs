//! Images that cannot be decoded. Training replaces them, evaluation leaves them out; too many are an
//! error.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::DataError;

/// An image that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenImage {
    /// Its index in the source.
    pub index: u32,
    /// Its file, or its position in a file.
    pub path: String,
    /// The error.
    pub problem: String,
}

/// An error lists at most this many.
const LISTED: usize = 20;

/// The broken images found so far, and their limit.
pub struct BrokenImages {
    allowed: usize,
    total: usize,
    found: Mutex<BTreeMap<u32, BrokenImage>>,
}

impl BrokenImages {
    /// Limit for `total` images: one in a thousand may be broken, or 10, but no more than a tenth; at least
    /// one, unless it is the only image.
    pub fn new(total: usize) -> Self {
        let few = (total / 10).clamp(1, 10);
        let allowed = (total / 1000).max(few).min(total.saturating_sub(1));
        Self::at_most(allowed, total)
    }

    /// A limit of `allowed` broken images out of `total`.
    pub(crate) fn at_most(allowed: usize, total: usize) -> Self {
        Self {
            allowed,
            total,
            found: Mutex::new(BTreeMap::new()),
        }
    }

    /// Records that image `index` failed. Fails with errors not about its content, and if too many images are broken.
    pub(crate) fn note(&self, index: u32, error: DataError) -> Result<(), DataError> {
        let DataError::Content { path, problem } = error else {
            return Err(error);
        };
        // Insertions are atomic, so the map behind a poisoned lock is still valid.
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(index).or_insert_with(|| BrokenImage {
            index,
            path: path.clone(),
            problem: problem.clone(),
        });
        let (n, total, allowed) = (found.len(), self.total, self.allowed);
        if n <= allowed {
            return Ok(());
        }
        if allowed == 0 {
            return Err(DataError::Content { path, problem });
        }
        let line = |image: &BrokenImage| format!("{}: {}", image.path, image.problem);
        let mut list: Vec<String> = found.values().take(LISTED).map(line).collect();
        if n > LISTED {
            list.push(format!("and {} more", n - LISTED));
        }
        Err(DataError::Settings(format!(
            "{n} of {total} images are broken, more than the {allowed} allowed; repair or remove \
             them:\n{}",
            list.join("\n")
        )))
    }

    /// Broken images found so far, by index.
    pub fn list(&self) -> Vec<BrokenImage> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.values().cloned().collect()
    }
}
