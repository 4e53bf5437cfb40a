//! The sections below the tables of accuracy: time, break-even, and the origin of the numbers.

use super::break_even::BreakEven;
use super::document::{Block, Cell, Plot, Section, Table};
use super::summary::{Size, Summaries, Summary};
use super::tables::{number, plural, seeds};
use super::targets::{Reach, Targets};
use super::{Findings, Rates, WithoutData};
use std::collections::BTreeMap;

/// Most points of a curve that is also given in numbers.
const MOST_POINTS: usize = 21;

/// A text with the plots below it; nothing without plots.
fn drawn(text: &str, plots: Vec<Plot>) -> Option<Vec<Block>> {
    let text = std::iter::once(Block::Text(text.to_owned()));
    (!plots.is_empty()).then(|| text.chain(plots.into_iter().map(Block::Plot)).collect())
}

/// The finding in a sentence for each data set, with accuracy over sizes as plots.
pub(super) fn finding(
    findings: &Findings,
    summaries: &Summaries,
    plots: Vec<Plot>,
) -> Option<Section> {
    let sentences = findings.datasets.iter();
    let sentences = sentences.filter_map(|dataset| sentence(findings, summaries, dataset));
    let mut blocks: Vec<Block> = sentences.map(Block::Text).collect();
    let text =
        "Mean over seeds; shaded, the standard deviation. Methods that matter less here are grey.";
    blocks.extend(drawn(text, plots).unwrap_or_default());
    (!blocks.is_empty()).then(|| Section::new("In short", blocks))
}

/// A method's results on a data set.
fn by_size<'a>(all: &'a Summaries, method: &str, dataset: &str) -> BTreeMap<Size, &'a Summary> {
    let own = |s: &&Summary| s.method == method && s.dataset == dataset;
    let all = all.0.iter().filter(own);
    all.map(|s| ((s.depth, s.width), s)).collect()
}

/// The subject beside the most accurate other method, on average over the sizes that both have.
fn sentence(findings: &Findings, summaries: &Summaries, dataset: &str) -> Option<String> {
    let subject = findings.subject?;
    let own = by_size(summaries, subject, dataset);
    let compared = |rival: &str| {
        let theirs = by_size(summaries, rival, dataset);
        let pairs = own
            .iter()
            .filter_map(|(size, own)| Some((*own, *theirs.get(size)?)));
        // What was trained for longer is another question.
        let pairs: Vec<_> = pairs.filter(|(a, b)| a.epochs == b.epochs).collect();
        let lead = pairs.iter().map(|(a, b)| a.top1 - b.top1).sum::<f64>() / pairs.len() as f64;
        (!pairs.is_empty()).then_some((lead, pairs))
    };
    let others = findings.methods.iter().filter(|m| *m != subject);
    let all = others.filter_map(|m| Some((m, compared(m)?)));
    // The one with the most sizes in common, and of several the most accurate.
    let order = |(_, (lead, pairs)): &(_, (f64, Vec<_>))| (std::cmp::Reverse(pairs.len()), *lead);
    let (rival, (lead, pairs)) = all.min_by(|a, b| {
        let (a, b) = (order(a), order(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    })?;
    let range = |top1: &dyn Fn(&(&Summary, &Summary)) -> f64| {
        let all = pairs.iter().map(top1);
        let (low, high) = (all.clone().fold(1.0, f64::min), all.fold(0.0, f64::max));
        match high - low < 5e-4 {
            true => format!("{:.1} %", 100.0 * high),
            false => format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high),
        }
    };
    let side = if lead < 0.0 { "behind" } else { "ahead of" };
    let data = match dataset {
        "" => String::new(),
        dataset => format!("On {dataset}, "),
    };
    Some(format!(
        "{data}{subject} has {} after {} of fine-tuning at {}, {:.1} points {side} the best other method \
         there, {rival}, with {}.",
        range(&|p| p.0.top1),
        plural(pairs[0].0.epochs, "epoch"),
        match &pairs[..] {
            [(s, _)] => format!("{} x {}", s.depth, s.width),
            _ => format!("{} sizes", pairs.len()),
        },
        100.0 * lead.abs(),
        range(&|p| p.1.top1),
    ))
}

/// Accuracy over stored values, as plots.
pub(super) fn kept(plots: Vec<Plot>) -> Option<Section> {
    let text = "Values that have to be kept so that a model of any size can be started: templates, \
                scalers and what travels with them, or donors. Four bytes each as f32.";
    Some(Section::new(
        "Accuracy by what is kept",
        drawn(text, plots)?,
    ))
}

/// The plots and numbers of the curves.
pub(super) fn curves(summaries: &Summaries, plots: Vec<Plot>) -> Option<Section> {
    let text = "Mean over seeds; shaded, the standard deviation. A start below half of all that follows \
                is not drawn.";
    let mut blocks = drawn(text, plots)?;
    let written = summaries
        .0
        .iter()
        .filter(|s| s.is_long() && s.curve.len() <= MOST_POINTS);
    let items: Vec<String> = written
        .map(|s| {
            let curve = s
                .curve
                .iter()
                .map(|(_, top1, _)| format!("{:.2}", 100.0 * top1));
            let curve: Vec<String> = curve.collect();
            let place = place(&s.dataset, s.depth, s.width);
            format!("{place}, {}: {}", s.method, curve.join(", "))
        })
        .collect();
    if !items.is_empty() {
        let text = "Top-1 in % at the start and after each test:";
        blocks.push(Block::Text(text.to_owned()));
        blocks.push(Block::List(items));
    }
    Some(Section::new("Accuracy by epoch", blocks))
}

/// A table for each size: epochs of each method to the subject's final accuracy, and to parts of it.
pub(super) fn targets(all: &[Targets]) -> Option<Section> {
    if all.is_empty() {
        return None;
    }
    let text = "The first epoch of fine-tuning at which the mean curve has reached an accuracy, on \
                the line between the epochs that were tested. Epochs before fine-tuning are not \
                counted. Learning rates fall towards the end of each run: a shorter run would be \
                further at the same epoch.";
    let mut blocks = vec![Block::Text(text.to_owned())];
    for t in all {
        let place = place(&t.dataset, t.depth, t.width);
        let intro = format!("{place}; first, what {} has at its end:", t.leader);
        blocks.push(Block::Text(intro));
        let targets = t
            .targets
            .iter()
            .map(|target| format!("{:.2} %", 100.0 * target));
        let row = |(method, reaches): &(String, Vec<Reach>)| -> Vec<Cell> {
            let mut cells: Vec<Cell> = vec![method.as_str().into()];
            cells.extend(reaches.iter().map(|reach| Cell::from(epoch(*reach))));
            cells
        };
        blocks.push(Block::Table(Table {
            columns: std::iter::once("method".to_owned())
                .chain(targets)
                .collect(),
            rows: t.methods.iter().map(row).collect(),
        }));
    }
    Some(Section::new("Epochs to an accuracy", blocks))
}

fn epoch(reach: Reach) -> String {
    match reach {
        Reach {
            reached: true,
            epochs: 0.0,
        } => "0, at the start".to_owned(),
        Reach {
            reached: true,
            epochs,
        } => format!("{epochs:.2}"),
        Reach { epochs, .. } => format!("not within {}", number(epochs)),
    }
}

/// Break-even of each method with its rival.
pub(super) fn break_even(
    findings: &Findings,
    all: &[BreakEven],
    plots: Vec<Plot>,
) -> Option<Section> {
    if findings.break_even.is_empty() {
        return None;
    }
    let text = format!(
        "n models cost what is spent once, and n times what is spent before the fine-tuning of each \
         and until it has reached an accuracy: that of the method after its first epoch, or at the \
         end of the shorter of both curves. Costs are epochs of a model of that size: what is spent \
         once counts by its images and their multiply-adds, forward (a training step takes three times \
         that). With the ancestor: the {} of its training are added to the method's alone.",
        plural(findings.ancestor_epochs, "epoch")
    );
    let mut blocks = vec![Block::Text(text)];
    if all.is_empty() {
        let text = "No two methods of a pair have curves at one size.".to_owned();
        blocks.push(Block::Text(text));
        return Some(Section::new("Break-even", blocks));
    }
    let row = |b: &BreakEven| -> Vec<Cell> {
        let cells = [
            place(&b.dataset, b.depth, b.width),
            b.method.clone(),
            b.rival.clone(),
            format!(
                "{:.2} % (epoch {})",
                100.0 * b.target,
                number(b.target_epoch)
            ),
            epoch(b.method_reach),
            epoch(b.rival_reach),
            b.crossing.describe(),
            b.crossing_with_ancestor.describe(),
        ];
        cells.into_iter().map(Cell::from).collect()
    };
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
    blocks.push(Block::Table(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: all.iter().map(row).collect(),
    }));
    blocks.extend(plots.into_iter().map(Block::Plot));
    Some(Section::new("Break-even", blocks))
}

/// The failed trainings.
pub(super) fn failures(findings: &Findings) -> Option<Section> {
    if findings.failures.is_empty() {
        return None;
    }
    let items = findings
        .failures
        .iter()
        .map(|f| format!("{}: {}", f.cell, f.error));
    Some(Section::new("Failures", vec![Block::List(items.collect())]))
}

/// The learning rate of each method, with its trials.
pub(super) fn rates(findings: &Findings) -> Option<Section> {
    if findings.rates.is_empty() {
        return None;
    }
    let text = "Chosen by the accuracy on held-out training images where a grid is given.";
    let items = findings.rates.iter().map(rate).collect();
    let blocks = vec![Block::Text(text.to_owned()), Block::List(items)];
    Some(Section::new("Learning rates", blocks))
}

fn rate(rates: &Rates) -> String {
    let Rates { method, lr, grid } = rates;
    if grid.is_empty() {
        return format!("{method}: {lr:e} (given)");
    }
    let tried: Vec<String> = grid
        .iter()
        .map(|(lr, top1)| format!("{lr:e}: {:.2} %", 100.0 * top1))
        .collect();
    let edge = match (
        grid.len() > 2,
        grid.iter().all(|g| g.0 >= *lr),
        grid.iter().all(|g| g.0 <= *lr),
    ) {
        (true, true, _) => "; the lowest of them, so that a lower one may be better",
        (true, _, true) => "; the highest of them, so that a higher one may be better",
        _ => "",
    };
    format!("{method}: {lr:e} of {}{edge}", tried.join(", "))
}

/// Accuracies of models composed from the templates without training.
pub(super) fn templates(findings: &Findings) -> Option<Section> {
    if findings.templates.is_empty() {
        return None;
    }
    let text = "Top-1 in % of models made from them without data, by depth x width.";
    let item = |(name, accuracies): &WithoutData| {
        let accuracies: Vec<String> = accuracies
            .iter()
            .map(|(depth, width, top1)| format!("{depth} x {width}: {:.2}", 100.0 * top1))
            .collect();
        format!("{name}: {}", accuracies.join(", "))
    };
    let items = findings.templates.iter().map(item).collect();
    let blocks = vec![Block::Text(text.to_owned()), Block::List(items)];
    Some(Section::new("Templates", blocks))
}

/// Notes on how the numbers are made.
pub(super) fn notes(findings: &Findings) -> Section {
    let mut items = vec![
        "Accuracy is that on all test images after the last step of fine-tuning: no epoch is chosen \
         by it."
            .to_owned(),
        format!(
            "Of {}, each gives all methods the same order of batches: differences are paired by seed.",
            seeds(findings.seeds)
        ),
        "A standard deviation is that of a sample (divided by n - 1).".to_owned(),
        "Epochs before fine-tuning leave out the ancestor's, but where they are named.".to_owned(),
    ];
    if findings.condensations > 1 {
        items.push(format!(
            "{} condensations with seeds of their own: the seeds take them in turn, so that the \
             deviation covers both.",
            findings.condensations
        ));
    }
    if findings.ancestor_epochs > 0.0 {
        items.push(format!(
            "The ancestor was trained for {}.",
            plural(findings.ancestor_epochs, "epoch")
        ));
    }
    Section::new("How these numbers are made", vec![Block::List(items)])
}

fn place(dataset: &str, depth: usize, width: usize) -> String {
    match dataset {
        "" => format!("{depth} x {width}"),
        dataset => format!("{dataset}, {depth} x {width}"),
    }
}

#[cfg(test)]
#[path = "sections_tests.rs"]
mod tests;
