//! The values of `precision` and `recompute`: how blocks are computed.

use crate::device::device;
use crate::error::request;
use anyhow::Result;
use wave_ops::{Mode, Precision};

/// How blocks are computed, by settings.
pub fn mode(precision: Option<&str>, recompute: Option<bool>) -> Result<Mode> {
    Ok(Mode {
        precision: self::precision(precision)?,
        recompute: recompute.unwrap_or(false),
    })
}

/// The precision that a setting names: f32, bf16, or auto for the faster one of the device.
fn precision(name: Option<&str>) -> Result<Precision> {
    let simd = wave_ops::simd().map_err(|e| request(e.to_string()))?;
    let has_bf16 = simd.has_bf16() || !device().is_cpu();
    match name.unwrap_or("f32") {
        "f32" => Ok(Precision::F32),
        "bf16" if has_bf16 => Ok(Precision::Bf16),
        "bf16" => Err(request(
            "precision = bf16: this processor has no products of bf16 (AVX512-BF16); use f32 or \
             auto",
        )),
        "auto" if has_bf16 => Ok(Precision::Bf16),
        "auto" => Ok(Precision::F32),
        other => Err(request(format!(
            "precision = {other}; expected f32, bf16 or auto"
        ))),
    }
}
