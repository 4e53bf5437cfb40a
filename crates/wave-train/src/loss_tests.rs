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
