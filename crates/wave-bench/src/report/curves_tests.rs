use super::*;
use crate::report::Findings;

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

/// The section about these rows.
fn section(fixture: &Findings) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut page = Page::new("t", dir.path());
    targets(&mut page, &Found::new(fixture));
    page.finish().unwrap()
}

#[test]
fn targets_are_the_subjects_end_and_round_numbers_below() {
    let mut fixture = Findings::of(&["he", "wave"]);
    fixture.curve("wave", &[(0.0, 0.84), (1.0, 0.87)]);
    fixture.curve("he", &[(0.0, 0.1), (5.0, 0.6), (10.0, 0.86)]);
    let found = section(&fixture);
    for line in [
        "6 x 64; the first column is the final accuracy of wave:",
        "| method | 87.00 % | 85.00 % | 80.00 % | 75.00 % |",
        "| he | not within 10 | 9.81 | 8.85 | 7.88 |",
        "| wave | 1.00 | 0.33 | 0, at the start | 0, at the start |",
    ] {
        assert!(found.lines().any(|l| l == line), "no {line:?} in {found}");
    }
}

#[test]
fn a_start_and_an_end_are_no_way_to_watch() {
    let mut fixture = Findings::of(&["wave"]);
    fixture.rows("wave", 6, &[0.8]);
    assert_eq!(section(&fixture), "# t\n");
}

#[test]
fn round_numbers_are_below_and_above_nothing() {
    assert_eq!(accuracies(0.05), [0.05]);
    assert_eq!(accuracies(0.12), [0.12, 0.1, 0.05]);
    let of_a_round_one = accuracies(0.85);
    assert_eq!(of_a_round_one.len(), 4);
    assert!((accuracies(0.8508)[1] - 0.8).abs() < 1e-12);
    assert!((accuracies(0.86)[1] - 0.85).abs() < 1e-12);
    assert!((of_a_round_one[1] - 0.8).abs() < 1e-12);
}
