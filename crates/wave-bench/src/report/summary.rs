//! Statistics of single trainings over seeds.

use super::statistics::{deviation, mean};
use super::{Findings, Row};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Depth and width.
pub(super) type Size = (usize, usize);

/// Results of a method at one size on one data set, over seeds.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Summary {
    pub(super) dataset: String,
    pub(super) method: String,
    pub(super) depth: usize,
    pub(super) width: usize,
    /// Number of trainings.
    pub(super) runs: usize,
    /// Epochs of fine-tuning.
    pub(super) epochs: f64,
    /// Mean final accuracy, 0..=1.
    pub(super) top1: f64,
    /// Its sample standard deviation; none of a single run.
    pub(super) deviation: Option<f64>,
    /// Mean accuracy before fine-tuning.
    pub(super) start_top1: f64,
    pub(super) transferred_parameters: usize,
    pub(super) stored_parameters: usize,
    pub(super) scalers_fitted: usize,
    pub(super) shared_epochs: f64,
    pub(super) own_epochs: f64,
    pub(super) lr: f64,
    /// Mean wall time of a run.
    pub(super) seconds: f64,
    /// Epoch, mean accuracy, standard deviation (0 of a single run).
    pub(super) curve: Vec<(f64, f64, f64)>,
    /// Final accuracy by seed.
    pub(super) top1_by_seed: BTreeMap<u64, f64>,
}

impl Summary {
    /// Epoch and mean accuracy.
    pub(super) fn mean_curve(&self) -> Vec<(f64, f64)> {
        self.curve.iter().map(|&(x, y, _)| (x, y)).collect()
    }

    /// Whether the curve has more points than start and end.
    pub(super) fn is_long(&self) -> bool {
        self.curve.len() > 2
    }
}

/// Every method at every size that has rows.
pub(super) struct Summaries(pub(super) Vec<Summary>);

impl Summaries {
    /// Gathers the rows in the order of data sets, sizes and methods, and leaves out all others.
    pub(super) fn new(findings: &Findings) -> Summaries {
        let mut groups: BTreeMap<(&str, Size, &str), Vec<&Row>> = BTreeMap::new();
        for row in findings.rows {
            let key = (&*row.dataset, (row.depth, row.width), &*row.method);
            groups.entry(key).or_default().push(row);
        }
        let mut all = Vec::new();
        for dataset in findings.datasets {
            for &size in findings.sizes {
                for method in findings.methods {
                    if let Some(rows) = groups.get(&(&**dataset, size, &**method)) {
                        all.push(summarise(rows));
                    }
                }
            }
        }
        Summaries(all)
    }

    /// A method at a size, if it has rows there.
    pub(super) fn get(&self, dataset: &str, method: &str, size: Size) -> Option<&Summary> {
        self.0
            .iter()
            .find(|s| s.dataset == dataset && s.method == method && (s.depth, s.width) == size)
    }

    /// All methods at a size.
    pub(super) fn at(&self, dataset: &str, size: Size) -> impl Iterator<Item = &Summary> {
        self.0
            .iter()
            .filter(move |s| s.dataset == dataset && (s.depth, s.width) == size)
    }

    /// A method at all sizes, on all data sets.
    pub(super) fn of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Summary> {
        self.0.iter().filter(move |s| s.method == method)
    }

    /// The best accuracy among some, without NaN.
    pub(super) fn best<'a>(candidates: impl Iterator<Item = &'a Summary>) -> Option<&'a Summary> {
        candidates
            .filter(|s| s.top1.is_finite())
            .fold(None, |best: Option<&'a Summary>, s| match best {
                Some(b) if b.top1 >= s.top1 => Some(b),
                _ => Some(s),
            })
    }
}

/// Statistics of `rows`, which is not empty.
fn summarise(rows: &[&Row]) -> Summary {
    let values = |f: fn(&Row) -> f64| -> Vec<f64> { rows.iter().map(|r| f(r)).collect() };
    let average = |f: fn(&Row) -> f64| mean(&values(f)).unwrap_or(f64::NAN);
    let most = |f: fn(&Row) -> usize| rows.iter().map(|r| f(r)).max().unwrap_or(0);
    let points = rows.iter().map(|r| r.curve.len()).min().unwrap_or(0);
    let point = |i: usize| {
        let at: Vec<f64> = rows.iter().map(|r| r.curve[i].0).collect();
        let top1: Vec<f64> = rows.iter().map(|r| r.curve[i].1).collect();
        (
            mean(&at).unwrap_or(f64::NAN),
            mean(&top1).unwrap_or(f64::NAN),
            deviation(&top1).unwrap_or(0.0),
        )
    };
    Summary {
        dataset: rows[0].dataset.clone(),
        method: rows[0].method.clone(),
        depth: rows[0].depth,
        width: rows[0].width,
        runs: rows.len(),
        epochs: average(|r| r.epochs),
        top1: average(|r| r.top1),
        deviation: deviation(&values(|r| r.top1)),
        start_top1: average(|r| r.start_top1),
        transferred_parameters: most(|r| r.transferred_parameters),
        stored_parameters: most(|r| r.stored_parameters),
        scalers_fitted: most(|r| r.scalers_fitted),
        shared_epochs: average(|r| r.shared_epochs),
        own_epochs: average(|r| r.own_epochs),
        lr: average(|r| r.lr),
        seconds: average(|r| r.seconds),
        curve: (0..points).map(point).collect(),
        top1_by_seed: rows.iter().map(|r| (r.seed, r.top1)).collect(),
    }
}

/// Cost of a method, over all sizes.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Cost {
    pub(super) method: String,
    /// Epochs of fine-tuning.
    pub(super) epochs: f64,
    /// Epochs spent once.
    pub(super) shared_epochs: f64,
    /// Epochs spent for each model before fine-tuning, mean over sizes.
    pub(super) own_epochs: f64,
    /// Number of sizes of the bench, ...
    pub(super) sizes: usize,
    /// ... and the epochs before fine-tuning for all of them.
    pub(super) extra_epochs: f64,
    /// Values inherited, mean over sizes.
    pub(super) transferred_parameters: f64,
    /// Values stored to start a model, mean over sizes.
    pub(super) stored_parameters: f64,
    /// Whether each size stores values of its own.
    pub(super) stored_for_each_size: bool,
}

impl Cost {
    /// Values stored for models of so many sizes.
    pub(super) fn stored_for(&self, sizes: usize) -> f64 {
        match self.stored_for_each_size {
            true => self.stored_parameters * sizes as f64,
            false => self.stored_parameters,
        }
    }
}

/// The cost of each method with rows, in the recipe's order.
///
/// A method whose stored values differ between sizes stores them for each size; so does one that trains
/// each model and stores as many values as it has, or records none.
pub(super) fn costs(findings: &Findings, summaries: &Summaries) -> Vec<Cost> {
    let cost = |method: &String| {
        let of: Vec<&Summary> = summaries.of(method).collect();
        let average = |f: &dyn Fn(&Summary) -> f64| {
            let values: Vec<f64> = of.iter().map(|s| f(s)).collect();
            mean(&values)
        };
        let parameters = |s: &Summary| (findings.parameters)(s.depth, s.width);
        let own_epochs = average(&|s| s.own_epochs)?;
        let shared_epochs = of.iter().map(|s| s.shared_epochs).fold(0.0, f64::max);
        let whole_models = own_epochs >= 1.0
            && of
                .iter()
                .all(|s| s.stored_parameters == 0 || s.stored_parameters == parameters(s));
        let amounts: BTreeSet<usize> = of.iter().map(|s| s.stored_parameters).collect();
        let stored_parameters = match whole_models {
            true => average(&|s| parameters(s) as f64)?,
            false => average(&|s| s.stored_parameters as f64)?,
        };
        Some(Cost {
            method: method.clone(),
            epochs: average(&|s| s.epochs)?,
            shared_epochs,
            own_epochs,
            sizes: findings.sizes.len(),
            extra_epochs: shared_epochs + own_epochs * findings.sizes.len() as f64,
            transferred_parameters: average(&|s| s.transferred_parameters as f64)?,
            stored_parameters,
            stored_for_each_size: whole_models || amounts.len() > 1,
        })
    };
    findings.methods.iter().filter_map(cost).collect()
}

/// Methods that are compared: those with as many epochs of fine-tuning.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Length {
    /// Epochs of fine-tuning.
    pub(super) epochs: f64,
    /// In the recipe's order.
    pub(super) methods: Vec<String>,
}

/// Whether two numbers of epochs differ only by part of an epoch, such as an incomplete batch.
pub(super) fn is_same_length(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.005 * a.max(b)
}

/// The lengths of fine-tuning, the subject's first, then in the recipe's order. A method that trains
/// each model beforehand, and fine-tunes it for fewer epochs than the subject, is listed with the
/// subject.
pub(super) fn lengths(findings: &Findings, costs: &[Cost]) -> Vec<Length> {
    let subject = findings
        .subject
        .and_then(|subject| costs.iter().find(|cost| cost.method == subject));
    let mut lengths: Vec<Length> = subject
        .map(|cost| Length {
            epochs: cost.epochs,
            methods: Vec::new(),
        })
        .into_iter()
        .collect();
    for cost in costs {
        let epochs = match subject {
            Some(s) if cost.own_epochs >= 1.0 && cost.epochs < s.epochs => s.epochs,
            _ => cost.epochs,
        };
        let method = cost.method.clone();
        match lengths
            .iter_mut()
            .find(|l| is_same_length(l.epochs, epochs))
        {
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
