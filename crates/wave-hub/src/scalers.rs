//! `scalers.safetensors`: the scalers that an expanded model was composed from, next to its weights.
//!
//! It holds `scalers.{layer}.{part}` for every layer and part, and nothing else.

use std::path::Path;

use crate::directory::{CONFIG_FILE, SCALERS_FILE, check_digest};
use crate::templates::PARTS;
use crate::tensors::read_weights;
use crate::versioned::check_names;
use crate::{HubError, Weights};

/// The scalers of a model of `depth` layers in `dir`, if it has any.
///
/// # Errors
/// Also for a tensor that is missing or unexpected.
pub fn read_scalers(dir: &Path, depth: usize) -> Result<Option<Weights>, HubError> {
    let path = dir.join(SCALERS_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let weights = read_weights(&path)?;
    let expected = (0..depth).flat_map(|l| PARTS.map(|part| format!("scalers.{l}.{part}")));
    check_names(&expected.collect(), &weights).map_err(|found| {
        let remedy = format!("it does not belong to the {CONFIG_FILE} beside it: copy both again");
        HubError::malformed(&path, found, remedy)
    })?;
    check_digest(dir, SCALERS_FILE)?;
    Ok(Some(weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_refused, weights};
    use crate::write_tensors;

    #[test]
    fn scalers_are_those_of_all_layers_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        assert!(read_scalers(root.path(), 2).unwrap().is_none());
        let names: Vec<String> = (0..2)
            .flat_map(|l| PARTS.map(|part| format!("scalers.{l}.{part}")))
            .collect();
        let shapes: Vec<(&str, &[usize])> = names.iter().map(|n| (n.as_str(), &[2][..])).collect();
        let whole = weights(&shapes);
        let write = |weights: &Weights| {
            let path = root.path().join(SCALERS_FILE);
            write_tensors(&path, weights, &Default::default()).unwrap();
        };
        write(&whole);
        assert!(read_scalers(root.path(), 2).unwrap().is_some());
        for (depth, part) in [(1, "scalers.1.fc1"), (3, "scalers.2.fc1")] {
            check_refused(read_scalers(root.path(), depth), &[part]);
        }
        let mut wrong = whole.clone();
        let t = wrong.remove("scalers.1.proj").unwrap();
        write(&wrong);
        let missing = ["`scalers.1.proj` is missing", "scalers.safetensors"];
        check_refused(read_scalers(root.path(), 2), &missing);
        wrong.insert("scalers.1.projx".into(), t);
        write(&wrong);
        check_refused(read_scalers(root.path(), 2), &["`scalers.1.projx`"]);
    }
}
