use super::*;

fn accuracy(depth: usize, width: usize, top1: f64) -> Accuracy {
    Accuracy {
        depth,
        width,
        top1,
        condition: String::new(),
    }
}

#[test]
fn counts_have_suffixes() {
    for (text, value) in [("8M", 8e6), ("1.2G", 1.2e9), ("300k", 3e5), (" 42 ", 42.0)] {
        assert_eq!(count(text).unwrap(), value, "{text}");
    }
    for wrong in ["", "M", "-3", "nan", "8T", "1e400"] {
        assert!(count(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn accuracy_is_interpolated_over_depth_and_then_over_width() {
    let surface = Surface::new(&[
        accuracy(2, 32, 0.5),
        accuracy(6, 32, 0.7),
        accuracy(2, 96, 0.6),
        accuracy(6, 96, 0.9),
    ]);
    for (depth, width, expected) in [
        (2, 32, 0.5),
        (3, 32, 0.55),
        (6, 64, 0.8),
        (4, 64, 0.675),
        (6, 96, 0.9),
    ] {
        let found = surface.at(depth, width);
        assert!(
            (found - expected).abs() < 1e-12,
            "{depth} x {width}: {found}"
        );
    }
}
