//! The report of a bench: `report.md`, and plots as SVG. Other programs read `rows.json`, next to it.
//!
//! Rows of single trainings are aggregated into statistics (`summary.rs`), which become the sections of a page
//! (`page.rs`): tables (`tables.rs`, `gains.rs`), curves (`curves.rs`), break-even points (`break_even.rs`) and plots
//! (`plots.rs`).

use anyhow::Result;
use page::Page;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use summary::{Cost, Length, Size, Summaries, Summary};

mod break_even;
mod curves;
#[cfg(test)]
mod fixture;
mod gains;
mod page;
mod plots;
mod statistics;
mod summary;
mod tables;

/// One training run of the grid.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Row {
    /// The method's name.
    pub method: String,
    /// The data set of its fine-tuning; empty if there is only one.
    pub dataset: String,
    /// Number of blocks.
    pub depth: usize,
    /// Token width, in channels.
    pub width: usize,
    /// Seed.
    pub seed: u64,
    /// Epochs of fine-tuning.
    pub epochs: f64,
    /// Final accuracy, 0..=1.
    pub top1: f64,
    /// Accuracy before fine-tuning.
    pub start_top1: f64,
    /// Number of values inherited before fine-tuning.
    pub transferred_parameters: usize,
    /// Number of values stored to initialise a model of any size with this method.
    pub stored_parameters: usize,
    /// Number of scalers fitted before fine-tuning.
    pub scalers_fitted: usize,
    /// Epochs spent once for all sizes (condensing, training a donor), without the ancestor's.
    pub shared_epochs: f64,
    /// Epochs spent for each model before fine-tuning (pretraining, fitting scalers).
    pub own_epochs: f64,
    /// Peak learning rate.
    pub lr: f64,
    /// Epoch and accuracy during training, from `(0, start_top1)`.
    pub curve: Vec<(f64, f64)>,
    /// Wall time in seconds.
    pub seconds: f64,
    /// Hash of everything that determines the row.
    pub fingerprint: String,
}

/// A training that failed.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Failure {
    /// Name of its cell.
    pub cell: String,
    /// The error.
    pub error: String,
}

/// A method's learning rate.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Rates {
    /// The method's name.
    pub method: String,
    /// The chosen learning rate.
    pub lr: f64,
    /// Learning rates with held-out accuracies; empty if the recipe gives the rate.
    pub grid: Vec<(f64, f64)>,
}

/// Name of a template directory, and depth, width and accuracy of models composed from it without data.
pub type WithoutData = (String, Vec<(usize, usize, f64)>);

/// See [`Findings::shared_work`].
pub type Work<'a> = dyn Fn(Option<&str>, (usize, usize)) -> f64 + 'a;

/// Contents of a report.
pub struct Findings<'a> {
    /// The recipe's name.
    pub name: String,
    /// The methods, in the recipe's order.
    pub methods: Vec<String>,
    /// The method that the report is about.
    pub subject: String,
    /// Depths and widths.
    pub sizes: Vec<(usize, usize)>,
    /// The data sets; one empty name where there is only one.
    pub datasets: Vec<String>,
    /// Parameters of a model, given depth and width.
    pub parameters: &'a dyn Fn(usize, usize) -> usize,
    /// Seeds of each method at each size.
    pub seeds: Vec<u64>,
    /// Condensations per method, each with its own seed.
    pub condensations: usize,
    /// The learning rate of each method.
    pub rates: Vec<Rates>,
    /// Complete trainings.
    pub rows: Vec<Row>,
    /// Failed trainings.
    pub failures: Vec<Failure>,
    /// Methods to list side by side, by title.
    pub ablations: BTreeMap<String, Vec<String>>,
    /// Pairs of a method and its rival, whose curves are compared.
    pub break_even: Vec<(String, String)>,
    /// Accuracies without data, for each template directory of the bench.
    pub templates: Vec<WithoutData>,
    /// Epochs of the ancestor's training.
    pub ancestor_epochs: f64,
    /// Multiply-adds that a method spends once for all sizes (without a method, that the ancestor's training took), as
    /// epochs of a model of this depth and width.
    pub shared_work: &'a Work<'a>,
}

impl Findings<'_> {
    /// All pairs of a data set and a size.
    fn places(&self) -> impl Iterator<Item = (&str, Size)> {
        let datasets = self.datasets.iter();
        datasets.flat_map(move |dataset| self.sizes.iter().map(move |size| (&**dataset, *size)))
    }
}

struct Found<'a> {
    findings: &'a Findings<'a>,
    summaries: Summaries,
    costs: Vec<Cost>,
    lengths: Vec<Length>,
}

impl<'a> Found<'a> {
    fn new(findings: &'a Findings<'a>) -> Found<'a> {
        let summaries = Summaries::new(findings);
        let costs = summary::costs(findings, &summaries);
        Found {
            findings,
            lengths: summary::lengths(findings, &costs),
            costs,
            summaries,
        }
    }
}

/// Writes `report.md` and the plots into the directory `out`; returns the Markdown.
///
/// Rows whose method, size or data set is not in `findings` are left out.
///
/// # Errors
/// If a file cannot be written, or a plot cannot be drawn.
pub fn write(findings: &Findings, out: &Path) -> Result<String> {
    let found = &Found::new(findings);
    let page = &mut Page::new(&findings.name, out);
    let sentences = findings.datasets.iter();
    let sentences: Vec<String> = sentences.filter_map(|data| sentence(found, data)).collect();
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
    tables::costs(page, found);
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
    if !findings.templates.is_empty() {
        page.section("Templates");
        page.paragraph(
            "Top-1 in % of models made from these templates without data, by depth x width.",
        );
        page.list(findings.templates.iter().map(without_data));
    }
    page.section("Notes");
    page.list(notes(findings));
    page.finish()
}

/// The title of the first section.
const SHORT: &str = "In short";

/// Compares the subject with the most accurate other method, on average over the sizes that both have.
fn sentence(found: &Found, dataset: &str) -> Option<String> {
    let subject = &found.findings.subject;
    let own = || found.summaries.on(dataset, subject);
    let compared = |rival: &String| {
        let pairs = own().filter_map(|s| Some((s, found.summaries.get(dataset, rival, s.size)?)));
        // Compare only trainings of equal length.
        let pairs: Vec<_> = pairs.filter(|(a, b)| a.epochs == b.epochs).collect();
        let lead = pairs.iter().map(|(a, b)| a.top1 - b.top1).sum::<f64>() / pairs.len() as f64;
        (!pairs.is_empty()).then_some((rival.clone(), lead, pairs))
    };
    let others = found.findings.methods.iter().filter(|m| *m != subject);
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
    let Rates { method, lr, grid } = rates;
    if grid.is_empty() {
        return format!("{method}: {lr:e} (given)");
    }
    let tried = grid.iter();
    let tried: Vec<String> = tried
        .map(|(lr, top1)| format!("{lr:e}: {:.2} %", 100.0 * top1))
        .collect();
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

/// Accuracies of models composed from templates without training.
fn without_data((name, accuracies): &WithoutData) -> String {
    let size = |(depth, width, top1): &(usize, usize, f64)| {
        format!("{depth} x {width}: {:.2}", 100.0 * top1)
    };
    let accuracies: Vec<String> = accuracies.iter().map(size).collect();
    format!("{name}: {}", accuracies.join(", "))
}

fn notes(findings: &Findings) -> Vec<String> {
    let mut items = vec![
        "Accuracy is measured on all test images after the last step of fine-tuning; no epoch is \
         selected by it."
            .to_owned(),
        format!(
            "Each of {} gives all methods the same order of batches, so differences are paired by \
             seed.",
            seeds(&findings.seeds)
        ),
        "Standard deviations are sample standard deviations (divided by n - 1).".to_owned(),
        "Epochs before fine-tuning exclude the ancestor's training unless stated otherwise."
            .to_owned(),
    ];
    if findings.condensations > 1 {
        items.push(format!(
            "{} condensations with different seeds: the runs use them in turn, so the standard \
             deviation covers both.",
            findings.condensations
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
