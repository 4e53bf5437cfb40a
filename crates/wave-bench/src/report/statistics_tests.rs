use super::*;

fn seeds(values: &[f64]) -> BTreeMap<u64, f64> {
    (0..).zip(values.iter().copied()).collect()
}

fn close(found: f64, expected: f64) {
    let error = (found - expected).abs() / expected.abs().max(1e-3);
    assert!(error < 1e-11, "{found} is not {expected}");
}

// import numpy as np; from scipy import stats
// a = np.array([.8712, .8655, .8690]); b = np.array([.8501, .8533, .8490])
// a.mean(), a.std(ddof=1), (a - b).mean(), stats.ttest_rel(a, b)
#[test]
fn mean_deviation_and_paired_test_are_numpys_and_scipys() {
    let (a, b) = ([0.8712, 0.8655, 0.8690], [0.8501, 0.8533, 0.8490]);
    close(mean(&a).unwrap(), 0.8685666666666666);
    close(deviation(&a).unwrap(), 0.0028746014216466807);
    let found = differences(&seeds(&a), &seeds(&b));
    assert_eq!(found.len(), 3);
    close(mean(&found).unwrap(), 0.01776666666666671);
    let (t, p) = paired(&found).unwrap();
    close(t, 6.342092995617326);
    close(p, 0.023971572799737863);
}

#[test]
fn only_seeds_that_both_have_are_paired_and_one_or_equal_differences_give_no_probability() {
    let found = differences(&seeds(&[0.5, 0.6, 0.7]), &seeds(&[0.4, 0.3]));
    assert_eq!(found.len(), 2);
    close(mean(&found).unwrap(), 0.2);
    assert_eq!(paired(&found[..1]), None);
    let equal = differences(&seeds(&[0.9, 0.8]), &seeds(&[0.8, 0.7]));
    assert_eq!(paired(&equal), None);
    assert_eq!(paired(&[]), None);
    assert_eq!((mean(&[]), deviation(&[0.3])), (None, None));
}

// from scipy import stats; 2 * stats.t.sf(abs(t), freedom)
#[test]
fn two_sided_probabilities_are_scipys() {
    for (t, freedom, expected) in [
        (0.0, 3, 1.0),
        (1.0, 1, 0.5000000000000001),
        (2.5, 4, 0.06676654481198814),
        (-3.2, 9, 0.010831302589901321),
        (12.0, 2, 0.00687293367715846),
        (60.0, 2, 0.00027766209059467876),
        (0.1, 29, 0.9210324444873739),
    ] {
        close(two_sided(t, freedom), expected);
    }
}
