//! Reading and writing the directories whose format is wave's own: templates and deltas.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::atomic::Staged;
use crate::directory::{CONFIG_FILE, Kind, promised_file, read_config, write_artefact};
use crate::float::cast;
use crate::tensors::read_weights;
use crate::{FloatType, HubError, Weights};

/// The version of templates and deltas that is read and written here.
pub const FORMAT_VERSION: u32 = 1;

/// The `config.json` of such a directory.
pub(crate) trait Versioned: Serialize + DeserializeOwned {
    const KIND: Kind;
    /// The file of its weights.
    const FILE: &'static str;
    /// The stage that writes it.
    const VERB: &'static str;

    /// Refuses an invalid configuration.
    fn check(&self) -> Result<(), String>;

    /// Refuses tensors that contradict the configuration, and tensors that it does not list.
    fn check_weights(&self, weights: &Weights) -> Result<(), String>;
}

pub(crate) fn read<C: Versioned>(dir: &Path) -> Result<(C, Weights), HubError> {
    let (kind, config) = read_config(dir)?;
    if kind != C::KIND {
        let found = format!("is {kind}, expected {}", C::KIND);
        let remedy = format!("name the directory that `wave {}` wrote", C::VERB);
        return Err(HubError::malformed(dir, found, remedy));
    }
    let path = dir.join(CONFIG_FILE);
    check_version(&path, config.get("format_version"))?;
    let config: C = serde_json::from_value(config).map_err(|cause| {
        let found = format!("is not the configuration of {}: {cause}", C::KIND);
        let remedy = format!("correct the file or {} again", C::VERB);
        HubError::malformed(&path, found, remedy)
    })?;
    let checked = config.check();
    checked.map_err(|found| HubError::malformed(&path, found, "correct the file"))?;
    let remedy = format!("copy it there, or {} again", C::VERB);
    let path = promised_file(dir, C::FILE, &remedy)?;
    let weights = read_weights(&path)?;
    let checked = config.check_weights(&weights);
    checked.map_err(|found| stranger(&path, found))?;
    Ok((config, weights))
}

/// The error of a file that contradicts its configuration.
pub(crate) fn stranger(path: &Path, found: String) -> HubError {
    let remedy = format!("it does not belong to the {CONFIG_FILE} beside it: copy both again");
    HubError::malformed(path, found, remedy)
}

/// Writes the directory, with `more` files.
pub(crate) fn write<C: Versioned>(
    dir: &Path,
    config: &C,
    weights: &Weights,
    float: FloatType,
    card: &str,
    more: Vec<Staged>,
) -> Result<(), HubError> {
    let path = dir.join(CONFIG_FILE);
    let refuse = |path: &Path, found: String| HubError::unwritable(path, found, "correct it");
    config.check().map_err(|found| refuse(&path, found))?;
    let path = dir.join(C::FILE);
    let checked = config.check_weights(weights);
    checked.map_err(|found| refuse(&path, found))?;
    let weights = cast(&path, weights, float)?;
    write_artefact(dir, &[(C::FILE, Some(&weights))], card, more, config)
}

/// Called before the rest of the file is used: other versions may have another format.
fn check_version(path: &Path, version: Option<&Value>) -> Result<(), HubError> {
    let number = version.and_then(Value::as_u64);
    let remedy = match number.cmp(&Some(u64::from(FORMAT_VERSION))) {
        Ordering::Equal => return Ok(()),
        Ordering::Greater => "use the version of wave that wrote it, or a newer one",
        Ordering::Less => "make it again",
    };
    let said = version.map_or_else(|| "missing".to_owned(), Value::to_string);
    let found = format!("`format_version` is {said}, expected {FORMAT_VERSION}");
    Err(HubError::malformed(path, found, remedy))
}

/// Refuses sizes of 0.
pub(crate) fn check_sizes(sizes: &[(&str, usize)]) -> Result<(), String> {
    match sizes.iter().find(|(_, value)| *value == 0) {
        Some((name, _)) => Err(format!("`{name}` is 0, expected at least 1")),
        None => Ok(()),
    }
}

/// Checks that the names of the weights are exactly those expected: a lookup by name would miss unexpected ones.
pub(crate) fn check_names(expected: &BTreeSet<String>, weights: &Weights) -> Result<(), String> {
    // A misnamed tensor is reported by its own name, not as a missing one.
    if let Some(name) = weights.keys().find(|name| !expected.contains(*name)) {
        return Err(format!(
            "holds tensor `{name}`, which {CONFIG_FILE} does not provide for"
        ));
    }
    match expected.iter().find(|name| !weights.contains_key(*name)) {
        Some(name) => Err(format!(
            "tensor `{name}` is missing, but {CONFIG_FILE} requires it"
        )),
        None => Ok(()),
    }
}
