use super::*;

#[test]
fn counts_have_suffixes() {
    for (text, value) in [
        ("8M", 8e6),
        ("1.2G", 1.2e9),
        ("300k", 3e5),
        ("8T", 8e12),
        (" 42 ", 42.0),
    ] {
        assert_eq!(count(text).unwrap(), value, "{text}");
    }
    for wrong in ["", "M", "-3", "nan", "8P", "1e400"] {
        assert!(count(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn latencies_are_those_of_one_process_on_the_cpu() {
    check_measured(1, true).unwrap();
    for (ranks, on_cpu, part) in [(2, true, "mpirun"), (1, false, "--device")] {
        let error = check_measured(ranks, on_cpu).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
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
