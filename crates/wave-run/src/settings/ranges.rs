//! The range of every setting that is a number, by its key. Keys of different stages with one name mean
//! the same and share a range.

use crate::error::request;
use crate::table::to_table;
use anyhow::Result;
use serde::Serialize;
use toml::{Table, Value};

/// Upper bound of anything counted.
const COUNT: f64 = 1e12;

/// Key, least and most value. Keys not listed may be any finite number: sizes of networks are checked
/// against each other where their shapes are made.
pub const RANGES: &[(&str, f64, f64)] = &[
    // How long, how many.
    ("epochs", 0.0, 1e6),
    ("steps", 0.0, COUNT),
    ("batch", 1.0, 1e9),
    ("accumulate", 1.0, 1e9),
    ("train_limit", 1.0, COUNT),
    ("test_limit", 1.0, COUNT),
    ("views", 1.0, u32::MAX as f64),
    ("repeats", 1.0, 1000.0),
    ("checkpoint_minutes", 0.0, 1e6),
    ("test_epochs", 0.0, 1e6),
    ("patience", 1.0, 1e6),
    ("time_limit", 0.0, 1e6),
    ("minutes", 0.01, 1e6),
    // Optimisation.
    ("lr", 0.0, 100.0),
    ("min_lr_ratio", 0.0, 1.0),
    ("warmup_epochs", 0.0, 1e6),
    ("weight_decay", 0.0, 100.0),
    ("clip", 1e-9, 1e9),
    ("ema", 0.0, 1.0),
    ("layer_decay", 0.0, 1.0),
    ("drop_path", 0.0, 0.99),
    ("label_smoothing", 0.0, 1.0),
    // Augmentation and normalisation.
    ("crop_padding", 0.0, 1e6),
    ("resized_crop", 1e-4, 1.0),
    ("colour_jitter", 0.0, 1.0),
    ("erasing", 0.0, 1.0),
    ("mixup", 0.0, 100.0),
    ("cutmix", 0.0, 100.0),
    ("mean", 0.0, 1.0),
    ("std", 1e-4, 1.0),
    // Condensation and distillation.
    ("kl_weight", 0.0, 1e6),
    ("ce_weight", 0.0, 1e6),
    ("temperature", 0.01, 1000.0),
    ("scaler_lr_ratio", 0.0, 1000.0),
    ("head_lr_ratio", 0.0, 1000.0),
    ("growth", 0.0, 1.0),
    ("growth_power", 0.01, 100.0),
    ("variant_share", 0.0, 1.0),
    ("mlp_ratios", 0.001, 1000.0),
    ("head_widths", 1.0, 1e6),
    ("image_sizes", 1.0, 100_000.0),
    ("patches", 1.0, 100_000.0),
    ("template_size", 1.0, 65_536.0),
    ("templates", 1.0, 1e6),
    ("template_rank", 0.0, 65_536.0),
    ("anchors", 1.0, 10_000.0),
    ("depths", 1.0, 10_000.0),
    ("widths", 1.0, 1e6),
    ("mlp_ratio", 0.001, 1000.0),
    ("max_latency_ms", 1e-9, 1e9),
    // Starts.
    ("gamma", 0.0, 1.0),
    ("layer_scale", 0.0, 1.0),
    ("mlp_scalar", -1000.0, 1000.0),
];

/// Refuses numbers outside their ranges, and NaN, anywhere in the settings.
///
/// # Errors
/// Naming the first with its range.
pub fn check<T: Serialize>(settings: &T) -> Result<()> {
    check_table(&to_table(settings)?)
}

/// [`check`] of settings in a recipe.
///
/// # Errors
/// As [`check`].
pub fn check_table(table: &Table) -> Result<()> {
    table.iter().try_for_each(|(key, value)| number(key, value))
}

fn number(key: &str, value: &Value) -> Result<()> {
    let v = match value {
        Value::Integer(n) => *n as f64,
        Value::Float(v) => *v,
        Value::Array(values) => return values.iter().try_for_each(|v| number(key, v)),
        Value::Table(table) => return check_table(table),
        _ => return Ok(()),
    };
    match RANGES.iter().find(|(name, ..)| *name == key) {
        Some((_, least, most)) if !(*least..=*most).contains(&v) => {
            Err(request(format!("{key} = {v}; expected {least} to {most}")))
        }
        None if !v.is_finite() => Err(request(format!("{key} = {v}; expected a finite number"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Option<String> {
        let table: Table = text.parse().unwrap();
        check_table(&table).err().map(|error| error.to_string())
    }

    #[test]
    fn a_number_outside_its_range_is_named_with_it() {
        for (key, least, most) in RANGES {
            for wrong in ["nan".into(), "-inf".into(), format!("{:e}", most * 2.0)] {
                let said = check(&format!("{key} = {wrong}")).expect(key);
                assert!(
                    said.starts_with(&format!("{key} = ")) && said.contains(&format!("{least} to")),
                    "{said}"
                );
            }
            assert_eq!(check(&format!("{key} = {least:?}")), None);
            assert_eq!(check(&format!("{key} = {most:?}")), None);
        }
    }

    #[test]
    fn arrays_tables_and_other_keys_are_looked_into() {
        for text in [
            "mean = [0.5, nan]",
            "[auxiliary]\nmlp_ratio = inf",
            "qk = [inf, 1.0]",
        ] {
            assert!(check(text).is_some(), "{text}");
        }
        assert_eq!(check("qk = [-5.0, 1.0]\ndata = \"shapes\""), None);
    }
}
