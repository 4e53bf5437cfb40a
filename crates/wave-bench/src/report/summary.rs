//! Statistics of single trainings over seeds.

use super::statistics::{deviation, mean};
use super::{Findings, Row};
use std::collections::BTreeMap;

/// Depth and width.
pub(super) type Size = (usize, usize);

/// Results of a method at one size on one data set, over seeds.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) dataset: String,
    pub(super) method: String,
    pub(super) size: Size,
    /// Epochs of fine-tuning.
    pub(super) epochs: f64,
    /// Mean final accuracy, 0..=1.
    pub(super) top1: f64,
    /// Its sample standard deviation; `None` for a single run.
    pub(super) deviation: Option<f64>,
    /// Mean accuracy before fine-tuning.
    pub(super) start_top1: f64,
    pub(super) transferred_parameters: usize,
    pub(super) stored_parameters: usize,
    pub(super) shared_epochs: f64,
    pub(super) own_epochs: f64,
    /// Epoch, mean accuracy, standard deviation (0 for a single run).
    pub(super) curve: Vec<(f64, f64, f64)>,
    /// Final accuracy by seed.
    pub(super) top1_by_seed: BTreeMap<u64, f64>,
}

/// A text with the name of its data set in front, unless the name is empty.
pub(super) fn on(dataset: &str, text: &str) -> String {
    match dataset {
        "" => text.to_owned(),
        dataset => format!("{dataset}, {text}"),
    }
}

/// A size in words.
pub(super) fn words((depth, width): Size) -> String {
    format!("{depth} x {width}")
}

/// Findings with their statistics.
pub(super) struct Found<'a> {
    pub(super) findings: &'a Findings<'a>,
    /// Every method at every size that has rows, in the order of data sets, sizes and methods.
    pub(super) summaries: Vec<Summary>,
}

impl<'a> Found<'a> {
    pub(super) fn new(findings: &'a Findings<'a>) -> Found<'a> {
        let mut groups: BTreeMap<(&str, Size, &str), Vec<&Row>> = BTreeMap::new();
        for row in &findings.rows {
            let key = (&*row.dataset, (row.depth, row.width), &*row.method);
            groups.entry(key).or_default().push(row);
        }
        let mut summaries = Vec::new();
        for (dataset, size) in findings.grid.places() {
            for method in findings.grid.names() {
                let rows = groups.get(&(dataset, size, &**method));
                summaries.extend(rows.map(|rows| summarise(rows)));
            }
        }
        Found {
            findings,
            summaries,
        }
    }

    /// The methods on a data set, in groups with equal epochs of fine-tuning: the subject's group first, each group in
    /// the recipe's order.
    pub(super) fn lengths(&self, dataset: &str) -> Vec<Vec<Cost>> {
        let grid = &self.findings.grid;
        let subject = grid.subject();
        let mut lengths: Vec<Vec<Cost>> = Vec::new();
        for cost in grid.names().filter_map(|name| self.cost(dataset, name)) {
            let mut known = lengths.iter_mut();
            match known.find(|methods| same_length(methods[0].epochs, cost.epochs)) {
                Some(methods) => methods.push(cost),
                None => lengths.push(vec![cost]),
            }
        }
        let has_subject = |methods: &Vec<Cost>| methods.iter().any(|cost| cost.method == subject);
        if let Some(own) = lengths.iter().position(has_subject) {
            lengths[..=own].rotate_right(1);
        }
        lengths
    }

    /// The cost of a method on a data set; `None` if it has no rows there.
    pub(super) fn cost(&self, dataset: &str, method: &str) -> Option<Cost> {
        let average = |f: &dyn Fn(&Summary) -> f64| {
            let values: Vec<f64> = self.on(dataset, method).map(f).collect();
            mean(&values)
        };
        let shared = self.on(dataset, method).map(|s| s.shared_epochs);
        Some(Cost {
            method: method.to_owned(),
            epochs: average(&|s| s.epochs)?,
            shared_epochs: shared.fold(0.0, f64::max),
            own_epochs: average(&|s| s.own_epochs)?,
            transferred_parameters: average(&|s| s.transferred_parameters as f64)?,
            stored_parameters: average(&|s| s.stored_parameters as f64)?,
        })
    }

    /// A method at a size, if it has rows there.
    pub(super) fn get(&self, dataset: &str, method: &str, size: Size) -> Option<&Summary> {
        self.at(dataset, size).find(|s| s.method == method)
    }

    /// All methods at a size.
    pub(super) fn at(&self, dataset: &str, size: Size) -> impl Iterator<Item = &Summary> {
        let all = self.summaries.iter();
        all.filter(move |s| s.dataset == dataset && s.size == size)
    }

    /// A method at all sizes, on one data set.
    pub(super) fn on(&self, dataset: &str, method: &str) -> impl Iterator<Item = &Summary> {
        let all = self.summaries.iter();
        all.filter(move |s| s.dataset == dataset && s.method == method)
    }
}

/// The best accuracy among the candidates, ignoring NaN.
pub(super) fn best<'a>(candidates: impl Iterator<Item = &'a Summary>) -> Option<&'a Summary> {
    let finite = candidates.filter(|s| s.top1.is_finite());
    finite.reduce(|best, s| if best.top1 >= s.top1 { best } else { s })
}

/// Statistics of `rows`, which is not empty.
fn summarise(rows: &[&Row]) -> Summary {
    let values = |f: &dyn Fn(&Row) -> f64| -> Vec<f64> { rows.iter().map(|r| f(r)).collect() };
    let average = |f: &dyn Fn(&Row) -> f64| mean(&values(f)).unwrap_or(f64::NAN);
    let most = |f: fn(&Row) -> usize| rows.iter().map(|r| f(r)).max().unwrap_or(0);
    let points = rows.iter().map(|r| r.curve.len()).min().unwrap_or(0);
    let point = |i: usize| {
        let (epoch, top1) = (average(&|r| r.curve[i].0), average(&|r| r.curve[i].1));
        let spread = deviation(&values(&|r| r.curve[i].1));
        (epoch, top1, spread.unwrap_or(0.0))
    };
    Summary {
        dataset: rows[0].dataset.clone(),
        method: rows[0].method.clone(),
        size: (rows[0].depth, rows[0].width),
        epochs: average(&|r| r.epochs),
        top1: average(&|r| r.top1),
        deviation: deviation(&values(&|r| r.top1)),
        start_top1: average(&|r| r.start_top1),
        transferred_parameters: most(|r| r.transferred_parameters),
        stored_parameters: most(|r| r.stored_parameters),
        shared_epochs: average(&|r| r.shared_epochs),
        own_epochs: average(&|r| r.own_epochs),
        curve: (0..points).map(point).collect(),
        top1_by_seed: rows.iter().map(|r| (r.seed, r.top1)).collect(),
    }
}

/// Cost of a method on a data set, over all sizes.
pub(super) struct Cost {
    pub(super) method: String,
    /// Epochs of fine-tuning.
    pub(super) epochs: f64,
    /// Epochs spent once.
    pub(super) shared_epochs: f64,
    /// Epochs spent for each model before fine-tuning, mean over sizes.
    pub(super) own_epochs: f64,
    /// Mean number of inherited values over sizes.
    pub(super) transferred_parameters: f64,
    /// Mean number of values stored to initialise a model, over sizes.
    pub(super) stored_parameters: f64,
}

/// True for fine-tunings of equal length, up to part of an epoch, such as an incomplete batch.
pub(super) fn same_length(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.005 * a.max(b)
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
