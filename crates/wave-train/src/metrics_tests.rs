use super::*;
use crate::Alone;

/// Scores of two images with these labels, for which the classifier gives `logits`.
fn scores(labels: [u32; 2], logits: Tensor) -> Scores {
    let batch = Batch {
        images: vec![0.0; 2],
        labels: labels.to_vec(),
        indices: vec![0, 1],
        view: 0,
        size: 2,
        channels: 1,
        image_size: 1,
        mix: None,
    };
    evaluate(&Alone, [Ok(batch)].into_iter(), |_| Ok(logits.clone())).unwrap()
}

#[test]
fn counts_ranks_and_averages_the_loss() {
    let rows = [[3.0f32, 1.0, 0.0], [0.0, 2.0, 1.0]];
    let scores = scores([0, 2], Tensor::new(&rows, &Device::Cpu).unwrap());
    assert_eq!((scores.top1, scores.top5, scores.images), (0.5, 1.0, 2));
    let ce = |z: [f32; 3], y: usize| {
        let s: f64 = z.iter().map(|v| f64::from(*v).exp()).sum();
        s.ln() - f64::from(z[y])
    };
    assert!((scores.loss - (ce(rows[0], 0) + ce(rows[1], 2)) / 2.0).abs() < 1e-6);
}

#[test]
fn of_no_images_there_is_no_accuracy() {
    let none = evaluate(&Alone, std::iter::empty(), |images| Ok(images.clone()));
    assert!(none.unwrap_err().to_string().contains("no test images"));
}

#[test]
fn constant_and_broken_classifiers_are_not_rewarded() {
    for (logit, labels) in [(0.0, [1, 1]), (f32::NAN, [0, 1])] {
        let logits = Tensor::full(logit, (2, 3), &Device::Cpu).unwrap();
        assert_eq!(scores(labels, logits).top1, 0.0);
    }
}
