//! Weight maps as safetensors files. Weights are f32 in memory; f16 and bf16 are widened. Integers are batch
//! normalisation's step count, and the position indices of older files, which are read only. Other types are refused: an
//! f64 or an integer tensor in a weight file is a mistake that is cheaper to report here than in a matrix product.

use std::io;
use std::path::Path;

use candle_core::safetensors::Load;
use candle_core::{DType, Device, Tensor};
use safetensors::tensor::{self, Dtype};
use sha2::{Digest, Sha256};

use crate::atomic::Staged;
use crate::digest::hex;
use crate::element::{is_step_count, type_in_memory};
use crate::files::read_bytes;
use crate::header::{self, METADATA, Parsed};
use crate::{HubError, Metadata, Weights, pickle};

/// The tensors and the metadata of a safetensors file, or the tensors of a PyTorch `.pth` file, in CPU memory.
pub fn read_tensors(path: &Path) -> Result<(Weights, Metadata), HubError> {
    if pickle::is_archive(path)? {
        return Ok((pickle::read(path)?, Metadata::new()));
    }
    let bytes = read_bytes(path)?;
    loaded(path, header::parse(path, &bytes)?)
}

/// The tensors and the metadata of a parsed file.
pub(crate) fn loaded(path: &Path, parsed: Parsed) -> Result<(Weights, Metadata), HubError> {
    let mut weights = Weights::new();
    for (name, view) in parsed.tensors {
        let kept = type_in_memory(path, &name, view.dtype(), view.shape())?;
        let tensor = view.load(&Device::Cpu).and_then(|t| t.to_dtype(kept));
        weights.insert(name.clone(), tensor.map_err(HubError::tensor(path, &name))?);
    }
    Ok((weights, parsed.metadata))
}

/// [`read_tensors`] of a model or templates, without NaN or infinity.
pub fn read_weights(path: &Path) -> Result<Weights, HubError> {
    let (weights, _) = read_tensors(path)?;
    check_finite(path, &weights)?;
    Ok(weights)
}

pub(crate) fn check_finite(path: &Path, weights: &Weights) -> Result<(), HubError> {
    for (name, tensor) in weights {
        let odd = not_finite(tensor).map_err(HubError::tensor(path, name))?;
        if odd > 0 {
            let n = tensor.elem_count();
            let found = format!("tensor `{name}` holds NaN or infinite values ({odd} of {n})");
            let remedy =
                "use an earlier state of the weights, or train again with a lower learning rate";
            return Err(HubError::malformed(path, found, remedy));
        }
    }
    Ok(())
}

/// The number of values of an f32 tensor that are NaN or infinite; 0 for other element types.
pub fn not_finite(tensor: &Tensor) -> candle_core::Result<usize> {
    if tensor.dtype() != DType::F32 {
        return Ok(0);
    }
    let values = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(values.iter().filter(|value| !value.is_finite()).count())
}

/// Writes a safetensors file, whole or not at all. The same weights and metadata give the same
/// bytes, whatever the tensors' strides and device.
///
/// Tensors lie in name order, except that the widest element type comes first, as in files of the format's own writers,
/// so that each tensor is aligned.
pub fn write_tensors(path: &Path, weights: &Weights, metadata: &Metadata) -> Result<(), HubError> {
    stage(path, weights, metadata, |_| ())?.commit_synced()
}

/// [`write_tensors`] with the metadata that PyTorch's tools expect, up to the rename; also the file's SHA-256.
pub(crate) fn stage_weights(path: &Path, weights: &Weights) -> Result<(Staged, String), HubError> {
    let metadata = Metadata::from([("format".to_owned(), "pt".to_owned())]);
    let mut hasher = Sha256::new();
    let file = stage(path, weights, &metadata, |bytes| hasher.update(bytes))?;
    Ok((file, hex(&hasher.finalize())))
}

/// Stages a file, and shows its bytes to `see`.
fn stage(
    path: &Path,
    weights: &Weights,
    metadata: &Metadata,
    mut see: impl FnMut(&[u8]),
) -> Result<Staged, HubError> {
    check_writable(path, weights)?;
    let order = ordered(weights);
    let header = header::build(metadata, &order);
    Staged::new(path, |file| {
        fill(path, &header, &order, |bytes| {
            see(bytes);
            file.write_all(bytes)
        })
    })
}

/// The tensors in the order of their data.
pub(crate) fn ordered(weights: &Weights) -> Vec<(&String, &Tensor)> {
    let mut order: Vec<_> = weights.iter().collect();
    // Stable, so the names stay in order within a type.
    order.sort_by_key(|(_, tensor)| std::cmp::Reverse(Dtype::from(tensor.dtype())));
    order
}

pub(crate) fn fill(
    path: &Path,
    header: &[u8],
    order: &[(&String, &Tensor)],
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), HubError> {
    let mut put = |bytes: &[u8]| write(bytes).map_err(HubError::io("write", path));
    put(header)?;
    for (name, tensor) in order {
        put(&raw(tensor).map_err(HubError::tensor(path, name))?)?;
    }
    Ok(())
}

/// The bytes of a tensor, row by row.
pub(crate) fn raw(tensor: &Tensor) -> candle_core::Result<Vec<u8>> {
    let tensor = tensor.to_device(&Device::Cpu)?.contiguous()?;
    Ok(tensor::View::data(&tensor).into_owned())
}

fn check_writable(path: &Path, weights: &Weights) -> Result<(), HubError> {
    for (name, tensor) in weights {
        if name == METADATA {
            let found = format!("a tensor is named `{METADATA}`, which the format reserves");
            return Err(HubError::unwritable(path, found, "rename the tensor"));
        }
        match tensor.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => {}
            DType::I64 if is_step_count(name, tensor.dims()) => {}
            other => {
                let found = format!("tensor `{name}` has type {other:?}");
                return Err(HubError::unwritable(path, found, "convert it to f32"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
