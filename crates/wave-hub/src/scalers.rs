//! `scalers.safetensors`: the scalers that an expanded model was composed from, next to its weights.
//!
//! It holds `scalers.{layer}.{part}` for every layer and part, and nothing else.

use std::path::Path;

use safetensors::tensor::Dtype;

use crate::directory::{SCALERS_FILE, check_digest};
use crate::files::read_bytes;
use crate::header;
use crate::templates::PARTS;
use crate::tensors::{check_finite, loaded};
use crate::versioned::{check_names, stranger};
use crate::{HubError, Weights};

/// The scalers of a model of `depth` layers in `dir`, if it has any: those of each layer, and no other tensor.
pub fn read_scalers(dir: &Path, depth: usize) -> Result<Option<Weights>, HubError> {
    let path = dir.join(SCALERS_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let weights = read_shaped(&path)?;
    let expected = (0..depth).flat_map(|l| PARTS.map(|part| format!("scalers.{l}.{part}")));
    let checked = check_names(&expected.collect(), &weights);
    checked.map_err(|found| stranger(&path, found))?;
    check_digest(dir, SCALERS_FILE)?;
    Ok(Some(weights))
}

/// The tensors of a file of scalers, (N, rows/t, cols/t), which are f32 even if the weights beside them are narrower.
pub(crate) fn read_shaped(path: &Path) -> Result<Weights, HubError> {
    let bytes = read_bytes(path)?;
    let parsed = header::parse(path, &bytes)?;
    for (name, t) in &parsed.tensors {
        let (shape, dtype) = (t.shape(), t.dtype());
        if shape.len() != 3 || shape.contains(&0) || dtype != Dtype::F32 {
            let found = format!(
                "tensor `{name}` has shape {shape:?} and type {dtype}, expected \
                 (N, rows/t, cols/t) and F32"
            );
            let remedy = "expand the model again, or remove the file";
            return Err(HubError::malformed(path, found, remedy));
        }
    }
    let (weights, _) = loaded(path, parsed)?;
    check_finite(path, &weights)?;
    Ok(weights)
}

#[cfg(test)]
#[path = "scalers_tests.rs"]
mod tests;
