//! Break-even points: the number of models from which one method is cheaper than another.
//!
//! n models cost `shared + n (own + tuned)` epochs of a model of that size: `shared` once for all models, `own`
//! before the fine-tuning of each, and `tuned` in fine-tuning up to an accuracy. The shared epochs train networks of
//! other sizes, and are converted to this size by multiply-adds.

use super::curves::{Reach, value_at};
use super::page::Page;
use super::plots::{self, Line};
use super::summary::{Size, Summary};
use super::{Findings, Found, number, plural};
use anyhow::Result;

impl Line {
    fn new(findings: &Findings, summary: &Summary, reach: Reach) -> Line {
        Line {
            shared: (findings.shared_work)(Some(&summary.method), summary.size),
            each: summary.own_epochs + reach.epochs,
        }
    }

    /// Adds the ancestor's epochs to the shared ones.
    fn with_ancestor(self, findings: &Findings, size: Size) -> Line {
        Line {
            shared: self.shared + (findings.shared_work)(None, size),
            ..self
        }
    }

    /// Epochs for `n` models.
    pub(super) fn at(self, n: usize) -> f64 {
        self.shared + n as f64 * self.each
    }
}

/// The numbers of models for which a method costs no more than its rival.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Crossing {
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
    /// The crossing of the method's line with the rival's; `reached` is false if the latter is a lower bound.
    fn new(method: Line, rival: Line, reached: bool) -> Crossing {
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

    fn describe(self) -> String {
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

/// Methods compared at the accuracy that the first of them has after an epoch.
struct Race {
    target: f64,
    epoch: f64,
    reaches: Vec<Reach>,
    lines: Vec<Line>,
}

impl Race {
    /// `None` if any of them has no curve, or the first one's curve does not cover that epoch.
    fn new(findings: &Findings, methods: &[&Summary], epoch: f64) -> Option<Race> {
        let target = value_at(&methods.first()?.curve, epoch)?;
        let reaches = methods.iter().map(|s| Reach::new(s, target));
        let reaches: Vec<Reach> = reaches.collect::<Option<_>>()?;
        let lines = methods.iter().zip(&reaches);
        let lines = lines
            .map(|(s, reach)| Line::new(findings, s, *reach))
            .collect();
        Some(Race {
            target,
            epoch,
            reaches,
            lines,
        })
    }
}

/// Break-even of each method with its rivals: each pair at each size where both have curves, at two
/// targets, the method's accuracy after its first epoch, and at the end of the shorter curve.
pub(super) fn section(page: &mut Page, found: &Found) -> Result<()> {
    let findings = found.findings;
    if findings.break_even.is_empty() {
        return Ok(());
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
        return Ok(());
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
    totals(page, found)
}

fn rows(found: &Found) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (dataset, size) in found.findings.places() {
        for (method, rival) in &found.findings.break_even {
            let get = |name| found.summaries.get(dataset, name, size);
            if let (Some(own), Some(other)) = (get(method), get(rival)) {
                let pair = [own, other];
                let races = target_epochs(&pair).into_iter();
                let races = races.filter_map(|epoch| Race::new(found.findings, &pair, epoch));
                rows.extend(races.map(|race| row(found.findings, pair, &race)));
            }
        }
    }
    rows
}

fn row(findings: &Findings, [own, other]: [&Summary; 2], race: &Race) -> Vec<String> {
    let crossing = |line| Crossing::new(line, race.lines[1], race.reaches[1].reached).describe();
    vec![
        own.place(),
        own.method.clone(),
        other.method.clone(),
        format!(
            "{:.2} % (epoch {})",
            100.0 * race.target,
            number(race.epoch)
        ),
        race.reaches[0].words(),
        race.reaches[1].words(),
        crossing(race.lines[0]),
        crossing(race.lines[0].with_ancestor(findings, own.size)),
    ]
}

/// The first epoch, and the end of the shortest curve; empty if a curve is empty. Methods without fine-tuning are
/// ignored.
fn target_epochs(summaries: &[&Summary]) -> Vec<f64> {
    let ends = summaries.iter().map(|s| Some(s.curve.last()?.0));
    let ends = ends.collect::<Option<Vec<f64>>>().unwrap_or_default();
    let end = ends.into_iter().filter(|&end| end > 0.0).reduce(f64::min);
    let first = end.filter(|&end| end > 1.0).map(|_| 1.0);
    first.into_iter().chain(end).collect()
}

/// Plots total epochs against the number of models, for each method of the pairs at each size: the method itself,
/// with and without the ancestor, its rivals, and direct pretraining, recognised by a name such as "Direct PT".
fn totals(page: &mut Page, found: &Found) -> Result<()> {
    let findings = found.findings;
    let direct = found.costs.iter();
    let direct = direct.filter(|cost| cost.own_epochs >= 1.0 && is_direct(&cost.method));
    let direct: Vec<&String> = direct.map(|cost| &cost.method).collect();
    let mut methods: Vec<&String> = Vec::new();
    for (method, _) in &findings.break_even {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    for (dataset, size) in findings.places() {
        let get = |name: &String| {
            let summary = found.summaries.get(dataset, name, size);
            summary.filter(|s| !s.curve.is_empty())
        };
        for method in &methods {
            let rivals = findings.break_even.iter().filter(|pair| &pair.0 == *method);
            let rivals: Vec<&String> = rivals.map(|pair| &pair.1).collect();
            let mut all: Vec<&Summary> = rivals.iter().filter_map(|name| get(name)).collect();
            let Some(own) = get(method).filter(|_| !all.is_empty()) else {
                continue;
            };
            all.insert(0, own);
            let epochs = target_epochs(&all);
            let others = direct
                .iter()
                .filter(|name| *name != method && !rivals.contains(name));
            all.extend(others.filter_map(|name| get(name)));
            for epoch in epochs {
                if let Some(race) = Race::new(findings, &all, epoch) {
                    let lines = lines(findings, &all, &race);
                    plots::totals(page, own, (race.target, race.epoch), &lines)?;
                }
            }
        }
    }
    Ok(())
}

/// The lines of a race with their names.
fn lines(findings: &Findings, all: &[&Summary], race: &Race) -> Vec<(String, Line)> {
    let named = all.iter().zip(&race.reaches).zip(&race.lines);
    let named = named.map(|((s, reach), line)| match reach.reached {
        true => (s.method.clone(), *line),
        false => (format!("{} (at least)", s.method), *line),
    });
    let mut lines: Vec<(String, Line)> = named.collect();
    if findings.ancestor_epochs > 0.0 {
        let with = lines[0].1.with_ancestor(findings, all[0].size);
        lines.insert(1, (format!("{} with the ancestor", all[0].method), with));
    }
    lines
}

/// `Direct PT`, `direct-pt`, `direct`, ...
fn is_direct(method: &str) -> bool {
    let letters: String = method.chars().filter(char::is_ascii_alphabetic).collect();
    ["direct", "directpt"].contains(&&*letters.to_ascii_lowercase())
}

#[cfg(test)]
#[path = "break_even_tests.rs"]
mod tests;
