//! Statistics of single trainings over seeds.

use super::statistics::{deviation, mean};
use super::{Findings, Row};
use std::collections::{BTreeMap, BTreeSet};

/// Depth and width.
pub(super) type Size = (usize, usize);

/// Results of a method at one size on one data set, over seeds.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) dataset: String,
    pub(super) method: String,
    pub(super) size: Size,
    /// Number of trainings.
    pub(super) runs: usize,
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

impl Summary {
    /// True if the curve has more points than start and end.
    pub(super) fn is_long(&self) -> bool {
        self.curve.len() > 2
    }

    /// Data set and size, in words.
    pub(super) fn place(&self) -> String {
        on(&self.dataset, &words(self.size))
    }
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

/// Every method at every size that has rows.
pub(super) struct Summaries(pub(super) Vec<Summary>);

impl Summaries {
    /// Gathers the rows in the order of data sets, sizes and methods, and leaves out all others.
    pub(super) fn new(findings: &Findings) -> Summaries {
        let mut groups: BTreeMap<(&str, Size, &str), Vec<&Row>> = BTreeMap::new();
        for row in &findings.rows {
            let key = (&*row.dataset, (row.depth, row.width), &*row.method);
            groups.entry(key).or_default().push(row);
        }
        let mut all = Vec::new();
        for (dataset, size) in findings.places() {
            for method in &findings.methods {
                all.extend(
                    groups
                        .get(&(dataset, size, &**method))
                        .map(|r| summarise(r)),
                );
            }
        }
        Summaries(all)
    }

    /// A method at a size, if it has rows there.
    pub(super) fn get(&self, dataset: &str, method: &str, size: Size) -> Option<&Summary> {
        self.at(dataset, size).find(|s| s.method == method)
    }

    /// All methods at a size.
    pub(super) fn at(&self, dataset: &str, size: Size) -> impl Iterator<Item = &Summary> {
        let all = self.0.iter();
        all.filter(move |s| s.dataset == dataset && s.size == size)
    }

    /// A method at all sizes, on all data sets.
    pub(super) fn of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Summary> {
        self.0.iter().filter(move |s| s.method == method)
    }

    /// A method at all sizes, on one data set.
    pub(super) fn on<'a>(
        &'a self,
        dataset: &'a str,
        method: &'a str,
    ) -> impl Iterator<Item = &'a Summary> {
        self.of(method).filter(move |s| s.dataset == dataset)
    }

    /// The best accuracy among the candidates, ignoring NaN.
    pub(super) fn best<'a>(candidates: impl Iterator<Item = &'a Summary>) -> Option<&'a Summary> {
        let finite = candidates.filter(|s| s.top1.is_finite());
        finite.reduce(|best, s| if best.top1 >= s.top1 { best } else { s })
    }
}

/// Statistics of `rows`, which is not empty.
fn summarise(rows: &[&Row]) -> Summary {
    let values = |f: &dyn Fn(&Row) -> f64| -> Vec<f64> { rows.iter().map(|r| f(r)).collect() };
    let average = |f: &dyn Fn(&Row) -> f64| mean(&values(f)).unwrap_or(f64::NAN);
    let most = |f: fn(&Row) -> usize| rows.iter().map(|r| f(r)).max().unwrap_or(0);
    let points = rows.iter().map(|r| r.curve.len()).min().unwrap_or(0);
    let point = |i: usize| {
        let spread = deviation(&values(&|r| r.curve[i].1)).unwrap_or(0.0);
        (
            average(&|r| r.curve[i].0),
            average(&|r| r.curve[i].1),
            spread,
        )
    };
    Summary {
        dataset: rows[0].dataset.clone(),
        method: rows[0].method.clone(),
        size: (rows[0].depth, rows[0].width),
        runs: rows.len(),
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

/// Cost of a method, over all sizes.
#[derive(Clone, PartialEq, Debug)]
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
    /// True if each size stores its own values.
    pub(super) stored_for_each_size: bool,
}

impl Cost {
    /// Number of values stored for models of this many sizes.
    pub(super) fn stored_for(&self, sizes: usize) -> f64 {
        match self.stored_for_each_size {
            true => self.stored_parameters * sizes as f64,
            false => self.stored_parameters,
        }
    }
}

/// The cost of each method with rows, in the recipe's order.
///
/// A method whose stored values differ between sizes stores them for each size. So does a method that trains each
/// model and stores as many values as the model has, or records none.
pub(super) fn costs(findings: &Findings, summaries: &Summaries) -> Vec<Cost> {
    let cost = |method: &String| {
        let of: Vec<&Summary> = summaries.of(method).collect();
        let average = |f: &dyn Fn(&Summary) -> f64| {
            let values: Vec<f64> = of.iter().map(|s| f(s)).collect();
            mean(&values)
        };
        let parameters = |s: &Summary| (findings.parameters)(s.size.0, s.size.1);
        let own_epochs = average(&|s| s.own_epochs)?;
        let whole = |s: &&Summary| [0, parameters(s)].contains(&s.stored_parameters);
        let whole_models = own_epochs >= 1.0 && of.iter().all(whole);
        let amounts: BTreeSet<usize> = of.iter().map(|s| s.stored_parameters).collect();
        let stored = |s: &Summary| match whole_models {
            true => parameters(s) as f64,
            false => s.stored_parameters as f64,
        };
        Some(Cost {
            method: method.clone(),
            epochs: average(&|s| s.epochs)?,
            shared_epochs: of.iter().map(|s| s.shared_epochs).fold(0.0, f64::max),
            own_epochs,
            transferred_parameters: average(&|s| s.transferred_parameters as f64)?,
            stored_parameters: average(&stored)?,
            stored_for_each_size: whole_models || amounts.len() > 1,
        })
    };
    findings.methods.iter().filter_map(cost).collect()
}

/// Methods that are compared with each other: they have equal epochs of fine-tuning.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Length {
    /// Epochs of fine-tuning.
    pub(super) epochs: f64,
    /// In the recipe's order.
    pub(super) methods: Vec<String>,
}

/// True if two numbers of epochs differ only by part of an epoch, such as an incomplete batch.
pub(super) fn is_same_length(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.005 * a.max(b)
}

/// The lengths of fine-tuning, the subject's first, then in the recipe's order. A method that trains
/// each model beforehand, and fine-tunes it for fewer epochs than the subject, is listed with the
/// subject.
pub(super) fn lengths(findings: &Findings, costs: &[Cost]) -> Vec<Length> {
    let subject = costs.iter().find(|c| c.method == findings.subject);
    let first = subject.map(|cost| Length {
        epochs: cost.epochs,
        methods: Vec::new(),
    });
    let mut lengths = Vec::from_iter(first);
    for cost in costs {
        let epochs = match subject {
            Some(s) if cost.own_epochs >= 1.0 && cost.epochs < s.epochs => s.epochs,
            _ => cost.epochs,
        };
        let method = cost.method.clone();
        let same = |l: &&mut Length| is_same_length(l.epochs, epochs);
        match lengths.iter_mut().find(same) {
            Some(length) => length.methods.push(method),
            None => lengths.push(Length {
                epochs,
                methods: vec![method],
            }),
        }
    }
    lengths
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
