use super::*;
use crate::Alone;

fn batch(labels: Vec<u32>) -> Batch {
    Batch {
        images: vec![0.0; labels.len()],
        indices: (0..labels.len() as u32).collect(),
        view: 0,
        size: labels.len(),
        channels: 1,
        image_size: 1,
        labels,
        mix: None,
    }
}

#[test]
fn counts_ranks_and_averages_the_loss() {
    let rows = [[3.0f32, 1.0, 0.0], [0.0, 2.0, 1.0]];
    let scores = evaluate(&Alone, [Ok(batch(vec![0, 2]))].into_iter(), |_| {
        Tensor::new(&rows, &Device::Cpu)
    })
    .unwrap();
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
    let constant = evaluate(&Alone, [Ok(batch(vec![1, 1]))].into_iter(), |_| {
        Tensor::zeros((2, 3), candle_core::DType::F32, &Device::Cpu)
    });
    assert_eq!(constant.unwrap().top1, 0.0);
    let broken = evaluate(&Alone, [Ok(batch(vec![0, 1]))].into_iter(), |_| {
        Tensor::full(f32::NAN, (2, 3), &Device::Cpu)
    });
    assert_eq!(broken.unwrap().top1, 0.0);
}
