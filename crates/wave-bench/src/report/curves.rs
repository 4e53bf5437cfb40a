//! Accuracy by epoch, and epochs of each method to given accuracies.

use super::page::Page;
use super::summary::{Summaries, Summary};
use super::{Found, number};

/// Maximum number of points of a curve that is also listed in numbers.
const MOST_POINTS: usize = 21;

/// The epoch at which a curve reaches a target, or its last epoch if it does not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Reach {
    /// Epoch where the target is reached; otherwise the length of the curve.
    pub(super) epochs: f64,
    pub(super) reached: bool,
}

impl Reach {
    /// The reach of a summary's curve; `None` if it is empty.
    pub(super) fn new(summary: &Summary, target: f64) -> Option<Reach> {
        let last = summary.curve.last()?.0;
        let at = first_reach(&summary.curve, target);
        Some(Reach {
            epochs: at.unwrap_or(last),
            reached: at.is_some(),
        })
    }

    pub(super) fn words(self) -> String {
        match self.reached {
            true if self.epochs == 0.0 => "0, at the start".to_owned(),
            true => format!("{:.2}", self.epochs),
            false => format!("not within {}", number(self.epochs)),
        }
    }
}

/// The first epoch at which a curve of `(epoch, accuracy, deviation)` reaches the target, interpolated linearly;
/// `None` if it never does.
fn first_reach(curve: &[(f64, f64, f64)], target: f64) -> Option<f64> {
    let i = curve.iter().position(|&(_, y, _)| y >= target)?;
    let (x, y, _) = curve[i];
    let Some((x0, y0, _)) = i.checked_sub(1).map(|before| curve[before]) else {
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

/// The accuracy of a curve at an epoch, interpolated linearly; `None` outside the curve.
pub(super) fn value_at(curve: &[(f64, f64, f64)], epoch: f64) -> Option<f64> {
    let i = curve.iter().position(|&(x, ..)| x >= epoch)?;
    let (x, y, _) = curve[i];
    if x == epoch {
        return Some(y);
    }
    let (x0, y0, _) = curve[i.checked_sub(1)?];
    Some(y0 + (y - y0) * (epoch - x0) / (x - x0))
}

/// Lists short curves in numbers.
pub(super) fn numbers(page: &mut Page, summaries: &Summaries) {
    let written = |s: &&Summary| s.is_long() && s.curve.len() <= MOST_POINTS;
    let item = |s: &Summary| {
        let points = s.curve.iter();
        let points: Vec<String> = points
            .map(|point| format!("{:.2}", 100.0 * point.1))
            .collect();
        format!("{}, {}: {}", s.place(), s.method, points.join(", "))
    };
    let items: Vec<String> = summaries.0.iter().filter(written).map(item).collect();
    if !items.is_empty() {
        page.paragraph("Top-1 in % at the start and after each test:");
        page.list(items);
    }
}

/// A table for each size at which a method was tested during training: epochs that each method needs to reach the
/// subject's final accuracy, and the round percentages below it.
pub(super) fn targets(page: &mut Page, found: &Found) {
    let mut intro = Some((
        "Epochs to an accuracy",
        "The first epoch of fine-tuning at which the mean curve reaches an accuracy, interpolated \
         linearly between tested epochs. Epochs before fine-tuning are not counted. Learning rates \
         decay towards the end of each run, so a shorter run would be more accurate at the same \
         epoch.",
    ));
    for (dataset, size) in found.findings.places() {
        let here = || found.summaries.at(dataset, size);
        let leader = found.summaries.get(dataset, &found.findings.subject, size);
        let Some(leader) = leader.filter(|s| s.top1.is_finite()) else {
            continue;
        };
        if !here().any(Summary::is_long) {
            continue;
        }
        page.once(&mut intro);
        let (place, method) = (leader.place(), &leader.method);
        page.paragraph(&format!(
            "{place}; the first column is the final accuracy of {method}:"
        ));
        let targets = accuracies(leader.top1);
        let row = |s: &Summary| {
            let reaches = targets
                .iter()
                .map(|&target| Some(Reach::new(s, target)?.words()));
            let cells = std::iter::once(Some(s.method.clone())).chain(reaches);
            cells.collect::<Option<Vec<String>>>()
        };
        let mut columns = vec!["method".to_owned()];
        columns.extend(
            targets
                .iter()
                .map(|target| format!("{:.2} %", 100.0 * target)),
        );
        page.table(&columns, here().filter_map(row));
    }
}

/// An accuracy, and the next three multiples of 5 % at least a point below it.
fn accuracies(end: f64) -> Vec<f64> {
    const STEP: f64 = 5.0;

    // One percentage point less, up to rounding errors.
    let below = ((100.0 * end - 1.0 + 1e-9) / STEP).floor();
    let round = (0..3)
        .map(|i| (below - f64::from(i)) * STEP / 100.0)
        .filter(|&target| target > 0.0);
    std::iter::once(end).chain(round).collect()
}

#[cfg(test)]
#[path = "curves_tests.rs"]
mod tests;
