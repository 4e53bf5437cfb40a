//! Objectives over logits.

use candle_core::{D, Device, Result, Tensor};
use wave_data::Batch;
use wave_ops::log_softmax;

/// One-hot targets (b, classes) with a share `smoothing` spread over all classes.
///
/// # Errors
/// If a label is not below `classes`.
pub fn smoothed_targets(labels: &[u32], classes: usize, smoothing: f32) -> Result<Tensor> {
    let mut targets = vec![smoothing / classes as f32; labels.len() * classes];
    for (row, &label) in targets.chunks_exact_mut(classes).zip(labels) {
        match row.get_mut(label as usize) {
            Some(target) => *target += 1.0 - smoothing,
            None => candle_core::bail!("label {label} with {classes} classes"),
        }
    }
    Tensor::from_vec(targets, (labels.len(), classes), &Device::Cpu)
}

/// The targets (b, classes) of a batch, smoothed as by [`smoothed_targets`] and mixed as its images
/// are.
///
/// # Errors
/// If a label is not below `classes`.
pub fn batch_targets(batch: &Batch, classes: usize, smoothing: f32) -> Result<Tensor> {
    if let Some(label) = batch.labels.iter().find(|l| **l as usize >= classes) {
        candle_core::bail!("label {label} with {classes} classes");
    }
    let targets = batch.soft_targets(classes, smoothing);
    Tensor::from_vec(targets, (batch.labels.len(), classes), &Device::Cpu)
}

/// `T^2 KL(softmax(a / T) || softmax(z / T))`, summed over classes, mean over the batch, up to the
/// entropy of the ancestor, which has no gradient: see [`entropy`].
///
/// The mean is over the batch alone. Dividing by the number of classes as well, as the code of
/// DeiT does, would make the term vanish beside a cross-entropy.
pub fn distillation(logits: &Tensor, ancestor: &Tensor, temperature: f64) -> Result<Tensor> {
    wave_ops::distillation(logits, ancestor, temperature)
}

/// `T^2` times the mean entropy of `softmax(a / T)`: what [`distillation`] exceeds the divergence
/// by.
pub fn entropy(ancestor: &Tensor, temperature: f64) -> Result<f64> {
    let log_q = log_softmax(&(ancestor / temperature)?)?;
    let h = (log_q.exp()? * log_q)?
        .sum(D::Minus1)?
        .mean(0)?
        .neg()?
        .to_scalar::<f32>()?;
    Ok(f64::from(h) * temperature * temperature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_mixed_as_the_images_are() {
        let batch = Batch {
            images: vec![0.0; 2],
            labels: vec![0, 2],
            indices: vec![0, 1],
            view: 0,
            size: 2,
            channels: 1,
            image_size: 1,
            mix: Some(wave_data::Mix {
                partners: vec![1, 0],
                weight: 0.75,
            }),
        };
        let targets = batch_targets(&batch, 3, 0.0).unwrap();
        let expected = [[0.75f32, 0.0, 0.25], [0.25, 0.0, 0.75]];
        assert_eq!(targets.to_vec2::<f32>().unwrap(), expected);
    }

    #[test]
    fn distillation_is_the_batch_mean_divergence() {
        // torch: z = [[1., 2., 3.], [0., 0., 1.]]; a = [[2., 1., 0.], [1., 0., 0.]]
        // F.kl_div(F.log_softmax(z / 2, 1), F.log_softmax(a / 2, 1), log_target=True,
        //          reduction="batchmean") * 4  ->  1.0486
        let z = Tensor::new(&[[1f32, 2.0, 3.0], [0.0, 0.0, 1.0]], &Device::Cpu).unwrap();
        let a = Tensor::new(&[[2f32, 1.0, 0.0], [1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let loss = distillation(&z, &a, 2.0)
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        let kl = f64::from(loss) - entropy(&a, 2.0).unwrap();
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
        assert!((kl - want).abs() < 1e-5, "{kl} {want}");
        let same = distillation(&a, &a, 2.0)
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        assert!((f64::from(same) - entropy(&a, 2.0).unwrap()).abs() < 1e-5);
    }

    #[test]
    fn smoothed_targets_are_distributions() {
        let t = smoothed_targets(&[2, 0], 4, 0.1)
            .unwrap()
            .to_vec2::<f32>()
            .unwrap();
        assert!((t[0][2] - 0.925).abs() < 1e-6 && (t[0][0] - 0.025).abs() < 1e-6);
        assert!(
            t.iter()
                .all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6)
        );
        assert!(smoothed_targets(&[4], 4, 0.1).is_err());
    }
}
