//! The report of a bench: `report.md`, and plots as SVG. Other programs read `rows.json`, next to it.
//!
//! Rows of single trainings are aggregated into statistics (`summary.rs`), which become the sections of a page
//! (`page.rs`): tables (`tables.rs`, `gains.rs`), break-even points (`break_even.rs`) and plots (`plots.rs`).

use crate::grid::Grid;
use anyhow::Result;
use page::Page;
use serde::{Deserialize, Serialize};
use std::path::Path;
use summary::{Found, Summary};

mod break_even;
#[cfg(test)]
mod fixture;
mod gains;
mod page;
mod plots;
mod statistics;
mod summary;
mod tables;

/// One training run of the grid; FORMATS.md describes its fields.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) method: String,
    pub(crate) dataset: String,
    pub(crate) depth: usize,
    pub(crate) width: usize,
    pub(crate) seed: u64,
    pub(crate) epochs: f64,
    pub(crate) top1: f64,
    pub(crate) start_top1: f64,
    pub(crate) transferred_parameters: usize,
    pub(crate) stored_parameters: usize,
    pub(crate) scalers_fitted: usize,
    pub(crate) shared_epochs: f64,
    pub(crate) own_epochs: f64,
    pub(crate) lr: f64,
    pub(crate) curve: Vec<(f64, f64)>,
    pub(crate) seconds: f64,
    pub(crate) fingerprint: String,
}

/// The name of a cell whose training failed, and the error.
pub(crate) struct Failure {
    pub(crate) cell: String,
    pub(crate) error: String,
}

/// The learning rate of a method on a data set.
pub(crate) struct Rates {
    pub(crate) method: String,
    pub(crate) dataset: String,
    /// The chosen learning rate.
    pub(crate) lr: f64,
    /// Learning rates with held-out accuracies; empty if the recipe gives the rate.
    pub(crate) grid: Vec<(f64, f64)>,
}

/// See [`Findings::shared_work`].
pub(crate) type Work<'a> = dyn Fn(Option<&str>, (usize, usize)) -> f64 + 'a;

/// Contents of a report.
pub(crate) struct Findings<'a> {
    /// The recipe's name.
    pub(crate) name: &'a str,
    pub(crate) grid: Grid,
    /// Parameters of a model, given depth and width.
    pub(crate) parameters: &'a dyn Fn(usize, usize) -> usize,
    pub(crate) rates: &'a [Rates],
    pub(crate) rows: Vec<Row>,
    pub(crate) failures: &'a [Failure],
    /// Epochs of the ancestor's training.
    pub(crate) ancestor_epochs: f64,
    /// Multiply-adds that a method spends once for all sizes (without a method, that the ancestor's training took), as
    /// epochs of a model of this depth and width.
    pub(crate) shared_work: &'a Work<'a>,
}

/// Writes `report.md` and the plots into the directory `out`; returns the Markdown. Rows whose method, size or data set
/// is not in the grid are left out.
pub(crate) fn write(findings: &Findings, out: &Path) -> Result<String> {
    let found = &Found::new(findings);
    let page = &mut Page::new(findings.name, out);
    let datasets = findings.grid.datasets.iter();
    let sentences = datasets.filter_map(|(name, _)| sentence(found, name));
    let sentences: Vec<String> = sentences.collect();
    if !sentences.is_empty() {
        page.section(SHORT);
        sentences.iter().for_each(|text| page.paragraph(text));
    }
    let section = if sentences.is_empty() { SHORT } else { "" };
    plots::sizes(page, found, section)?;
    tables::accuracy(page, found);
    if !findings.failures.is_empty() {
        page.section("Failures");
        let failure = |f: &Failure| format!("{}: {}", f.cell, f.error);
        page.list(findings.failures.iter().map(failure));
    }
    plots::curves(page, found)?;
    break_even::section(page, found);
    tables::ablations(page, found);
    if !findings.rates.is_empty() {
        page.section("Learning rates");
        page.paragraph(
            "Where a grid is given, the rate is chosen by the accuracy on held-out training \
             images.",
        );
        page.list(findings.rates.iter().map(rate));
    }
    page.section("Notes");
    page.list(notes(findings));
    page.finish()
}

/// The title of the first section.
const SHORT: &str = "In short";

/// Compares the subject with the most accurate other method, on average over the sizes that both have.
fn sentence(found: &Found, dataset: &str) -> Option<String> {
    let subject = found.findings.grid.subject();
    let compared = |rival: &String| {
        let own = found.on(dataset, subject);
        let pairs = own.filter_map(|s| Some((s, found.get(dataset, rival, s.size)?)));
        let pairs = pairs.filter(|(a, b)| summary::same_length(a.epochs, b.epochs));
        let pairs: Vec<_> = pairs.collect();
        let lead = pairs.iter().map(|(a, b)| a.top1 - b.top1).sum::<f64>() / pairs.len() as f64;
        (!pairs.is_empty()).then_some((rival.clone(), lead, pairs))
    };
    let others = found.findings.grid.names().filter(|m| *m != subject);
    // The rival with the most sizes in common; among several, the most accurate.
    let (rival, lead, pairs) = others
        .filter_map(compared)
        .min_by(|a, b| b.2.len().cmp(&a.2.len()).then(a.1.total_cmp(&b.1)))?;
    let range = |of: fn(&(&Summary, &Summary)) -> f64| {
        let all = pairs.iter().map(of);
        let (low, high) = (all.clone().fold(1.0, f64::min), all.fold(0.0, f64::max));
        match high - low < 5e-4 {
            true => format!("{:.1} %", 100.0 * high),
            false => format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high),
        }
    };
    let data = match dataset {
        "" => String::new(),
        dataset => format!("On {dataset}, "),
    };
    let sizes = match &pairs[..] {
        [(s, _)] => summary::words(s.size),
        _ => format!("{} sizes", pairs.len()),
    };
    Some(format!(
        "{data}{subject} has {} after {} of fine-tuning at {sizes}, {:.1} points {} the best other method \
         there, {rival}, with {}.",
        range(|p| p.0.top1),
        plural(pairs[0].0.epochs, "epoch"),
        100.0 * lead.abs(),
        if lead < 0.0 { "behind" } else { "ahead of" },
        range(|p| p.1.top1),
    ))
}

/// A method's learning rate, with its trials.
fn rate(rates: &Rates) -> String {
    let Rates { lr, grid, .. } = rates;
    let method = match rates.dataset.as_str() {
        "" => rates.method.clone(),
        dataset => format!("{} on {dataset}", rates.method),
    };
    if grid.is_empty() {
        return format!("{method}: {lr:e} (given)");
    }
    let trial = |(lr, top1): &(f64, f64)| format!("{lr:e}: {:.2} %", 100.0 * top1);
    let tried: Vec<String> = grid.iter().map(trial).collect();
    let several = grid.len() > 2;
    let edge = match (
        grid.iter().all(|g| g.0 >= *lr),
        grid.iter().all(|g| g.0 <= *lr),
    ) {
        (true, _) if several => "; the lowest tried, so a lower one may be better",
        (_, true) if several => "; the highest tried, so a higher one may be better",
        _ => "",
    };
    format!("{method}: {lr:e}, chosen from {}{edge}", tried.join(", "))
}

fn notes(findings: &Findings) -> Vec<String> {
    let bench = &findings.grid.bench;
    let seeds = seeds(&bench.seeds);
    let mut items = vec![
        "Accuracy is measured on all test images after the last step of fine-tuning; no epoch is \
         selected by it."
            .to_owned(),
        format!(
            "Each of {seeds} gives all methods the same order of batches, so differences are \
             paired by seed."
        ),
        "Standard deviations are sample standard deviations (divided by n - 1).".to_owned(),
        "Epochs before fine-tuning exclude the ancestor's training unless stated otherwise."
            .to_owned(),
    ];
    if bench.condensations > 1 {
        let n = bench.condensations;
        items.push(format!(
            "{n} condensations with different seeds: the runs use them in turn, so the standard \
             deviation covers both."
        ));
    }
    if findings.ancestor_epochs > 0.0 {
        let epochs = plural(findings.ancestor_epochs, "epoch");
        items.push(format!("The ancestor was trained for {epochs}."));
    }
    items
}

/// `seed 0`, `seeds 0, 1`.
fn seeds(seeds: &[u64]) -> String {
    let all: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let s = if all.len() == 1 { "" } else { "s" };
    format!("seed{s} {}", all.join(", "))
}

/// `1 epoch`, `2.5 epochs`.
fn plural(n: f64, unit: &str) -> String {
    let n = number(n);
    format!("{n} {unit}{}", if n == "1" { "" } else { "s" })
}

/// At most three decimals.
fn number(value: f64) -> String {
    format!("{}", (1e3 * value).round() / 1e3)
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
