use super::*;
use crate::testing::check_refused;
use proptest::prelude::*;

fn rows(grid: usize, width: usize, scale: f64) -> Vec<Vec<f64>> {
    let p = sinusoidal_positions(grid, width, scale).unwrap();
    let rows: Vec<Vec<f32>> = p.squeeze(0).unwrap().to_vec2().unwrap();
    rows.into_iter()
        .map(|r| r.into_iter().map(f64::from).collect())
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn neighbours_are_nearly_parallel() {
    // >>> 48 + sum(cos(10000 ** -(i / 47)) for i in range(48))    # 94.53267694584682 of 96
    let p = rows(14, 192, 1.0);
    for (other, expected) in [(0, 96.0), (1, 94.532677), (14, 94.532677)] {
        let found = dot(&p[0], &p[other]);
        assert!((found - expected).abs() < 1e-4, "{other}: {found}");
    }
}

#[test]
fn the_columns_are_sines_and_cosines_of_x_then_of_y() {
    // Width 8: w = [1, 1e-4]; token 3 of a 2 x 2 grid is x = 1, y = 1, token 1 is x = 1, y = 0.
    let p = rows(2, 8, 2.0);
    let (s, c) = (2.0 * 1f64.sin(), 2.0 * 1f64.cos());
    let (t, u) = (2.0 * 1e-4f64.sin(), 2.0 * 1e-4f64.cos());
    for (token, expected) in [
        (1, [s, t, c, u, 0.0, 0.0, 2.0, 2.0]),
        (2, [0.0, 0.0, 2.0, 2.0, s, t, c, u]),
        (3, [s, t, c, u, s, t, c, u]),
    ] {
        for (found, expected) in p[token].iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{token}: {:?}", p[token]);
        }
    }
    // The smallest width has one frequency.
    assert!((rows(2, 4, 1.0)[1][0] - 1f64.sin()).abs() < 1e-6);
}

#[test]
fn errors_name_the_remedy() {
    for needle in ["found 90", "width 92"] {
        check_refused(sinusoidal_positions(4, 90, 1.0), needle);
    }
    check_refused(
        sinusoidal_positions(2, 8, f64::NAN),
        "position scale is NaN",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_depend_only_on_the_offset(
        grid in 2usize..7, quarter in 1usize..24, scale in 0.1f64..3.0, a in 0usize..36, b in 0usize..36,
    ) {
        let (width, n) = (4 * quarter, grid * grid);
        let (a, b) = (a % n, b % n);
        let p = rows(grid, width, scale);
        let square = scale * scale * width as f64 / 2.0;
        let tolerance = 1e-6 * square.max(1.0);
        prop_assert!((dot(&p[a], &p[a]) - square).abs() < tolerance);
        prop_assert!(dot(&p[a], &p[b]).abs() <= square + tolerance);

        // The same offset, moved to the corner in which it fits.
        let ((xa, ya), (xb, yb)) = ((a % grid, a / grid), (b % grid, b / grid));
        let (x, y) = (xa.min(xb), ya.min(yb));
        let moved_a = (ya - y) * grid + (xa - x);
        let moved_b = (yb - y) * grid + (xb - x);
        prop_assert!((dot(&p[a], &p[b]) - dot(&p[moved_a], &p[moved_b])).abs() < tolerance);
    }
}
