//! Findings for tests.

use super::{Findings, Row};
use crate::grid::Grid;
use wave_run::recipe::Recipe;

impl Findings<'_> {
    /// Methods at (3, 64) and (6, 64), with seeds 0..3 and the subject `wave`, without rows.
    pub(super) fn of(methods: &[&str]) -> Findings<'static> {
        let methods = methods.iter();
        let methods = methods.map(|m| format!("bench.methods.{m}.start=he"));
        let table = [
            "sizes=[[3, 64], [6, 64]]",
            "seeds=[0, 1, 2]",
            "subject=wave",
        ];
        let table = table.map(|key| format!("bench.{key}")).into_iter();
        let table: Vec<String> = table.chain(methods).collect();
        Findings {
            name: "grid",
            grid: Grid::new(&Recipe::empty("grid", &table).unwrap()).unwrap(),
            parameters: &|depth, width| 1000 * depth * width,
            rates: &[],
            rows: Vec::new(),
            failures: &[],
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
                dataset: self.grid.datasets[0].0.clone(),
                depth,
                width: 64,
                seed,
                epochs: 1.0,
                top1,
                start_top1: 0.1,
                curve: vec![(0.0, 0.1), (1.0, top1)],
                ..Row::default()
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
        let pairs = &mut self.grid.bench.break_even;
        pairs.push((method.to_owned(), rival.to_owned()));
    }

    pub(super) fn ablation(&mut self, title: &str, methods: &[&str]) {
        let methods = methods.iter().map(|m| m.to_string()).collect();
        self.grid.bench.ablations.insert(title.to_owned(), methods);
    }
}
