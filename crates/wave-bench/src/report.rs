//! The report of a bench: `report.md`, `report.html`, `report.json`, and plots as SVG.
//!
//! Rows of single trainings become statistics (`summary.rs`, `gains.rs`, `targets.rs`,
//! `break_even.rs`), statistics a document (`tables.rs`, `sections.rs`, `plots.rs`), and the document
//! Markdown and HTML.

use anyhow::Result;
use document::Document;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tables::Found;

mod break_even;
mod document;
#[cfg(test)]
mod fixture;
mod gains;
mod html;
mod plots;
mod sections;
mod spread;
mod statistics;
mod summary;
mod tables;
mod targets;

/// One training of the grid.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Row {
    /// The method's name.
    pub method: String,
    /// The data set of its fine-tuning; empty where there is only one.
    pub dataset: String,
    /// Blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Seed.
    pub seed: u64,
    /// Epochs of fine-tuning.
    pub epochs: f64,
    /// Final accuracy, 0..=1.
    pub top1: f64,
    /// Accuracy before fine-tuning.
    pub start_top1: f64,
    /// Values inherited before fine-tuning.
    pub transferred_parameters: usize,
    /// Values stored to start a model of any size by this method.
    pub stored_parameters: usize,
    /// Scalers fitted before fine-tuning.
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
    /// Learning rates with held-out accuracies; empty where the recipe gives the rate.
    pub grid: Vec<(f64, f64)>,
}

/// Name of a template directory, and depth, width and accuracy of models composed from it without data.
pub type WithoutData = (String, Vec<(usize, usize, f64)>);

/// See [`Findings::shared_work`].
pub type Work<'a> = dyn Fn(Option<&str>, (usize, usize)) -> f64 + 'a;

/// Contents of a report.
pub struct Findings<'a> {
    /// The recipe's name.
    pub name: &'a str,
    /// The methods, in the recipe's order.
    pub methods: &'a [String],
    /// The method that the report is about.
    pub subject: Option<&'a str>,
    /// Depths and widths.
    pub sizes: &'a [(usize, usize)],
    /// The data sets; one empty name where there is only one.
    pub datasets: &'a [String],
    /// Parameters of a model, given depth and width.
    pub parameters: &'a dyn Fn(usize, usize) -> usize,
    /// Multiply-adds of an image, given depth and width.
    pub multiply_adds: &'a dyn Fn(usize, usize) -> usize,
    /// Seeds of each method at each size.
    pub seeds: &'a [u64],
    /// Condensations of each method, with seeds of their own.
    pub condensations: usize,
    /// The learning rate of each method.
    pub rates: &'a [Rates],
    /// Complete trainings.
    pub rows: &'a [Row],
    /// Failed trainings.
    pub failures: &'a [Failure],
    /// Methods to list side by side, by title.
    pub ablations: &'a BTreeMap<String, Vec<String>>,
    /// Pairs of a method and its rival, whose curves are compared.
    pub break_even: &'a [(String, String)],
    /// The templates of the models.
    pub templates: &'a [WithoutData],
    /// Epochs of the ancestor's training.
    pub ancestor_epochs: f64,
    /// Epochs of a model of this depth and width that have as many multiply-adds as a method spends
    /// once for all sizes, or, without a method, as the ancestor's training.
    pub shared_work: &'a Work<'a>,
}

/// Contents of `report.json`. Accuracies are fractions.
#[derive(Serialize)]
struct Data<'a> {
    name: &'a str,
    methods: &'a [String],
    subject: Option<&'a str>,
    sizes: Vec<Size>,
    datasets: &'a [String],
    seeds: &'a [u64],
    condensations: usize,
    ancestor_epochs: f64,
    accuracies: &'a [summary::Summary],
    lengths: &'a [summary::Length],
    gains: &'a [gains::Gain],
    spreads: &'a [spread::Spread],
    costs: &'a [summary::Cost],
    epochs_to_accuracy: &'a [targets::Targets],
    break_even: &'a [break_even::BreakEven],
    total_epochs: &'a [break_even::Totals],
    ablations: &'a BTreeMap<String, Vec<String>>,
    learning_rates: &'a [Rates],
    templates: &'a [WithoutData],
    failures: &'a [Failure],
}

#[derive(Serialize)]
struct Size {
    depth: usize,
    width: usize,
    parameters: usize,
}

/// Writes `report.md`, `report.json`, `report.html` and the plots into the directory `out`; returns the
/// Markdown.
///
/// Rows whose method, size or data set is not in `findings` are left out.
///
/// # Errors
/// If a file cannot be written, or a plot cannot be drawn.
pub fn write(findings: &Findings, out: &Path) -> Result<String> {
    let summaries = summary::Summaries::new(findings);
    let costs = summary::costs(findings, &summaries);
    let lengths = summary::lengths(findings, &costs);
    let gains = gains::gains(findings, &summaries, &costs, &lengths);
    let targets = targets::targets(findings, &summaries);
    let spreads = spread::spreads(findings, &summaries);
    let pairs = break_even::break_even(findings, &summaries);
    let totals = break_even::totals(findings, &summaries, &costs);

    let found = Found {
        findings,
        summaries: &summaries,
        costs: &costs,
        lengths: &lengths,
        gains: &gains,
    };
    let drawn = plots::sizes(findings, &summaries)?;
    let mut sections = Vec::from_iter(sections::finding(findings, &summaries, drawn));
    sections.extend(tables::accuracy(&found));
    sections.extend(spread::section(&spreads));
    sections.extend(sections::failures(findings));
    sections.push(tables::costs(&found));
    sections.extend(sections::kept(plots::kept(findings, &summaries)?));
    let curves = plots::curves(findings, &summaries)?;
    sections.extend(sections::curves(&summaries, curves));
    sections.extend(sections::targets(&targets));
    let lines = plots::totals(&totals)?;
    sections.extend(sections::break_even(findings, &pairs, lines));
    sections.extend(tables::ablations(&found));
    sections.extend(sections::rates(findings));
    sections.extend(sections::templates(findings));
    sections.push(sections::notes(findings));
    let document = Document {
        title: findings.name.to_owned(),
        sections,
    };

    let size = |&(depth, width): &(usize, usize)| Size {
        depth,
        width,
        parameters: (findings.parameters)(depth, width),
    };
    let data = Data {
        name: findings.name,
        methods: findings.methods,
        subject: findings.subject,
        sizes: findings.sizes.iter().map(size).collect(),
        datasets: findings.datasets,
        seeds: findings.seeds,
        condensations: findings.condensations,
        ancestor_epochs: findings.ancestor_epochs,
        accuracies: &summaries.0,
        lengths: &lengths,
        gains: &gains,
        spreads: &spreads,
        costs: &costs,
        epochs_to_accuracy: &targets,
        break_even: &pairs,
        total_epochs: &totals,
        ablations: findings.ablations,
        learning_rates: findings.rates,
        templates: findings.templates,
        failures: findings.failures,
    };
    for plot in document.plots() {
        wave_hub::write_atomic(&out.join(&plot.file), plot.svg.as_bytes())?;
    }
    wave_hub::write_json(&out.join("report.json"), &data)?;
    wave_hub::write_atomic(&out.join("report.html"), html::page(&document).as_bytes())?;
    let text = document.markdown();
    wave_hub::write_atomic(&out.join("report.md"), text.as_bytes())?;
    Ok(text)
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
