//! Means, deviations and the paired t-test, over seeds.

use std::collections::BTreeMap;
use std::f64::consts::FRAC_2_PI;

/// The arithmetic mean, or `None` without values.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation (divided by n - 1), or `None` for fewer than two values.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len();
    let m = mean(values).filter(|_| n > 1)?;
    let squares: f64 = values.iter().map(|v| (v - m).powi(2)).sum();
    Some((squares / (n - 1) as f64).sqrt())
}

/// The first minus the second, for each seed that both have.
pub(super) fn differences(first: &BTreeMap<u64, f64>, second: &BTreeMap<u64, f64>) -> Vec<f64> {
    let pairs = first.iter();
    let pairs = pairs.filter_map(|(seed, value)| Some(value - second.get(seed)?));
    pairs.collect()
}

/// Student's t and the two-sided p-value for a mean difference of 0; `None` for fewer than two differences, or if all
/// are equal.
pub(super) fn paired(differences: &[f64]) -> Option<(f64, f64)> {
    let n = differences.len();
    // Accuracies are fractions of images: smaller spreads are rounding errors.
    let spread = deviation(differences).filter(|&sd| sd > 1e-12)?;
    let t = mean(differences)? / (spread / (n as f64).sqrt());
    Some((t, two_sided(t, n - 1)))
}

/// The two-sided p-value of Student's t: for integer degrees of freedom a finite sum (Abramowitz and Stegun, 26.7.3
/// and 26.7.4), with an error of 1e-15.
fn two_sided(t: f64, freedom: usize) -> f64 {
    let angle = (t.abs() / (freedom as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2;
    // cos^odd, and each further term the last times cos^2 (k + odd) / (k + 1 + odd), for k = 1, 3, ..
    let (mut term, mut sum) = (cos.powi(odd as i32), 0.0);
    for k in (1..freedom).step_by(2) {
        sum += term;
        term *= cos * cos * (k + odd) as f64 / (k + 1 + odd) as f64;
    }
    let inside = match odd {
        1 => FRAC_2_PI * (angle + sin * sum),
        _ => sin * sum,
    };
    (1.0 - inside).max(0.0)
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
