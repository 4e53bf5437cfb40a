use super::*;

fn cosine(steps: u64, warmup: u64, floor: f64) -> Schedule {
    Schedule {
        peak: 1.0,
        steps,
        curve: Curve::Cosine { warmup, floor },
    }
}

#[test]
fn rises_then_falls_to_the_floor() {
    let s = cosine(100, 10, 0.01);
    assert!((s.at(0) - 0.1).abs() < 1e-3);
    assert!((0..9).all(|i| s.at(i) < s.at(i + 1)));
    assert!((10..99).all(|i| s.at(i) > s.at(i + 1)));
    assert!((s.at(100) - 0.01).abs() < 1e-12);
    assert_eq!(s.at(5000), s.at(100));
    // No division by zero.
    assert!(cosine(0, 0, 0.0).at(0).is_finite());
}

#[test]
fn triangular_is_straight_between_four_points() {
    let s = Schedule {
        curve: Curve::Triangular,
        ..cosine(1000, 0, 0.0)
    };
    let rising = [(0, 0.0), (200, 0.5), (400, 1.0)];
    let falling = [(600, 0.525), (800, 0.05), (900, 0.025)];
    for (step, rate) in rising.into_iter().chain(falling) {
        assert!((s.at(step) - rate).abs() < 2.5e-3, "{}", s.at(step));
    }
    assert!(s.at(0) > 0.0 && s.at(999) > 0.0);
    assert_eq!(s.at(5000), 0.0);
}
