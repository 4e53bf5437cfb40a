//! Findings for tests.

use super::{Failure, Findings, Rates, Row, WithoutData, Work};
use std::collections::BTreeMap;

/// Owner of what [`Findings`] borrows.
pub(super) struct Fixture {
    pub(super) methods: Vec<String>,
    pub(super) subject: Option<&'static str>,
    pub(super) sizes: Vec<(usize, usize)>,
    pub(super) datasets: Vec<String>,
    pub(super) seeds: Vec<u64>,
    pub(super) rates: Vec<Rates>,
    pub(super) rows: Vec<Row>,
    pub(super) failures: Vec<Failure>,
    pub(super) ablations: BTreeMap<String, Vec<String>>,
    pub(super) break_even: Vec<(String, String)>,
    pub(super) templates: Vec<WithoutData>,
    pub(super) ancestor_epochs: f64,
    /// [`Findings::shared_work`], equal for all sizes.
    pub(super) work: Box<Work<'static>>,
}

impl Fixture {
    /// Methods at (3, 64) and (6, 64), with seeds 0..3 and the subject `wave`, without rows.
    pub(super) fn new(methods: &[&str]) -> Fixture {
        Fixture {
            methods: methods.iter().map(|m| m.to_string()).collect(),
            subject: Some("wave"),
            sizes: vec![(3, 64), (6, 64)],
            datasets: vec![String::new()],
            seeds: vec![0, 1, 2],
            rates: Vec::new(),
            rows: Vec::new(),
            failures: Vec::new(),
            ablations: BTreeMap::new(),
            break_even: Vec::new(),
            templates: Vec::new(),
            ancestor_epochs: 0.0,
            work: Box::new(|_, _| 0.0),
        }
    }

    /// Adds a row for each accuracy, with seeds from 0: at this depth, width 64, one epoch from 0.1.
    pub(super) fn rows(&mut self, method: &str, depth: usize, top1: &[f64]) -> &mut [Row] {
        let first = self.rows.len();
        for (seed, &top1) in (0..).zip(top1) {
            self.rows.push(Row {
                method: method.to_owned(),
                dataset: self.datasets[0].clone(),
                depth,
                width: 64,
                seed,
                epochs: 1.0,
                top1,
                start_top1: 0.1,
                transferred_parameters: 0,
                stored_parameters: 0,
                scalers_fitted: 0,
                shared_epochs: 0.0,
                own_epochs: 0.0,
                lr: 1e-3,
                curve: vec![(0.0, 0.1), (1.0, top1)],
                seconds: 1.0,
                fingerprint: String::new(),
            });
        }
        &mut self.rows[first..]
    }

    /// Adds a row with a curve, at (6, 64).
    pub(super) fn curve(&mut self, method: &str, curve: &[(f64, f64)]) -> &mut Row {
        let last = curve.last().copied().unwrap_or_default();
        let row = &mut self.rows(method, 6, &[last.1])[0];
        row.epochs = last.0;
        row.start_top1 = curve.first().map_or(0.0, |point| point.1);
        row.curve = curve.to_vec();
        row
    }

    pub(super) fn pair(&mut self, method: &str, rival: &str) {
        self.break_even.push((method.to_owned(), rival.to_owned()));
    }

    pub(super) fn findings(&self) -> Findings<'_> {
        Findings {
            name: "grid",
            methods: &self.methods,
            subject: self.subject,
            sizes: &self.sizes,
            datasets: &self.datasets,
            parameters: &|depth, width| 1000 * depth * width,
            multiply_adds: &|depth, width| 100_000 * depth * width,
            seeds: &self.seeds,
            condensations: 1,
            rates: &self.rates,
            rows: &self.rows,
            failures: &self.failures,
            ablations: &self.ablations,
            break_even: &self.break_even,
            templates: &self.templates,
            ancestor_epochs: self.ancestor_epochs,
            shared_work: &self.work,
        }
    }
}
