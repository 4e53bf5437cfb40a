use super::*;

#[test]
fn rises_then_falls_to_the_floor() {
    let s = Schedule {
        peak: 1.0,
        steps: 100,
        curve: Curve::Cosine {
            warmup: 10,
            floor: 0.01,
        },
    };
    assert!((s.at(0) - 0.1).abs() < 1e-3);
    assert!((0..9).all(|i| s.at(i) < s.at(i + 1)));
    assert!((10..99).all(|i| s.at(i) > s.at(i + 1)));
    assert!((s.at(100) - 0.01).abs() < 1e-12);
    assert_eq!(s.at(5000), s.at(100));
}

#[test]
fn no_steps_and_no_warmup_are_no_division_by_zero() {
    assert!(
        Schedule {
            peak: 1.0,
            steps: 0,
            curve: Curve::Cosine {
                warmup: 0,
                floor: 0.0
            }
        }
        .at(0)
        .is_finite()
    );
}

#[test]
fn triangular_is_straight_between_four_points() {
    let s = Schedule {
        peak: 2.0,
        steps: 1000,
        curve: Curve::Triangular,
    };
    let is = |step, rate: f64| assert!((s.at(step) - rate).abs() < 5e-3, "{}", s.at(step));
    for (step, rate) in [
        (0, 0.0),
        (200, 1.0),
        (400, 2.0),
        (600, 1.05),
        (800, 0.1),
        (900, 0.05),
    ] {
        is(step, rate);
    }
    assert!(s.at(0) > 0.0 && s.at(999) > 0.0);
    assert_eq!(s.at(5000), 0.0);
}
