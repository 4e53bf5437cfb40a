//! Targets of a classification.

use candle_core::{Device, Result, Tensor};
use wave_data::{Batch, Mix};

/// One-hot targets (b, classes) of `labels` below `classes`. Label smoothing spreads `smoothing` over all classes.
pub fn smoothed_targets(labels: &[u32], classes: usize, smoothing: f32) -> Result<Tensor> {
    mixed_targets(labels, None, classes, smoothing)
}

/// The targets (b, classes) of a batch, smoothed as by [`smoothed_targets`] and mixed like its images.
pub fn batch_targets(batch: &Batch, classes: usize, smoothing: f32) -> Result<Tensor> {
    mixed_targets(&batch.labels, batch.mix.as_ref(), classes, smoothing)
}

fn mixed_targets(
    labels: &[u32],
    mix: Option<&Mix>,
    classes: usize,
    smoothing: f32,
) -> Result<Tensor> {
    let mut targets = vec![smoothing / classes as f32; labels.len() * classes];
    for (i, &label) in labels.iter().enumerate() {
        let row = &mut targets[i * classes..][..classes];
        let mut add = |label: u32, weight: f32| match row.get_mut(label as usize) {
            Some(target) => {
                *target += weight * (1.0 - smoothing);
                Ok(())
            }
            None => candle_core::bail!("label {label} is out of range for {classes} classes"),
        };
        match mix {
            None => add(label, 1.0)?,
            Some(Mix { partners, weight }) => {
                add(label, *weight)?;
                add(labels[partners[i] as usize], 1.0 - weight)?;
            }
        }
    }
    Tensor::from_vec(targets, (labels.len(), classes), &Device::Cpu)
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
