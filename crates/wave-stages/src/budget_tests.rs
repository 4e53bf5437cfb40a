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

#[test]
fn what_is_recorded_and_what_is_between_are_told_apart() {
    let surface = Surface::new(&[
        accuracy(2, 32, 0.5),
        accuracy(6, 32, 0.7),
        accuracy(2, 96, 0.6),
    ]);
    let (top1, from) = surface.expected(6, 32).unwrap();
    assert!(top1 == 0.7 && from.starts_with("measured"));
    let (top1, from) = surface.expected(4, 32).unwrap();
    assert!((top1 - 0.6).abs() < 1e-12 && from.starts_with("interpolated"));
    assert_eq!(surface.expected(7, 32), None);
    assert_eq!(surface.expected(2, 128), None);
    assert_eq!(Surface::new(&[]).expected(2, 32), None);
}

#[test]
fn equals_within_noise_are_ranked_by_their_work() {
    let candidate = |rank, multiply_adds| Candidate {
        depth: 1,
        width: 1,
        parameters: 1,
        multiply_adds,
        latency_ms: None,
        expected: None,
        rank,
        equal: false,
    };
    let all = [(0.7, 1), (0.9, 30), (0.8995, 20), (0.8992, 40), (0.898, 10)];
    let ranked = ranked(all.map(|(rank, work)| candidate(rank, work)).to_vec());
    let work: Vec<usize> = ranked.iter().map(|c| c.multiply_adds).collect();
    assert_eq!(work, [20, 30, 40, 10, 1]);
}
