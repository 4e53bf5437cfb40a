use super::*;

#[test]
fn exp_is_close_over_its_range() {
    for i in -8000..=8800 {
        let x = i as f32 / 100.0;
        let (got, want) = (exp(x) as f64, (x as f64).exp());
        assert!((got / want - 1.0).abs() < 3e-7, "exp({x}) = {got}");
    }
    assert!(exp(-1e30) < 2e-35);
}

#[test]
fn erf_matches_reference_values() {
    // python: [math.erf(x / 2**0.5) for x in (-3, -1, -0.1, 0, 0.5, 2)]
    let cases = [
        (-3.0, -0.997_300_2),
        (-1.0, -0.682_689_5),
        (-0.1, -0.079_655_67),
        (0.0, 0.0),
        (0.5, 0.382_924_9),
        (2.0, 0.954_499_7),
    ];
    for (x, want) in cases {
        assert!((erf_exp(x).0 - want).abs() < 3e-7, "erf({x}/sqrt 2)");
    }
}
