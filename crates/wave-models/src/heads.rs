//! The number of attention heads of transformers, which cannot be inferred from the weights.

use crate::Checked;
use crate::check::refuse_value;
use serde_json::{Map, Value};

/// Number of heads by parts of timm's names; the first match counts.
const WORDS: [(&str, usize); 24] = [
    ("base_patch16_gap_", 16),
    ("_plus_240", 14),
    ("_plus_256", 14),
    ("_plus_clip_240", 14),
    ("_huge_plus_", 20),
    ("_so150m2_", 13),
    ("_so150m_", 14),
    ("_so400m_", 16),
    ("_intern300m_", 16),
    ("_7b_", 32),
    ("_giantopt_", 16),
    ("_betwixt_", 10),
    ("_mediumd_", 8),
    ("_xsmall_", 4),
    ("_wee_", 4),
    ("_tiny_", 3),
    ("_little_", 5),
    ("_small_", 6),
    ("_medium_", 8),
    ("_base_", 12),
    ("_large_", 16),
    ("_huge_", 16),
    ("_giant_", 16),
    ("_gigantic_", 16),
];

/// Family prefixes of timm's vision transformer names, before a size such as `_tiny_`.
const FAMILIES: [&str; 8] = [
    "vit", "deit", "deit3", "beit", "beitv2", "beit3", "eva", "eva02",
];

/// A transformer's number of heads, if its description gives it: `num_heads` in timm's arguments,
/// `num_attention_heads` in transformers', or the size in timm's registered name.
pub fn known_heads(architecture: &str, model_args: &Map<String, Value>) -> Option<usize> {
    of_width(architecture, model_args, None)
}

/// Refuses a configured number of heads that is no whole number of at least 1; null counts as absent.
pub(crate) fn check(key: &str, said: Option<&Value>) -> Checked<()> {
    match said {
        None | Some(Value::Null) => Ok(()),
        Some(n) if n.as_u64().is_some_and(|n| n > 0) => Ok(()),
        Some(odd) => refuse_value(key, odd, "a whole number of at least 1"),
    }
}

/// [`known_heads`] of a transformer of this width, if it is known.
pub(crate) fn of_width(
    architecture: &str,
    model_args: &Map<String, Value>,
    width: Option<usize>,
) -> Option<usize> {
    let size = |key: &str| usize::try_from(model_args.get(key)?.as_u64()?).ok();
    let said = size("num_heads").or(size("num_attention_heads"));
    let name = architecture.split('.').next().unwrap_or_default();
    said.or_else(|| of_name(name, width))
}

/// The number of heads that timm registers under a name.
fn of_name(name: &str, width: Option<usize>) -> Option<usize> {
    let name = match name.strip_prefix("flexivit_") {
        Some(size) => &format!("vit_{size}_"),
        None => name,
    };
    let family = name.split('_').next().unwrap_or_default();
    if name == "test_vit" || name == "test_vit2" {
        return Some(2);
    }
    if !FAMILIES.contains(&family) {
        return None;
    }
    // Giants have a width of 1,408 with heads of 88 channels, or 1,536 with heads of 64.
    if name.contains("_giant_") && width == Some(1536) {
        return Some(24);
    }
    let found = WORDS.iter().find(|(word, _)| name.contains(word));
    found.map(|(_, heads)| *heads)
}
