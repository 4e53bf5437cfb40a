//! Checks of the ranges of settings. Keys with the same name mean the same in all stages, and share a range.

use super::keys::Range;
use super::{Adapt, Condense, Eval, Expand, Finetune, Init, Speed};
use crate::error::request;
use anyhow::Result;
use serde::Serialize;
use std::sync::LazyLock;
use toml::{Table, Value};
use wave_models::refuse;

/// Keys with their minimum and maximum, as declared. Other keys may be any finite number: sizes of networks are checked
/// against each other where their shapes are made.
pub fn ranges() -> &'static [Range] {
    static ALL: LazyLock<Vec<Range>> = LazyLock::new(|| {
        [
            Condense::ranges(),
            Expand::ranges(),
            Adapt::ranges(),
            Init::ranges(),
            Finetune::ranges(),
            Eval::ranges(),
            Speed::ranges(),
        ]
        .concat()
    });
    &ALL
}

/// Settings as a TOML table, without unset keys.
pub fn to_table<T: Serialize>(settings: &T) -> Result<Table> {
    // JSON would turn NaN into an unset value, but it holds the integers that TOML does not.
    let wrong = |e: toml::ser::Error| {
        let json = serde_json::to_value(settings).unwrap_or_default();
        let mut keys = json.as_object().into_iter().flatten();
        let too_large = keys.find(|(_, value)| value.as_u64() > Some(i64::MAX as u64));
        request(match too_large {
            Some((key, value)) => format!("{key} = {value}; expected 0 to {}", i64::MAX),
            None => format!("settings as TOML: {e}"),
        })
    };
    Table::try_from(settings).map_err(wrong)
}

/// Refuses numbers outside their ranges, and NaN, anywhere in the settings, naming the first with its range.
pub fn check<T: Serialize>(settings: &T) -> Result<()> {
    check_table(&to_table(settings)?)
}

/// [`check`] of settings in a recipe.
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
    match ranges().iter().find(|(name, _)| *name == key) {
        Some((_, range)) if !range.contains(&v) => {
            let (least, most) = (range.start(), range.end());
            refuse!("{key} = {v}; expected {least} to {most}")
        }
        None if !v.is_finite() => refuse!("{key} = {v}; expected a finite number"),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "ranges_tests.rs"]
mod tests;
