//! Epochs of each method to given accuracies.

use super::Findings;
use super::summary::{Summaries, Summary};
use serde::Serialize;

/// The first epoch at which a curve of `(epoch, accuracy)` reaches the target, interpolated linearly;
/// nothing if it never does.
pub(super) fn first_reach(curve: &[(f64, f64)], target: f64) -> Option<f64> {
    let i = curve.iter().position(|&(_, y)| y >= target)?;
    let (x, y) = curve[i];
    let Some(&(x0, y0)) = i.checked_sub(1).and_then(|before| curve.get(before)) else {
        return Some(x);
    };
    // y0 < target <= y, unless y0 is NaN.
    let share = (target - y0) / (y - y0);
    Some(if share.is_finite() {
        x0 + share * (x - x0)
    } else {
        x
    })
}

/// The accuracy of a curve at an epoch, interpolated linearly; nothing outside.
pub(super) fn value_at(curve: &[(f64, f64)], epoch: f64) -> Option<f64> {
    let i = curve.iter().position(|&(x, _)| x >= epoch)?;
    let (x, y) = curve[i];
    if x == epoch {
        return Some(y);
    }
    let &(x0, y0) = curve.get(i.checked_sub(1)?)?;
    Some(y0 + (y - y0) * (epoch - x0) / (x - x0))
}

/// An epoch, or the last of a curve that does not reach the target.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct Reach {
    /// Epoch where the target is reached; otherwise the length of the curve.
    pub(super) epochs: f64,
    pub(super) reached: bool,
}

impl Reach {
    /// Of a curve; nothing of an empty one.
    pub(super) fn new(curve: &[(f64, f64)], target: f64) -> Option<Reach> {
        let last = curve.last()?.0;
        let at = first_reach(curve, target);
        Some(Reach {
            epochs: at.unwrap_or(last),
            reached: at.is_some(),
        })
    }
}

/// Epochs to some accuracies, at one size.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Targets {
    pub(super) dataset: String,
    pub(super) depth: usize,
    pub(super) width: usize,
    /// The method whose final accuracy is the first target.
    pub(super) leader: String,
    /// Accuracies, 0..=1, in descending order.
    pub(super) targets: Vec<f64>,
    /// Epochs of each method to each target.
    pub(super) methods: Vec<(String, Vec<Reach>)>,
}

/// Targets for each size at which a method was tested during training: the final accuracy of the subject
/// (without one, of the best method), and the round percentages below it.
pub(super) fn targets(findings: &Findings, summaries: &Summaries) -> Vec<Targets> {
    let mut all = Vec::new();
    for dataset in findings.datasets {
        for &(depth, width) in findings.sizes {
            let size = (depth, width);
            let leader = match findings.subject {
                Some(subject) => summaries.get(dataset, subject, size),
                None => Summaries::best(summaries.at(dataset, size)),
            };
            let Some(leader) = leader.filter(|s| s.top1.is_finite()) else {
                continue;
            };
            if !summaries.at(dataset, size).any(Summary::is_long) {
                continue;
            }
            let targets = accuracies(leader.top1);
            let reaches = |s: &Summary| -> Option<(String, Vec<Reach>)> {
                let curve = s.mean_curve();
                let reaches = targets.iter().map(|&target| Reach::new(&curve, target));
                Some((s.method.clone(), reaches.collect::<Option<_>>()?))
            };
            let methods = summaries.at(dataset, size).filter_map(reaches).collect();
            all.push(Targets {
                dataset: dataset.clone(),
                depth,
                width,
                leader: leader.method.clone(),
                targets,
                methods,
            });
        }
    }
    all
}

/// An accuracy, and the next three multiples of 5 % at least a point below it.
fn accuracies(end: f64) -> Vec<f64> {
    const STEP: f64 = 5.0;

    // A point less, up to rounding errors.
    let below = ((100.0 * end - 1.0 + 1e-9) / STEP).floor();
    let round = (0..3)
        .map(|i| (below - f64::from(i)) * STEP / 100.0)
        .filter(|&target| target > 0.0);
    std::iter::once(end).chain(round).collect()
}

#[cfg(test)]
#[path = "targets_tests.rs"]
mod tests;
