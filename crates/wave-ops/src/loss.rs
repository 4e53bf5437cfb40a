//! Classification losses from logits.

use crate::fused::{Gradients, Operator, Output, call, gradients};
use crate::simd::{exp, max, vectorised};
use crate::stock;
use crate::storage::{fused, with_slice};
use candle_core::{Layout, Result, Tensor};

/// `mean over rows of - sum over classes of q log softmax(z)`.
///
/// `logits` z and `targets` q are (b, classes); each row of `targets` is a distribution and has
/// no gradient. With one-hot targets this is the cross-entropy; with the targets
/// `softmax(z' / T)` and logits `z / T` it is the Kullback-Leibler divergence from the ancestor,
/// summed over classes and averaged over the batch, up to the entropy of the targets.
pub fn soft_cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let (b, c) = logits.dims2()?;
    if targets.dims2()? != (b, c) || b * c == 0 {
        let (logits, targets) = (logits.shape(), targets.shape());
        candle_core::bail!(
            "logits {logits:?} and targets {targets:?}; expected equal shapes, not empty"
        );
    }
    let targets = &targets.to_device(logits.device())?;
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&[logits, targets])? {
        return crate::gpu::soft_cross_entropy(place, logits, targets);
    }
    if fused(&[logits, targets])? {
        let targets = with_slice(targets, <[f32]>::to_vec)?;
        call(SoftCrossEntropy { targets }, [logits])
    } else {
        stock::soft_cross_entropy(logits, targets)
    }
}

/// `(max z, sum exp(z - max z))` of one row.
#[inline(always)]
fn normaliser(z: &[f32]) -> (f32, f32) {
    let m = max(z);
    (m, z.iter().map(|z| exp(z - m)).sum())
}

struct SoftCrossEntropy {
    targets: Vec<f32>, // (b, classes)
}

impl Operator<1> for SoftCrossEntropy {
    const NAME: &'static str = "soft-cross-entropy";

    fn forward(&self, [z]: [&[f32]; 1], [layout]: [&Layout; 1]) -> Result<Output> {
        let (b, c) = layout.shape().dims2()?;
        let total = vectorised!({
            let mut total = 0.0_f64;
            for (z, q) in z.chunks_exact(c).zip(self.targets.chunks_exact(c)) {
                let (m, s) = normaliser(z);
                let log_s = m + s.ln();
                let row: f32 = z.iter().zip(q).map(|(z, q)| q * (log_s - z)).sum();
                total += f64::from(row);
            }
            total
        });
        Ok((vec![(total / b as f64) as f32], ().into()))
    }

    /// `dz = (softmax(z) sum(q) - q) / b`.
    fn backward(&self, [z]: [&Tensor; 1], d_loss: &Tensor) -> Gradients<1> {
        let (b, c) = z.dims2()?;
        let scale = d_loss.to_scalar::<f32>()? / b as f32;
        let mut dz = with_slice(z, <[f32]>::to_vec)?;
        vectorised!({
            for (z, q) in dz.chunks_exact_mut(c).zip(self.targets.chunks_exact(c)) {
                let (m, s) = normaliser(z);
                let mass = q.iter().sum::<f32>() / s;
                for (z, q) in z.iter_mut().zip(q) {
                    *z = (exp(*z - m) * mass - q) * scale;
                }
            }
        });
        gradients([z], [Some(dz)])
    }
}
