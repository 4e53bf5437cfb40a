//! Differences between the tensors of a weight map and those expected.

use std::collections::BTreeMap;

use crate::Weights;

/// The most names of a kind in an error.
const LISTED: usize = 5;

/// Checks that `weights` are exactly the tensors of `expected`, by names and shapes. The error lists all
/// that are missing, not expected or of another shape.
pub(crate) fn check_tensors(
    weights: &Weights,
    expected: &[(String, Vec<usize>)],
) -> Result<(), String> {
    let shapes: BTreeMap<&str, &[usize]> = expected
        .iter()
        .map(|(name, shape)| (name.as_str(), shape.as_slice()))
        .collect();
    let missing = shapes.keys().filter(|name| !weights.contains_key(**name));
    let extra = weights
        .keys()
        .filter(|name| !shapes.contains_key(name.as_str()));
    let misshaped = weights.iter().filter_map(|(name, tensor)| {
        let shape = *shapes.get(name.as_str())?;
        let found = tensor.dims();
        (found != shape).then(|| format!("`{name}` has shape {found:?}, expected {shape:?}"))
    });
    let found: Vec<String> = [
        listed("missing: ", missing.map(|name| format!("`{name}`"))),
        listed("not expected: ", extra.map(|name| format!("`{name}`"))),
        listed("", misshaped),
    ]
    .into_iter()
    .flatten()
    .collect();
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("tensors differ: {}", found.join("; ")))
    }
}

fn listed(what: &str, items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    let mut text = items[..items.len().min(LISTED)].join(", ");
    if items.len() > LISTED {
        text += &format!(" and {} more", items.len() - LISTED);
    }
    (!items.is_empty()).then(|| format!("{what}{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::weights;

    #[test]
    fn the_right_tensors_pass_and_every_difference_is_named() {
        let expected: Vec<(String, Vec<usize>)> =
            [("a", vec![2]), ("b", vec![3, 1]), ("c", vec![])]
                .map(|(name, shape)| (name.to_owned(), shape))
                .to_vec();
        let good = weights(&[("a", &[2]), ("b", &[3, 1]), ("c", &[])]);
        check_tensors(&good, &expected).unwrap();
        let bad = weights(&[("a", &[2]), ("b", &[1, 3]), ("z", &[1])]);
        let found = check_tensors(&bad, &expected).unwrap_err();
        for difference in [
            "missing: `c`",
            "not expected: `z`",
            "`b` has shape [1, 3], expected [3, 1]",
        ] {
            assert!(found.contains(difference), "{found}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let all = weights(&[
            ("a", &[1]),
            ("b", &[1]),
            ("c", &[1]),
            ("d", &[1]),
            ("e", &[1]),
            ("f", &[1]),
            ("g", &[1]),
        ]);
        let found = check_tensors(&all, &[]).unwrap_err();
        assert!(found.ends_with("`e` and 2 more"), "{found}");
    }
}
