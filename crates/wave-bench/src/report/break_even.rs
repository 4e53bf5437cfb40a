//! Break-even points: the number of models from which one method is cheaper than another.
//!
//! n models cost `shared + n (own + tuned)` epochs of a model of that size: spent once for all models,
//! before the fine-tuning of each, and in fine-tuning up to an accuracy. What is spent once trains
//! networks of other sizes, and counts as the epochs with as many multiply-adds.

use super::Findings;
use super::summary::{Cost, Size, Summaries, Summary};
use super::targets::{Reach, value_at};
use serde::Serialize;

/// Two methods at one size.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct BreakEven {
    pub(super) dataset: String,
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) method: String,
    pub(super) rival: String,
    /// The target of both: the method's accuracy ...
    pub(super) target: f64,
    /// ... after this many epochs.
    pub(super) target_epoch: f64,
    /// Epochs of the method to the target.
    pub(super) method_reach: Reach,
    /// Epochs of the rival to the target.
    pub(super) rival_reach: Reach,
    pub(super) crossing: Crossing,
    /// As `crossing`, with the ancestor's epochs added to what the method (not the rival) spends once.
    pub(super) crossing_with_ancestor: Crossing,
}

/// Epochs for models of one size.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct Line {
    /// Spent once.
    pub(super) shared: f64,
    /// Spent for each model.
    pub(super) each: f64,
}

impl Line {
    fn new(findings: &Findings, summary: &Summary, reach: Reach) -> Line {
        let size = (summary.depth, summary.width);
        Line {
            shared: (findings.shared_work)(Some(&summary.method), size),
            each: summary.own_epochs + reach.epochs,
        }
    }

    fn plus(self, shared: f64) -> Line {
        Line {
            shared: self.shared + shared,
            ..self
        }
    }

    /// Epochs for `n` models.
    pub(super) fn at(self, n: usize) -> f64 {
        self.shared + n as f64 * self.each
    }
}

/// The numbers of models for which a method costs no more than its rival.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Crossing {
    /// This number and more.
    From(f64),
    /// This number and more, perhaps fewer: the rival did not reach the target.
    FromAtMost(f64),
    /// This number and fewer.
    UpTo(f64),
    /// No number: the method costs at least as much, both once and for each model.
    Never,
    /// Unknown: the rival did not reach the target within epochs that cost less.
    Unknown,
}

impl Crossing {
    /// Of the method and the rival; `reached` is false where the rival's line is only a lower bound.
    pub(super) fn new(method: Line, rival: Line, reached: bool) -> Crossing {
        let ahead = method.shared - rival.shared;
        let saved = rival.each - method.each;
        match (saved > 0.0, ahead < 0.0) {
            (true, _) if reached => Crossing::From((ahead / saved).max(0.0)),
            (true, _) if ahead <= 0.0 => Crossing::From(0.0),
            (true, _) => Crossing::FromAtMost(ahead / saved),
            (false, true) if saved == 0.0 => Crossing::From(0.0),
            (false, _) if !reached => Crossing::Unknown,
            (false, true) => Crossing::UpTo(ahead / saved),
            (false, false) => Crossing::Never,
        }
    }

    /// In words.
    pub(super) fn describe(self) -> String {
        // Rounding errors must not add a model.
        let whole = |n: f64| (n - 1e-9).ceil().max(1.0);
        let from = |n: f64| match whole(n) {
            1.0 => "from the first model".to_owned(),
            more => format!("from {more} models ({n:.1})"),
        };
        match self {
            Crossing::From(n) => from(n),
            Crossing::FromAtMost(n) => format!("{} at the latest", from(n)),
            Crossing::UpTo(n) if n < 1.0 => "never".to_owned(),
            Crossing::UpTo(n) => format!("only up to {} models ({n:.1})", (n + 1e-9).floor()),
            Crossing::Never => "never".to_owned(),
            Crossing::Unknown => "not known".to_owned(),
        }
    }
}

/// Each pair at each size where both have curves, at two targets: the method's accuracy after its first
/// epoch, and at the end of the shorter curve.
pub(super) fn break_even(findings: &Findings, summaries: &Summaries) -> Vec<BreakEven> {
    let mut all = Vec::new();
    for dataset in findings.datasets {
        for &size in findings.sizes {
            for (method, rival) in findings.break_even {
                let own = summaries.get(dataset, method, size);
                let other = summaries.get(dataset, rival, size);
                if let (Some(own), Some(other)) = (own, other) {
                    let epochs = target_epochs(&[own, other]).into_iter();
                    all.extend(epochs.filter_map(|e| compare(findings, own, other, e)));
                }
            }
        }
    }
    all
}

fn compare(
    findings: &Findings,
    own: &Summary,
    other: &Summary,
    target_epoch: f64,
) -> Option<BreakEven> {
    let curve = own.mean_curve();
    let target = value_at(&curve, target_epoch)?;
    let method_reach = Reach::new(&curve, target)?;
    let rival_reach = Reach::new(&other.mean_curve(), target)?;
    let line = Line::new(findings, own, method_reach);
    let rival = Line::new(findings, other, rival_reach);
    let ancestor = (findings.shared_work)(None, (own.depth, own.width));
    let reached = rival_reach.reached;
    Some(BreakEven {
        dataset: own.dataset.clone(),
        depth: own.depth,
        width: own.width,
        method: own.method.clone(),
        rival: other.method.clone(),
        target,
        target_epoch,
        method_reach,
        rival_reach,
        crossing: Crossing::new(line, rival, reached),
        crossing_with_ancestor: Crossing::new(line.plus(ancestor), rival, reached),
    })
}

/// The first epoch, and the end of the shortest curve; nothing if a curve is empty. Methods without
/// fine-tuning do not count.
fn target_epochs(summaries: &[&Summary]) -> Vec<f64> {
    let ends = summaries
        .iter()
        .map(|s| s.curve.last().map(|point| point.0))
        .collect::<Option<Vec<f64>>>()
        .unwrap_or_default();
    let end = ends.into_iter().filter(|&end| end > 0.0).reduce(f64::min);
    let first = end.filter(|&end| end > 1.0).map(|_| 1.0);
    first.into_iter().chain(end).collect()
}

/// Total epochs against the number of models, for a method of the pairs and all its rivals.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Totals {
    pub(super) dataset: String,
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) method: String,
    /// The target of all: the method's accuracy ...
    pub(super) target: f64,
    /// ... after this many epochs.
    pub(super) target_epoch: f64,
    /// The lines with their names.
    pub(super) lines: Vec<(String, Line)>,
}

/// The lines of each method of the pairs at each size: its own, with and without the ancestor, its
/// rivals', and that of direct pretraining, known by a name such as "Direct PT".
pub(super) fn totals(findings: &Findings, summaries: &Summaries, costs: &[Cost]) -> Vec<Totals> {
    let mut methods: Vec<&String> = Vec::new();
    for (method, _) in findings.break_even {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    let direct = costs
        .iter()
        .filter(|cost| cost.own_epochs >= 1.0 && is_direct(&cost.method));
    let direct: Vec<&String> = direct.map(|cost| &cost.method).collect();
    let mut all = Vec::new();
    for dataset in findings.datasets {
        for &size in findings.sizes {
            for &method in &methods {
                let pairs = findings.break_even.iter();
                let rivals: Vec<&String> = pairs
                    .filter(|pair| &pair.0 == method)
                    .map(|pair| &pair.1)
                    .collect();
                all.extend(totals_at(
                    findings, summaries, dataset, size, method, &rivals, &direct,
                ));
            }
        }
    }
    all
}

/// The totals at one size, for each target.
fn totals_at(
    findings: &Findings,
    summaries: &Summaries,
    dataset: &str,
    size: Size,
    method: &str,
    rivals: &[&String],
    direct: &[&String],
) -> Vec<Totals> {
    let found = |names: &[&String]| {
        let here = names
            .iter()
            .filter_map(|name| summaries.get(dataset, name, size));
        here.filter(|s| !s.curve.is_empty()).collect::<Vec<_>>()
    };
    let Some(own) = summaries.get(dataset, method, size) else {
        return Vec::new();
    };
    let mut others = found(rivals);
    if others.is_empty() {
        return Vec::new();
    }
    let mut compared = others.clone();
    compared.push(own);
    let epochs = target_epochs(&compared).into_iter();
    others.extend(
        found(direct)
            .into_iter()
            .filter(|s| s.method != method && !rivals.contains(&&s.method)),
    );
    epochs
        .filter_map(|epoch| total(findings, own, &others, epoch))
        .collect()
}

fn total(
    findings: &Findings,
    own: &Summary,
    others: &[&Summary],
    target_epoch: f64,
) -> Option<Totals> {
    let curve = own.mean_curve();
    let target = value_at(&curve, target_epoch)?;
    let line = Line::new(findings, own, Reach::new(&curve, target)?);
    let mut lines = vec![(own.method.clone(), line)];
    if findings.ancestor_epochs > 0.0 {
        let name = format!("{} with the ancestor", own.method);
        let ancestor = (findings.shared_work)(None, (own.depth, own.width));
        lines.push((name, line.plus(ancestor)));
    }
    for other in others {
        let reach = Reach::new(&other.mean_curve(), target)?;
        let name = match reach.reached {
            true => other.method.clone(),
            false => format!("{} (at least)", other.method),
        };
        lines.push((name, Line::new(findings, other, reach)));
    }
    Some(Totals {
        dataset: own.dataset.clone(),
        depth: own.depth,
        width: own.width,
        method: own.method.clone(),
        target,
        target_epoch,
        lines,
    })
}

/// `Direct PT`, `direct-pt`, `direct`, ...
fn is_direct(method: &str) -> bool {
    let letters: String = method.chars().filter(char::is_ascii_alphabetic).collect();
    ["direct", "directpt"].contains(&&*letters.to_ascii_lowercase())
}

#[cfg(test)]
#[path = "break_even_tests.rs"]
mod tests;
