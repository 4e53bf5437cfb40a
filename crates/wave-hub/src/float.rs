//! The element type that weights have on disk.

use std::fmt;
use std::path::Path;

use candle_core::{DType, Tensor};

use crate::{HubError, Weights};

/// The precision of floating-point weights on disk. In memory they are f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FloatType {
    /// 32 bits: nothing is lost.
    #[default]
    F32,
    /// 16 bits, 11 of them precision: up to 65504.
    F16,
    /// 16 bits, 8 of them precision: the range of f32.
    Bf16,
}

impl FloatType {
    /// Bytes per number.
    pub fn bytes(self) -> usize {
        self.dtype().size_in_bytes()
    }

    /// Weights as they read back when they are stored as this type, if it can hold them: rounded to it, and f32 again.
    pub fn rounded(self, weights: &Weights) -> Result<Weights, HubError> {
        let path = Path::new("model.safetensors");
        cast(path, &cast(path, weights, self)?, Self::F32)
    }

    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }
}

impl fmt::Display for FloatType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype().as_str())
    }
}

/// `weights` with their floating-point tensors converted to `float`, for writing to `path`.
/// Integer tensors stay as they are. Refuses values that `float` cannot hold.
pub(crate) fn cast(path: &Path, weights: &Weights, float: FloatType) -> Result<Weights, HubError> {
    let convert = |(name, tensor): (&String, &Tensor)| {
        let failed = || HubError::tensor(path, name);
        if !tensor.dtype().is_float() || tensor.dtype() == float.dtype() {
            return Ok((name.clone(), tensor.clone()));
        }
        let narrow = tensor.to_dtype(float.dtype()).map_err(failed())?;
        if largest(&narrow).map_err(failed())?.is_infinite() {
            let before = largest(tensor).map_err(failed())?;
            if before.is_finite() {
                let found = format!(
                    "tensor `{name}` holds {before:e}, which is outside the range of {float}"
                );
                return Err(HubError::unwritable(path, found, "write bf16 or f32"));
            }
        }
        Ok((name.clone(), narrow))
    };
    weights.iter().map(convert).collect()
}

/// The largest magnitude; infinite once any value is, 0 for an empty tensor.
pub(crate) fn largest(tensor: &Tensor) -> candle_core::Result<f32> {
    let values = tensor.to_dtype(DType::F32)?.flatten_all()?;
    let values = values.to_vec1::<f32>()?;
    Ok(values.iter().fold(0.0, |max: f32, v| max.max(v.abs())))
}
