//! Means, deviations and the paired t-test, over seeds.

use serde::Serialize;
use std::collections::BTreeMap;

/// The arithmetic mean, or nothing without values.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation (divided by n - 1), or nothing for fewer than two values.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len();
    let m = mean(values).filter(|_| n > 1)?;
    let squares: f64 = values.iter().map(|v| (v - m).powi(2)).sum();
    Some((squares / (n - 1) as f64).sqrt())
}

/// The differences between two methods with the same seeds.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct Paired {
    /// Seeds that both have.
    pub(super) pairs: usize,
    /// Mean of the first minus the second.
    pub(super) difference: f64,
    /// Student's t; none of a single pair, or where all differences are equal.
    pub(super) t: Option<f64>,
    /// Two-sided p-value.
    pub(super) p: Option<f64>,
}

/// Compares values of the same seeds; nothing if there is none.
pub(super) fn paired(first: &BTreeMap<u64, f64>, second: &BTreeMap<u64, f64>) -> Option<Paired> {
    let differences: Vec<f64> = first
        .iter()
        .filter_map(|(seed, value)| Some(value - second.get(seed)?))
        .collect();
    let (pairs, difference) = (differences.len(), mean(&differences)?);
    // Accuracies are fractions of images: smaller spreads are rounding errors.
    let spread = deviation(&differences).filter(|&sd| sd > 1e-12);
    let t = spread.map(|sd| difference / (sd / (pairs as f64).sqrt()));
    Some(Paired {
        pairs,
        difference,
        t,
        p: t.map(|t| two_sided(t, (pairs - 1) as f64)),
    })
}

/// The probability of a Student t at least as far from 0, with `freedom` degrees of freedom:
/// I_x(freedom / 2, 1/2) at x = freedom / (freedom + t^2).
fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(0.5 * freedom, 0.5, freedom / (freedom + t * t))
}

/// The regularised incomplete beta function I_x(a, b), for a, b > 0 and x in 0..=1.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The continued fraction converges fast below the mean; symmetry covers the rest.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let log = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p();
    log.exp() / (a * beta_fraction(a, b, x))
}

/// The continued fraction 1 + d_1 / (1 + d_2 / (1 + ...)) of DLMF 8.17.22, from the front by Lentz's
/// method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const MOST_TERMS: usize = 10_000;

    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for i in 1..=MOST_TERMS {
        let m = (i / 2) as f64;
        let term = if i % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / away(1.0 + term * d);
        c = away(1.0 + term / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function at x > 0: the recurrence raises x until seven terms of
/// Stirling's series are exact.
fn ln_gamma(x: f64) -> f64 {
    // B_2k / (2k (2k - 1))
    const SERIES: [f64; 7] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
    ];
    let (mut x, mut product) = (x, 1.0);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = SERIES.iter().rev().fold(0.0, |sum, c| sum * square + c) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - product.ln()
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
