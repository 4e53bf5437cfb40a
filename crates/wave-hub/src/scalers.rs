//! `scalers.safetensors`: the scalers that an expanded model was composed from, next to its weights.
//!
//! It holds `scalers.{layer}.{part}` for every layer and part, and nothing else.

use std::path::Path;

use crate::directory::{SCALERS_FILE, check_digest};
use crate::templates::PARTS;
use crate::tensors::read_weights;
use crate::versioned::{check_names, stranger};
use crate::{HubError, Weights};

/// The scalers of a model of `depth` layers in `dir`, if it has any: those of each layer, and no other tensor.
pub fn read_scalers(dir: &Path, depth: usize) -> Result<Option<Weights>, HubError> {
    let path = dir.join(SCALERS_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let weights = read_weights(&path)?;
    let expected = (0..depth).flat_map(|l| PARTS.map(|part| format!("scalers.{l}.{part}")));
    let checked = check_names(&expected.collect(), &weights);
    checked.map_err(|found| stranger(&path, found))?;
    check_digest(dir, SCALERS_FILE)?;
    Ok(Some(weights))
}

#[cfg(test)]
#[path = "scalers_tests.rs"]
mod tests;
