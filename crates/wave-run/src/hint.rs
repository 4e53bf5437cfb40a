//! Suggestions for misspelt names.

/// The nearest of the `known` names with at most one wrong, missing, extra or exchanged character for every three of
/// `given`, regardless of case.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let most = given.chars().count().div_ceil(3);
    let distance = |name: &str| strsim::damerau_levenshtein(&given, &name.to_lowercase());
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// [`nearest`] as the end of an error message; empty if nothing is near.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(given, known) {
        Some(name) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_known_and_others_are_not() {
        let known = ["mimetic", "mlp-mean", "timm", "depth", "depths"];
        for (given, expected) in [
            ("mimetc", Some("mimetic")),
            ("mimteic", Some("mimetic")),
            ("MIMETIC", Some("mimetic")),
            ("tim", Some("timm")),
            ("depth", Some("depth")),
            ("xavier", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), expected, "{given}");
        }
        assert_eq!(did_you_mean("tim", known), "; did you mean timm?");
        assert_eq!(did_you_mean("xavier", known), "");
    }
}
