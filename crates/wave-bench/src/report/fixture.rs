//! Findings for tests.

use super::{Findings, Row};
use std::collections::BTreeMap;

impl Findings<'static> {
    /// Methods at (3, 64) and (6, 64), with seeds 0..3 and the subject `wave`, without rows.
    pub(super) fn of(methods: &[&str]) -> Findings<'static> {
        Findings {
            name: "grid".to_owned(),
            methods: methods.iter().map(|m| m.to_string()).collect(),
            subject: "wave".to_owned(),
            sizes: vec![(3, 64), (6, 64)],
            datasets: vec![String::new()],
            parameters: &|depth, width| 1000 * depth * width,
            seeds: vec![0, 1, 2],
            condensations: 1,
            rates: Vec::new(),
            rows: Vec::new(),
            failures: Vec::new(),
            ablations: BTreeMap::new(),
            break_even: Vec::new(),
            templates: Vec::new(),
            ancestor_epochs: 0.0,
            shared_work: &|_, _| 0.0,
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
}
