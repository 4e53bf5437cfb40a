use super::*;

fn point((x, y): (f64, f64)) -> (f64, f64, f64) {
    (x, y, 0.0)
}

#[test]
fn a_target_is_reached_on_the_line_between_two_tests() {
    let curve = [(0.0, 0.1), (1.0, 0.5), (2.0, 0.4), (3.0, 0.8)].map(point);
    for (target, epoch) in [
        (0.05, Some(0.0)),
        (0.1, Some(0.0)),
        (0.3, Some(0.5)),
        (0.5, Some(1.0)),
        (0.6, Some(2.5)),
        (0.8, Some(3.0)),
        (0.81, None),
        (f64::NAN, None),
    ] {
        match (first_reach(&curve, target), epoch) {
            (Some(found), Some(epoch)) => assert!((found - epoch).abs() < 1e-12, "{target}"),
            (found, epoch) => assert_eq!(found, epoch, "{target}"),
        }
    }
    assert_eq!(first_reach(&[], 0.5), None);
    assert_eq!(
        first_reach(&[(0.0, f64::NAN), (1.0, 0.5)].map(point), 0.4),
        Some(1.0)
    );
}

#[test]
fn a_value_lies_on_the_curve_or_is_none() {
    let curve = [(0.0, 0.25), (2.0, 0.75)].map(point);
    let values = [-1.0, 0.0, 1.0, 2.0, 2.1].map(|epoch| value_at(&curve, epoch));
    assert_eq!(values, [None, Some(0.25), Some(0.5), Some(0.75), None]);
    assert_eq!(value_at(&[], 0.0), None);
}
