//! Accuracy and loss of a classifier.

use crate::{Examples, Ranks, TrainError};
use candle_core::{Device, Tensor};
use wave_data::{Batch, DataError};

/// Accuracy and loss over a set of images.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Share of images whose label has the highest score.
    pub top1: f64,
    /// Share of images whose label is among the five highest.
    pub top5: f64,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// Number of images.
    pub images: usize,
}

/// Scores of `logits` (images (b, c, h, w) to (b, classes)) over the batches of all ranks. Fails if there are no
/// images at all. Ties go to the first class, so that a constant classifier is not right every time.
pub fn evaluate(
    ranks: &dyn Ranks,
    batches: impl Iterator<Item = Result<Batch, DataError>>,
    mut logits: impl FnMut(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<Scores, TrainError> {
    let mut tally = Tally::default();
    for batch in batches {
        let batch = batch?;
        let z = logits(&batch.input()?)?.to_device(&Device::Cpu)?;
        let z = z.to_vec2::<f32>()?;
        for (z, &label) in z.iter().zip(&batch.labels) {
            tally.add(z, label)?;
        }
    }
    let scores = tally.scores(ranks);
    if scores.images == 0 {
        let problem = "there are no test images; choose data with some".to_owned();
        return Err(DataError::Settings(problem).into());
    }
    Ok(scores)
}

/// Sums over predictions: top-1 hits, top-5 hits, losses, and the count.
#[derive(Default)]
pub struct Tally([f64; 4]);

impl Tally {
    /// Adds one prediction. Returns true if the label has the highest of the scores `z`; ties go to the first class.
    pub fn add(&mut self, z: &[f32], label: u32) -> Result<bool, TrainError> {
        let label = label as usize;
        let Some(&own) = z.get(label) else {
            let text = format!("label {label} is out of range for {} classes", z.len());
            return Err(candle_core::Error::Msg(text).into());
        };
        let beats = |&(i, v): &(usize, &f32)| *v > own || v.is_nan() || (*v == own && i < label);
        let above = z.iter().enumerate().filter(beats).count();
        let right = above == 0 && !own.is_nan();
        let among_five = above < 5 && !own.is_nan();
        let max = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = z.iter().map(|v| f64::from(v - max).exp()).sum();
        let loss = sum.ln() + f64::from(max - own);
        let added = [f64::from(right), f64::from(among_five), loss, 1.0];
        self.0.iter_mut().zip(added).for_each(|(sum, x)| *sum += x);
        Ok(right)
    }

    /// The scores over the counts of all ranks.
    pub fn scores(mut self, ranks: &dyn Ranks) -> Scores {
        ranks.sum_f64(&mut self.0);
        let [first, five, loss, n] = self.0;
        let images = n as usize;
        let n = n.max(1.0);
        Scores {
            top1: first / n,
            top5: five / n,
            loss: loss / n,
            images,
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
