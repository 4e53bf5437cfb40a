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
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn loss(
        &self,
        logits: &Tensor,
        ancestor: Option<&Tensor>,
        targets: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Tensor> {
        let weighted = |ancestor| divergence(logits, ancestor, self.temperature)? * self.kl_weight;
        let kl = ancestor.map(weighted).transpose()?;
        match kl {
            Some(kl) if self.ce_weight == 0.0 => Ok(kl),
            kl => {
                let ce = (soft_cross_entropy(logits, &targets()?)? * self.ce_weight)?;
                kl.map_or(Ok(ce.clone()), |kl| ce + kl)
            }
        }
    }
}

/// `T^2 KL(softmax(a / T) || softmax(z / T))` of logits `z` and the ancestor's `a`, summed over
/// classes, mean over the batch. No gradient flows to `a`.
///
/// The mean is over the batch alone. Dividing by the number of classes as well, as the code of DeiT
/// does, would make the term negligible next to the cross-entropy.
///
/// # Errors
/// If the shapes differ.
pub fn divergence(logits: &Tensor, ancestor: &Tensor, temperature: f64) -> Result<Tensor> {
    let log_q = log_softmax(&(ancestor / temperature)?)?; // (b, classes)
    let q = log_q.exp()?;
    let squared = temperature * temperature;
    let entropy = (&q * log_q)?
        .sum(D::Minus1)?
        .mean(0)?
        .neg()?
        .to_scalar::<f32>()?;
    let cross = (soft_cross_entropy(&(logits / temperature)?, &q)? * squared)?;
    cross - f64::from(entropy) * temperature * temperature
}

/// The mean over the batch of `1 - cos(z, a)`, of predicted features `z` (b, width) and the ancestor's `a`.
///
/// The ancestor's features are standardised first ([`Standard`]): a few channels of a pretrained
/// transformer are many times larger than the others, and its mean is far from zero, so angles between
/// raw features say little about the images. The norm of a feature is left free: nearest neighbours and
/// linear probes hardly depend on it.
///
/// # Errors
/// If the shapes differ.
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
    ///
    /// # Errors
    /// If there are no features.
    pub fn of(features: &Tensor) -> Result<Standard> {
        let mean = features.mean_keepdim(0)?;
        let variance = features.broadcast_sub(&mean)?.sqr()?.mean_keepdim(0)?;
        let constant = variance.lt(1e-12)?;
        let deviation = constant.where_cond(&variance.ones_like()?, &variance.sqrt()?)?;
        Ok(Standard { mean, deviation })
    }

    /// Features (b, d), standardised to mean 0 and deviation 1.
    ///
    /// # Errors
    /// If their width differs.
    pub fn apply(&self, features: &Tensor) -> Result<Tensor> {
        let device = features.device();
        let centred = features.broadcast_sub(&self.mean.to_device(device)?)?;
        centred.broadcast_div(&self.deviation.to_device(device)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn the_divergence_is_the_batch_mean() {
        // torch: z = [[1., 2., 3.], [0., 0., 1.]]; a = [[2., 1., 0.], [1., 0., 0.]]
        // F.kl_div(F.log_softmax(z / 2, 1), F.log_softmax(a / 2, 1), log_target=True,
        //          reduction="batchmean") * 4  ->  1.0486
        let z = Tensor::new(&[[1f32, 2.0, 3.0], [0.0, 0.0, 1.0]], &Device::Cpu).unwrap();
        let a = Tensor::new(&[[2f32, 1.0, 0.0], [1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let kl = divergence(&z, &a, 2.0).unwrap().to_scalar::<f32>().unwrap();
        let softmax = |v: [f64; 3]| {
            let e = v.map(|x| (x / 2.0).exp());
            e.map(|x| x / e.iter().sum::<f64>())
        };
        let pairs = [([1., 2., 3.], [2., 1., 0.]), ([0., 0., 1.], [1., 0., 0.])];
        let want: f64 = pairs
            .map(|(z, a)| {
                let (p, q) = (softmax(z), softmax(a));
                (0..3).map(|i| q[i] * (q[i] / p[i]).ln()).sum::<f64>()
            })
            .iter()
            .sum::<f64>()
            / 2.0
            * 4.0;
        assert!((f64::from(kl) - want).abs() < 1e-5, "{kl} {want}");
        let same = divergence(&a, &a, 2.0).unwrap().to_scalar::<f32>().unwrap();
        assert!(same.abs() < 1e-5);
    }

    #[test]
    fn the_distance_of_features_is_one_minus_their_cosine() {
        // numpy: z = [[3, 4], [1, 0]], a = [[4, 3], [0, 2]]: 1 - mean(24 / 25, 0) = 0.52
        let z = Tensor::new(&[[3f32, 4.0], [1.0, 0.0]], &Device::Cpu).unwrap();
        let a = Tensor::new(&[[4f32, 3.0], [0.0, 2.0]], &Device::Cpu).unwrap();
        let number = |t: Tensor| t.to_scalar::<f32>().unwrap();
        assert!((number(feature_distance(&z, &a).unwrap()) - 0.52).abs() < 1e-6);
        let longer = (&a * 7.0).unwrap();
        assert!((number(feature_distance(&z, &longer).unwrap()) - 0.52).abs() < 1e-6);
        let nothing = z.zeros_like().unwrap();
        assert_eq!(number(feature_distance(&nothing, &a).unwrap()), 1.0);
    }

    #[test]
    fn standardised_features_have_mean_zero_and_deviation_one() {
        let x = Tensor::new(&[[1f32, 5.0, 2.0], [3.0, 5.0, -2.0]], &Device::Cpu).unwrap();
        let standard = Standard::of(&x).unwrap();
        let found = standard.apply(&x).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(found, [[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]);
    }

    #[test]
    fn without_cross_entropy_no_targets_are_asked_for() {
        let z = Tensor::new(&[[1f32, 2.0]], &Device::Cpu).unwrap();
        let objective = Objective {
            ce_weight: 0.0,
            kl_weight: 2.0,
            temperature: 1.0,
        };
        let a = Tensor::new(&[[0f32, 0.0]], &Device::Cpu).unwrap();
        let loss = objective.loss(&z, Some(&a), || unreachable!()).unwrap();
        let twice = (divergence(&z, &a, 1.0).unwrap() * 2.0).unwrap();
        assert_eq!(
            loss.to_scalar::<f32>().unwrap(),
            twice.to_scalar::<f32>().unwrap()
        );
    }
}
