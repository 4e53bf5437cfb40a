use super::*;

#[test]
fn smoothed_targets_are_distributions() {
    let targets = smoothed_targets(&[2, 0], 4, 0.1).unwrap();
    let rows = targets.to_vec2::<f32>().unwrap();
    assert!((rows[0][2] - 0.925).abs() < 1e-6 && (rows[0][0] - 0.025).abs() < 1e-6);
    let mut sums = rows.iter().map(|row| row.iter().sum::<f32>());
    assert!(sums.all(|sum| (sum - 1.0).abs() < 1e-6));
    assert!(smoothed_targets(&[4], 4, 0.1).is_err());
}

#[test]
fn targets_are_mixed_like_the_images() {
    let mut batch = Batch {
        images: Vec::new(),
        labels: vec![0, 2, 2],
        indices: vec![0, 1, 2],
        view: 0,
        size: 3,
        channels: 3,
        image_size: 0,
        mix: Some(Mix {
            partners: vec![2, 1, 0],
            weight: 0.75,
        }),
    };
    let rows = |batch: &Batch| {
        batch_targets(batch, 4, 0.0)
            .unwrap()
            .to_vec2::<f32>()
            .unwrap()
    };
    let [both, second] = [[0.75, 0.0, 0.25, 0.0], [0.25, 0.0, 0.75, 0.0]];
    assert_eq!(rows(&batch), [both, [0.0, 0.0, 1.0, 0.0], second]);
    let smoothed = batch_targets(&batch, 4, 0.2).unwrap();
    let found = smoothed.to_vec2::<f32>().unwrap();
    assert!((found[0][0] - (0.05 + 0.8 * 0.75)).abs() < 1e-6 && (found[0][1] - 0.05).abs() < 1e-6);
    assert!(batch_targets(&batch, 0, 0.0).is_err());
    batch.mix = None;
    let [first, last] = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
    assert_eq!(rows(&batch), [first, last, last]);
    batch.labels[2] = 4;
    assert!(batch_targets(&batch, 4, 0.0).is_err());
}
