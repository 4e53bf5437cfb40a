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
    let found = paired(&seeds(&a), &seeds(&b)).unwrap();
    assert_eq!(found.pairs, 3);
    close(found.difference, 0.01776666666666671);
    close(found.t.unwrap(), 6.342092995617326);
    close(found.p.unwrap(), 0.023971572799737863);
}

#[test]
fn only_seeds_that_both_have_are_paired() {
    let (a, b) = (seeds(&[0.5, 0.6, 0.7]), seeds(&[0.4, 0.3]));
    let found = paired(&a, &b).unwrap();
    assert_eq!(found.pairs, 2);
    close(found.difference, 0.2);
    assert_eq!(paired(&a, &BTreeMap::new()), None);
}

#[test]
fn one_seed_or_equal_differences_give_no_probability() {
    for (a, b) in [(vec![0.9], vec![0.8]), (vec![0.9, 0.8], vec![0.8, 0.7])] {
        let found = paired(&seeds(&a), &seeds(&b)).unwrap();
        close(found.difference, 0.1);
        assert_eq!((found.t, found.p), (None, None));
    }
    assert_eq!(mean(&[]), None);
    assert_eq!(deviation(&[0.3]), None);
}

// from scipy.special import betainc; betainc(a, b, x)
#[test]
fn the_incomplete_beta_function_is_scipys() {
    for (a, b, x, expected) in [
        (0.5, 0.5, 0.25, 0.33333333333333337),
        (1.0, 0.5, 0.1, 0.051316701949486204),
        (2.0, 3.0, 0.4, 0.5247999999999999),
        (0.5, 5.0, 0.9, 0.9999974294103009),
        (10.0, 0.5, 0.99, 0.6579281751567845),
    ] {
        close(incomplete_beta(a, b, x), expected);
    }
    // Far in the tail, still eleven correct digits.
    let tail = incomplete_beta(4.5, 0.5, 0.01) / 2.597549811426686e-10;
    close(tail, 1.0);
    assert_eq!(incomplete_beta(2.0, 3.0, 0.0), 0.0);
    assert_eq!(incomplete_beta(2.0, 3.0, 1.0), 1.0);
}

// from scipy import stats; 2 * stats.t.sf(abs(t), freedom)
#[test]
fn two_sided_probabilities_are_scipys() {
    for (t, freedom, expected) in [
        (0.0, 3.0, 1.0),
        (1.0, 1.0, 0.5000000000000001),
        (2.5, 4.0, 0.06676654481198814),
        (-3.2, 9.0, 0.010831302589901321),
        (12.0, 2.0, 0.00687293367715846),
        (60.0, 2.0, 0.00027766209059467876),
        (0.1, 29.0, 0.9210324444873739),
    ] {
        close(two_sided(t, freedom), expected);
    }
}

// from scipy.special import gammaln
#[test]
fn the_logarithm_of_gamma_is_scipys() {
    for (x, expected) in [
        (0.5, 0.5723649429247),
        (1.0, 0.0),
        (1.5, -0.12078223763524526),
        (2.0, 0.0),
        (7.25, 7.0521854507385395),
        (100.5, 361.43554046777757),
    ] {
        close(ln_gamma(x), expected);
    }
}
