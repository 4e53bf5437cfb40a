//! Tables of numbers that are not weights, as safetensors files with a checksum.
//!
//! Unlike weights, a table keeps each tensor's own element type, integers included. Its metadata
//! holds, under `sha256`, the digest of everything else in the file but the tensors' names and
//! shapes: the rest of the metadata, a line `"key":"value"` each, keys in order, then the tensors' bytes as they lie.

use std::path::Path;

use candle_core::Device;
use candle_core::safetensors::Load;
use sha2::{Digest, Sha256};

use crate::atomic::Staged;
use crate::digest::hex;
use crate::files::read_bytes;
use crate::tensors::{fill, ordered, raw};
use crate::{HubError, Metadata, Weights, header};

/// The metadata's key of the checksum.
const CHECKSUM: &str = "sha256";

/// Writes a table into a directory that exists, whole or not at all. The same content gives the same bytes.
pub fn write_table(path: &Path, table: &Weights, metadata: &Metadata) -> Result<(), HubError> {
    let order = ordered(table);
    let mut hasher = Sha256::new();
    hasher.update(canonical(metadata).as_bytes());
    for (name, tensor) in &order {
        hasher.update(raw(tensor).map_err(HubError::tensor(path, name))?);
    }
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUM.into(), hex(&hasher.finalize()));
    let header = header::build(&metadata, &order);
    let staged = Staged::beside(path, |file| {
        fill(path, &header, &order, |bytes| file.write_all(bytes))
    });
    staged?.commit_synced()
}

/// Reads what [`write_table`] wrote, and compares the checksum: each tensor in its own type, and the other metadata.
pub fn read_table(path: &Path) -> Result<(Weights, Metadata), HubError> {
    let remedy = "the file is damaged: remove it or copy it again";
    let damaged = |found: String| HubError::malformed(path, found, remedy);
    let bytes = read_bytes(path)?;
    let mut parsed = header::parse(path, &bytes)?;
    let Some(expected) = parsed.metadata.remove(CHECKSUM) else {
        return Err(damaged("has no checksum in its metadata".into()));
    };
    let mut hasher = Sha256::new();
    hasher.update(canonical(&parsed.metadata).as_bytes());
    hasher.update(parsed.data);
    let found = hex(&hasher.finalize());
    if found != expected {
        let found = format!("its content has the SHA-256 {found}, expected {expected}");
        return Err(damaged(found));
    }
    let mut table = Weights::new();
    for (name, view) in parsed.tensors {
        let tensor = view.load(&Device::Cpu);
        table.insert(name.clone(), tensor.map_err(HubError::tensor(path, &name))?);
    }
    Ok((table, parsed.metadata))
}

fn canonical(metadata: &Metadata) -> String {
    let line = |(key, value): (&String, &String)| format!("{key:?}:{value:?}\n");
    metadata.iter().map(line).collect()
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
