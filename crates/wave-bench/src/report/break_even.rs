//! Break-even points: the number of models from which one method is cheaper than another.
//!
//! n models cost `shared + n (own + tuned)` epochs of a model of that size: `shared` once for all models, `own`
//! before the fine-tuning of each, and `tuned` in fine-tuning up to an accuracy. The shared epochs train networks of
//! other sizes, and are converted to this size by multiply-adds.

use super::page::Page;
use super::summary::{Found, Summary, on, words};
use super::{Findings, number, plural};

/// Epoch, mean accuracy and standard deviation of the points of a curve.
type Curve = [(f64, f64, f64)];

/// Epochs for models of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    /// Spent once.
    shared: f64,
    /// Spent for each model.
    each: f64,
}

/// The numbers of models for which a method costs no more than its rival. If the rival did not reach the target,
/// `reached` is false, and its line is a lower bound.
fn cheaper(method: Line, rival: Line, reached: bool) -> String {
    let ahead = method.shared - rival.shared;
    let saved = rival.each - method.each;
    let n = ahead / saved; // where the lines cross
    // Rounding errors must not add a model.
    let from = |n: f64| match (n - 1e-9).ceil().max(1.0) {
        1.0 => "from the first model".to_owned(),
        more => format!("from {more} models ({n:.1})"),
    };
    match (saved > 0.0, ahead < 0.0) {
        (true, _) if reached || ahead <= 0.0 => from(n.max(0.0)),
        (true, _) => format!("{} at the latest", from(n)),
        (false, true) if saved == 0.0 => from(0.0),
        (false, _) if !reached => "not known".to_owned(),
        (false, true) if n >= 1.0 => format!("only up to {} models ({n:.1})", (n + 1e-9).floor()),
        // The method costs at least as much, both once and for each model.
        (false, _) => "never".to_owned(),
    }
}

/// Break-even of each method with its rivals, at each size where both have curves.
pub(super) fn section(page: &mut Page, found: &Found) {
    let findings = found.findings;
    if findings.grid.bench.break_even.is_empty() {
        return;
    }
    page.section("Break-even");
    page.paragraph(&format!(
        "The cost of n models is the shared cost plus n times the cost of each: its epochs before \
         fine-tuning, and those of fine-tuning until it reaches a target accuracy. The target is \
         the method's accuracy after its first epoch, or at the end of the shorter curve. Costs are \
         in epochs of a model of that size; shared costs are converted by their images and forward \
         multiply-adds (a training step takes three times as many). With the ancestor, the {} of \
         its training are added to the method's cost only.",
        plural(findings.ancestor_epochs, "epoch")
    ));
    let rows = rows(found);
    if rows.is_empty() {
        page.paragraph("No pair of methods has curves at the same size.");
        return;
    }
    let columns = [
        "size",
        "method",
        "rival",
        "accuracy",
        "method's epochs",
        "rival's epochs",
        "cheaper",
        "with the ancestor",
    ];
    page.table(&columns, rows);
}

fn rows(found: &Found) -> Vec<Vec<String>> {
    let grid = &found.findings.grid;
    let mut rows = Vec::new();
    for (dataset, size) in grid.places() {
        for (method, rival) in &grid.bench.break_even {
            let get = |name| found.get(dataset, name, size);
            if let (Some(own), Some(other)) = (get(method), get(rival)) {
                let epochs = target_epochs([own, other]);
                rows.extend(epochs.filter_map(|epoch| row(found.findings, own, other, epoch)));
            }
        }
    }
    rows
}

/// Two methods at the accuracy that the first of them has after an epoch; `None` if one has no curve, or the first
/// one's curve does not cover that epoch.
fn row(findings: &Findings, own: &Summary, other: &Summary, epoch: f64) -> Option<Vec<String>> {
    let target = value_at(&own.curve, epoch)?;
    let last = other.curve.last()?.0;
    let reach = first_reach(&own.curve, target).unwrap_or(epoch);
    let rival_reach = first_reach(&other.curve, target);
    let line = |s: &Summary, reach: f64| Line {
        shared: (findings.shared_work)(Some(&s.method), s.size),
        each: s.own_epochs + reach,
    };
    let alone = line(own, reach);
    let with_ancestor = Line {
        shared: alone.shared + (findings.shared_work)(None, own.size),
        ..alone
    };
    let rival = line(other, rival_reach.unwrap_or(last));
    let cheaper = |method| cheaper(method, rival, rival_reach.is_some());
    let epochs = |reach: f64| match reach {
        0.0 => "0, at the start".to_owned(),
        epochs => format!("{epochs:.2}"),
    };
    Some(vec![
        on(&own.dataset, &words(own.size)),
        own.method.clone(),
        other.method.clone(),
        format!("{:.2} % (epoch {})", 100.0 * target, number(epoch)),
        epochs(reach),
        rival_reach.map_or_else(|| format!("not within {}", number(last)), epochs),
        cheaper(alone),
        cheaper(with_ancestor),
    ])
}

/// The first epoch at which a curve reaches the target, interpolated linearly; `None` if it never does.
fn first_reach(curve: &Curve, target: f64) -> Option<f64> {
    let i = curve.iter().position(|&(_, y, _)| y >= target)?;
    let (x, y, _) = curve[i];
    let Some((x0, y0, _)) = i.checked_sub(1).map(|before| curve[before]) else {
        return Some(x);
    };
    // y0 < target <= y, unless y0 is NaN.
    let share = (target - y0) / (y - y0);
    Some(match share.is_finite() {
        true => x0 + share * (x - x0),
        false => x,
    })
}

/// The accuracy of a curve at an epoch, interpolated linearly; `None` outside the curve.
fn value_at(curve: &Curve, epoch: f64) -> Option<f64> {
    let i = curve.iter().position(|&(x, ..)| x >= epoch)?;
    let (x, y, _) = curve[i];
    if x == epoch {
        return Some(y);
    }
    let (x0, y0, _) = curve[i.checked_sub(1)?];
    Some(y0 + (y - y0) * (epoch - x0) / (x - x0))
}

/// The first epoch and the end of the shorter curve; none if a curve is empty. Methods without fine-tuning are ignored.
fn target_epochs(pair: [&Summary; 2]) -> impl Iterator<Item = f64> {
    let ends = pair.map(|s| s.curve.last().map(|point| point.0));
    let ends = ends.into_iter().collect::<Option<Vec<f64>>>();
    let ends = ends.unwrap_or_default().into_iter();
    let end = ends.filter(|&end| end > 0.0).reduce(f64::min);
    let first = end.filter(|&end| end > 1.0).map(|_| 1.0);
    first.into_iter().chain(end)
}

#[cfg(test)]
#[path = "break_even_tests.rs"]
mod tests;
