//! The loss of a condensation (WAVE, equation 4): `KL(ancestor || auxiliary)` plus the cross-entropy with
//! the labels; or, for an ancestor that teaches by its features, their distance.

use candle_core::{D, Result, Tensor};
use wave_ops::{log_softmax, soft_cross_entropy};

/// The weights of both terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Weight of the cross-entropy with the labels; at 0, no labels are needed.
    pub ce_weight: f64,
    /// Weight of the divergence from the ancestor.
    pub kl_weight: f64,
    /// Temperature of the divergence.
    pub temperature: f64,
}

impl Objective {
    /// The loss of logits (b, classes), given the ancestor's (b, classes), if there is one. The
    /// targets (b, classes) are computed only if the cross-entropy has a nonzero weight.
    pub fn loss(
        &self,
        logits: &Tensor,
        ancestor: Option<&Tensor>,
        targets: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Tensor> {
        let ce = || soft_cross_entropy(logits, &targets()?)? * self.ce_weight;
        let Some(ancestor) = ancestor else {
            return ce();
        };
        let kl = (divergence(logits, ancestor, self.temperature)? * self.kl_weight)?;
        match self.ce_weight == 0.0 {
            true => Ok(kl),
            false => ce()? + kl,
        }
    }
}

/// `T^2 KL(softmax(a / T) || softmax(z / T))` of logits `z` and the ancestor's `a`, summed over
/// classes, mean over the batch. No gradient flows to `a`.
///
/// The mean is over the batch alone. Dividing by the number of classes as well, as the code of DeiT
/// does, would make the term negligible next to the cross-entropy.
pub fn divergence(logits: &Tensor, ancestor: &Tensor, temperature: f64) -> Result<Tensor> {
    let log_q = log_softmax(&(ancestor / temperature)?)?; // (b, classes)
    let q = log_q.exp()?;
    let squared = temperature * temperature;
    let entropy = (&q * log_q)?.sum(D::Minus1)?.mean(0)?.neg()?;
    let entropy = entropy.to_scalar::<f32>()?;
    let cross = (soft_cross_entropy(&(logits / temperature)?, &q)? * squared)?;
    cross - f64::from(entropy) * temperature * temperature
}

/// The mean over the batch of `1 - cos(z, a)`, of predicted features `z` (b, width) and the ancestor's `a`.
///
/// The ancestor's features are standardised first ([`Standard`]): a few channels of a pretrained
/// transformer are many times larger than the others, and its mean is far from zero, so angles between
/// raw features say little about the images. The norm of a feature is left free: nearest neighbours and
/// linear probes hardly depend on it.
pub fn feature_distance(z: &Tensor, a: &Tensor) -> Result<Tensor> {
    let cosine = (unit(z)? * unit(a)?)?.sum(D::Minus1)?;
    1.0 - cosine.mean(0)?
}

/// Rows (b, d) scaled to norm 1.
pub fn unit(x: &Tensor) -> Result<Tensor> {
    let squares = (x.sqr()?.sum_keepdim(D::Minus1)? + 1e-12)?;
    x.broadcast_div(&squares.sqrt()?)
}

/// The mean and standard deviation of each feature over some images.
#[derive(Clone, Debug)]
pub struct Standard {
    /// (1, d)
    mean: Tensor,
    /// (1, d)
    deviation: Tensor,
}

impl Standard {
    /// Means and deviations of features (n, d). A constant feature gets deviation 1.
    pub fn of(features: &Tensor) -> Result<Standard> {
        let mean = features.mean_keepdim(0)?;
        let variance = features.broadcast_sub(&mean)?.sqr()?.mean_keepdim(0)?;
        let constant = variance.lt(1e-12)?;
        let deviation = constant.where_cond(&variance.ones_like()?, &variance.sqrt()?)?;
        Ok(Standard { mean, deviation })
    }

    /// Features (b, d), standardised to mean 0 and deviation 1.
    pub fn apply(&self, features: &Tensor) -> Result<Tensor> {
        let device = features.device();
        let centred = features.broadcast_sub(&self.mean.to_device(device)?)?;
        centred.broadcast_div(&self.deviation.to_device(device)?)
    }
}

#[cfg(test)]
#[path = "objective_tests.rs"]
mod tests;
