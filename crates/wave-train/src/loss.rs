//! Targets of a classification.

use candle_core::{Device, Result, Tensor};
use wave_data::Batch;

/// One-hot targets (b, classes) with label smoothing: `smoothing` is spread over all classes.
///
/// # Errors
/// If a label is not below `classes`.
pub fn smoothed_targets(labels: &[u32], classes: usize, smoothing: f32) -> Result<Tensor> {
    let mut targets = vec![smoothing / classes as f32; labels.len() * classes];
    for (row, &label) in targets.chunks_exact_mut(classes).zip(labels) {
        match row.get_mut(label as usize) {
            Some(target) => *target += 1.0 - smoothing,
            None => candle_core::bail!("label {label} is out of range for {classes} classes"),
        }
    }
    Tensor::from_vec(targets, (labels.len(), classes), &Device::Cpu)
}

/// The targets (b, classes) of a batch, smoothed as by [`smoothed_targets`] and mixed like its
/// images.
///
/// # Errors
/// If a label is not below `classes`.
pub fn batch_targets(batch: &Batch, classes: usize, smoothing: f32) -> Result<Tensor> {
    if let Some(label) = batch.labels.iter().find(|l| **l as usize >= classes) {
        candle_core::bail!("label {label} is out of range for {classes} classes");
    }
    let targets = batch.soft_targets(classes, smoothing);
    Tensor::from_vec(targets, (batch.labels.len(), classes), &Device::Cpu)
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
