//! Images that cannot be decoded: noted, replaced, and too many of them refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::DataError;

/// An image that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenImage {
    /// Its index in the source.
    pub index: u32,
    /// Its file, or where in which file it is.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Broken images are at most this part of all unless said otherwise.
pub(crate) const DEFAULT_RATE: f64 = 0.001;

/// An error lists at most so many.
const LISTED: usize = 20;

/// The broken images found so far, and how many there may be.
pub(crate) struct BrokenImages {
    allowed: usize,
    total: usize,
    found: Mutex<BTreeMap<u32, BrokenImage>>,
}

impl BrokenImages {
    pub(crate) fn new(rate: f64, total: usize) -> Self {
        Self {
            allowed: (rate * total as f64) as usize,
            total,
            found: Mutex::new(BTreeMap::new()),
        }
    }

    /// Notes that image `index` failed. An error if it is not the image's content that is at fault,
    /// or if there are now too many.
    pub(crate) fn note(&self, index: u32, error: DataError) -> Result<(), DataError> {
        let DataError::Content { path, problem } = error else {
            return Err(error);
        };
        // An entry is put there whole or not at all, so a poisoned lock guards nothing broken.
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(index).or_insert_with(|| BrokenImage {
            index,
            path: path.clone(),
            problem: problem.clone(),
        });
        if found.len() <= self.allowed {
            return Ok(());
        }
        if self.allowed == 0 {
            return Err(DataError::Content { path, problem });
        }
        Err(too_many(
            &found.values().cloned().collect::<Vec<_>>(),
            self.total,
            self.allowed,
        ))
    }

    pub(crate) fn list(&self) -> Vec<BrokenImage> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.values().cloned().collect()
    }
}

fn too_many(broken: &[BrokenImage], total: usize, allowed: usize) -> DataError {
    let mut list: Vec<String> = broken
        .iter()
        .take(LISTED)
        .map(|image| format!("{}: {}", image.path, image.problem))
        .collect();
    if broken.len() > LISTED {
        list.push(format!("and {} more", broken.len() - LISTED));
    }
    DataError::Broken {
        broken: broken.len(),
        total,
        allowed,
        list: list.join("\n"),
    }
}
