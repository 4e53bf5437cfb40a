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
