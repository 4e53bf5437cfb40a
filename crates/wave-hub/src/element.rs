//! Element types of weights that are read.

use std::path::Path;

use candle_core::DType;
use safetensors::tensor::Dtype;

use crate::HubError;

/// The element type in memory of a tensor of this name, type and shape in a file.
pub(crate) fn type_in_memory(
    path: &Path,
    name: &str,
    dtype: Dtype,
    shape: &[usize],
) -> Result<DType, HubError> {
    match dtype {
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(DType::F32),
        Dtype::I64 if is_step_count(name, shape) || is_places(name) => Ok(DType::I64),
        other => Err(HubError::malformed(
            path,
            format!("tensor `{name}` of shape {shape:?} has type {other}"),
            "weights are F32, F16 or BF16 (and I64 only as `position_ids` or the scalar \
             `num_batches_tracked`): convert or drop the tensor",
        )),
    }
}

/// True if a tensor of this name holds position indices, as in older files of transformers and timm.
fn is_places(name: &str) -> bool {
    let last = name.rsplit('.').next();
    last.is_some_and(|last| ["position_ids", "relative_position_index"].contains(&last))
}

pub(crate) fn is_step_count(name: &str, shape: &[usize]) -> bool {
    shape.is_empty() && name.rsplit('.').next() == Some("num_batches_tracked")
}
