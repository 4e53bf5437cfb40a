//! The prefixes of names on a hub, which builds without the feature `hub` know too.

/// Ours, and timm's.
const PREFIXES: [&str; 2] = ["hf:", "hf-hub:"];

/// The rest of a name on a hub, `OWNER/NAME[@REV]`; `None` for other texts, and for two prefixes in a row.
pub fn on_hub(text: &str) -> Option<&str> {
    let is_prefixed = |text: &str| PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    let rest = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix));
    rest.filter(|rest| !is_prefixed(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_prefix_is_removed() {
        assert_eq!(on_hub("hf:o/n"), Some("o/n"));
        assert_eq!(on_hub("hf-hub:o/n@v1"), Some("o/n@v1"));
        for other in ["o/n", "hf", "./hf:o/n", "hf:hf:o/n", "hf-hub:hf:o/n"] {
            assert_eq!(on_hub(other), None, "{other}");
        }
    }
}
