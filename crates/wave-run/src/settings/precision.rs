//! The values of `precision` and `recompute`: how blocks are computed.

use super::PrecisionChoice;
use crate::error::request;
use anyhow::Result;
use candle_core::Device;
use wave_ops::{Mode, Precision};

/// Precision and recomputation of blocks, by settings: `auto` is the faster precision of the device.
///
/// # Errors
/// If the processor has no such products.
pub fn mode(precision: PrecisionChoice, recompute: bool, device: &Device) -> Result<Mode> {
    let simd = wave_ops::simd().map_err(|e| request(e.to_string()))?;
    let has_bf16 = simd.has_bf16() || !device.is_cpu();
    let precision = match precision {
        PrecisionChoice::Bf16 if !has_bf16 => {
            return Err(request(
                "precision = bf16: this processor has no products of bf16 (AVX512-BF16); use f32 or \
                 auto",
            ));
        }
        PrecisionChoice::Bf16 | PrecisionChoice::Auto if has_bf16 => Precision::Bf16,
        _ => Precision::F32,
    };
    Ok(Mode {
        precision,
        recompute,
    })
}
