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
