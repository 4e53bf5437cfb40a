//! Feature quality: the accuracy of nearest neighbours, and of a linear classifier.

use anyhow::{Result, bail};
use candle_core::{Device, Tensor, Var};
use rayon::prelude::*;
use wave_learngene::{Standard, unit};
use wave_models::Frozen;
use wave_run::data::TestImages;
use wave_train::{Examples, Rate, Schedule, State, Variable};

/// Temperature of the neighbours' votes (Wu et al. 2018).
const TEMPERATURE: f32 = 0.07;
/// Number of images whose neighbours are searched at once.
const AT_ONCE: usize = 256;
/// Steps of the linear classifier, each on all training images, and their peak learning rate.
const STEPS: u64 = 300;
const LEARNING_RATE: f64 = 1e-2;
const WEIGHT_DECAY: f32 = 1e-2;

pub(crate) struct Features {
    /// (images, width)
    pub(crate) rows: Tensor,
    pub(crate) labels: Vec<u32>,
}

impl Features {
    /// The features that a network's classifier sees for these images.
    pub(crate) fn of(
        network: &dyn Frozen,
        images: &TestImages,
        at_once: usize,
    ) -> Result<Features> {
        images.check()?;
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for batch in images.batches(at_once) {
            let batch = batch?;
            rows.push(network.features(&batch.input()?)?.to_device(&Device::Cpu)?);
            labels.extend(&batch.labels);
        }
        Features::new(Tensor::cat(&rows, 0)?, labels)
    }

    /// Features (images, width), each with a label.
    pub(crate) fn new(rows: Tensor, labels: Vec<u32>) -> Result<Features> {
        let largest = rows.abs()?.max_all()?.to_scalar::<f32>()?;
        if !largest.is_finite() {
            bail!("some features are not finite: the model's activations overflow on this data");
        }
        Ok(Features { rows, labels })
    }
}

/// Fraction of test images whose label has the most votes among their `k` nearest training images by
/// cosine similarity, each with a vote of `exp(cosine / 0.07)`. Ties go to the first class.
pub(crate) fn nearest(train: &Features, test: &Features, k: usize, classes: usize) -> Result<f64> {
    let known = unit(&train.rows)?.t()?.contiguous()?; // (width, train)
    let sought = unit(&test.rows)?;
    let mut right = 0;
    for (start, labels) in (0..).step_by(AT_ONCE).zip(test.labels.chunks(AT_ONCE)) {
        let cosines = sought.narrow(0, start, labels.len())?.matmul(&known)?;
        let cosines = cosines.to_vec2::<f32>()?;
        let rows = cosines.par_iter().zip(labels);
        right += rows
            .filter(|(row, label)| vote(row, &train.labels, k, classes) == **label)
            .count();
    }
    Ok(right as f64 / test.labels.len().max(1) as f64)
}

/// The class with the most votes among the `k` training images with the largest cosines.
fn vote(cosines: &[f32], labels: &[u32], k: usize, classes: usize) -> u32 {
    let mut order: Vec<usize> = (0..cosines.len()).collect();
    let nearer = |a: &usize, b: &usize| cosines[*b].total_cmp(&cosines[*a]).then(a.cmp(b));
    if k < order.len() {
        order.select_nth_unstable_by(k, nearer);
        order.truncate(k);
        order.sort_unstable_by(nearer); // so that votes are summed in a fixed order
    }
    let mut votes = vec![0f32; classes];
    for i in order {
        votes[labels[i] as usize] += ((cosines[i] - 1.0) / TEMPERATURE).exp();
    }
    largest(&votes) as u32
}

/// The index of the largest value, the first among equal ones.
fn largest(values: &[f32]) -> usize {
    let all = 0..values.len();
    let best = all.max_by(|a, b| values[*a].total_cmp(&values[*b]).then(b.cmp(a)));
    best.unwrap_or(0)
}

/// Accuracy of a linear classifier on the test images: multinomial logistic regression on
/// standardised features of all training images, 300 steps of AdamW from zero.
pub(crate) fn linear(train: &Features, test: &Features, classes: usize) -> Result<f64> {
    let standard = Standard::of(&train.rows)?;
    let images = standard.apply(&train.rows)?;
    let targets = wave_train::smoothed_targets(&train.labels, classes, 0.0)?;
    let zeros = |name: &str, dims: &[usize], weight_decay| {
        Ok::<_, candle_core::Error>(Variable {
            name: name.into(),
            var: Var::zeros(dims, candle_core::DType::F32, &Device::Cpu)?,
            rate: Rate::Uniform(1.0),
            weight_decay,
            muon: None,
        })
    };
    let variables = [
        zeros("weight", &[classes, train.rows.dim(1)?], WEIGHT_DECAY)?,
        zeros("bias", &[classes], 0.0)?,
    ];
    let logits = |images: &Tensor| {
        let [weight, bias] = &variables;
        wave_ops::linear(images, weight.var.as_tensor(), bias.var.as_tensor())
    };
    let schedule = Schedule::Cosine {
        peak: LEARNING_RATE,
        steps: STEPS,
        warmup: 1,
        floor: 0.01,
    };
    let mut state = State::new(&variables, false)?;
    for step in 0..STEPS {
        let loss = wave_ops::soft_cross_entropy(&logits(&images)?, &targets)?;
        wave_train::step(&loss, &variables, &mut state, schedule.at(step), None)?;
    }
    let found = logits(&standard.apply(&test.rows)?)?.to_vec2::<f32>()?;
    let right = found.iter().zip(&test.labels);
    let right = right.filter(|(z, label)| largest(z) == **label as usize);
    Ok(right.count() as f64 / test.labels.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(rows: &[[f32; 2]], labels: &[u32]) -> Features {
        Features::new(
            Tensor::from_slice(rows.as_flattened(), (rows.len(), 2), &Device::Cpu).unwrap(),
            labels.to_vec(),
        )
        .unwrap()
    }

    /// Directions of three classes, the first of two images.
    fn train() -> Features {
        let rows = [[1.0, 0.0], [9.0, 1.0], [0.0, 3.0], [-1.0, 0.0]];
        features(&rows, &[0, 0, 1, 2])
    }

    #[test]
    fn the_nearest_images_by_angle_vote() {
        let test = features(
            &[[5.0, 0.1], [0.1, 0.2], [-3.0, 1.0], [1.0, 0.9]],
            &[0, 1, 2, 0],
        );
        assert_eq!(nearest(&train(), &test, 1, 3).unwrap(), 1.0);
        // All images vote; nearer ones have more weight.
        assert_eq!(nearest(&train(), &test, 4, 3).unwrap(), 1.0);
        let other = features(&[[5.0, 0.1], [0.1, 0.2]], &[1, 1]);
        assert_eq!(nearest(&train(), &other, 1, 3).unwrap(), 0.5);
    }

    #[test]
    fn votes_are_weighed_and_ties_go_to_the_first_class() {
        // exp(0.9 / 0.07) against twice exp(0.8 / 0.07): 384,000 against 2 x 92,000.
        assert_eq!(vote(&[0.8, 0.9, 0.8], &[1, 0, 1], 3, 2), 0);
        assert_eq!(vote(&[0.88, 0.9, 0.88], &[1, 0, 1], 3, 2), 1);
        assert_eq!(vote(&[0.5, 0.5], &[2, 1], 2, 3), 1);
        assert_eq!(vote(&[0.5, 0.5], &[2, 1], 1, 3), 2); // the first image
    }

    #[test]
    fn what_a_line_parts_is_told_apart() {
        let side = |i: usize| (i as f32 * 0.7).sin();
        let rows: Vec<[f32; 2]> = (0..60).map(|i| [side(i), 30.0 + side(i * i)]).collect();
        let class = |row: &[f32; 2]| u32::from(row[0] + row[1] > 30.1);
        let labels: Vec<u32> = rows.iter().map(class).collect();
        let (train, test) = (
            features(&rows[..40], &labels[..40]),
            features(&rows[40..], &labels[40..]),
        );
        let found = linear(&train, &test, 2).unwrap();
        assert!(found >= 0.9, "{found}");
        assert!(linear(&train, &features(&rows[40..], &[9; 20]), 2).unwrap() == 0.0);
    }

    #[test]
    fn features_that_are_not_finite_are_refused() {
        let rows = Tensor::new(&[[f32::NAN, 0.0]], &Device::Cpu).unwrap();
        assert!(Features::new(rows, vec![0]).is_err());
    }
}
