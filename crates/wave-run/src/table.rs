//! Settings as TOML.

use crate::error::request;
use anyhow::Result;
use serde::Serialize;
use toml::Table;

/// Settings as a TOML table, without unset keys.
pub fn to_table<T: Serialize>(settings: &T) -> Result<Table> {
    // JSON would turn NaN into an unset value.
    Table::try_from(settings).map_err(|e| request(format!("settings as TOML: {e}")))
}
