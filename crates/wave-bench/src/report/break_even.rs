//! Break-even points: the number of models from which one method is cheaper than another.
//!
//! n models cost `shared + n (own + tuned)` epochs of a model of that size: `shared` once for all models, `own`
//! before the fine-tuning of each, and `tuned` in fine-tuning up to an accuracy. The shared epochs train networks of
//! other sizes, and are converted to this size by multiply-adds.

use super::curves::{Reach, value_at};
use super::page::Page;
use super::summary::Summary;
use super::{Findings, Found, number, plural};

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

/// Break-even of each method with its rivals: each pair at each size where both have curves, at two
/// targets, the method's accuracy after its first epoch, and at the end of the shorter curve.
pub(super) fn section(page: &mut Page, found: &Found) {
    let findings = found.findings;
    if findings.break_even.is_empty() {
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
    let mut rows = Vec::new();
    for (dataset, size) in found.findings.places() {
        for (method, rival) in &found.findings.break_even {
            let get = |name| found.summaries.get(dataset, name, size);
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
    let (reach, rival) = (Reach::new(own, target)?, Reach::new(other, target)?);
    let line = |s: &Summary, reach: Reach| Line {
        shared: (findings.shared_work)(Some(&s.method), s.size),
        each: s.own_epochs + reach.epochs,
    };
    let alone = line(own, reach);
    let with_ancestor = Line {
        shared: alone.shared + (findings.shared_work)(None, own.size),
        ..alone
    };
    let cheaper = |method| cheaper(method, line(other, rival), rival.reached);
    Some(vec![
        own.place(),
        own.method.clone(),
        other.method.clone(),
        format!("{:.2} % (epoch {})", 100.0 * target, number(epoch)),
        reach.words(),
        rival.words(),
        cheaper(alone),
        cheaper(with_ancestor),
    ])
}

/// The first epoch, and the end of the shorter curve; none if a curve is empty. Methods without fine-tuning are
/// ignored.
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
