//! What each method's largest model is better by than its smallest.

use super::Findings;
use super::document::{Block, Cell, Section, Table};
use super::statistics::{deviation, mean};
use super::summary::{Size, Summaries, Summary};
use super::tables::number;
use serde::Serialize;

/// A method's smallest and largest model on a data set, by multiply-adds.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) dataset: String,
    pub(super) method: String,
    pub(super) smallest: Size,
    pub(super) largest: Size,
    /// Multiply-adds of the largest over those of the smallest.
    pub(super) work: f64,
    /// Mean accuracy of the largest less the smallest's, before fine-tuning.
    pub(super) before: f64,
    /// After fine-tuning, over the seeds that both have.
    pub(super) after: f64,
    /// Sample standard deviation of `after`; none of a single seed.
    pub(super) deviation: Option<f64>,
}

/// The spread of every method with two sizes or more.
pub(super) fn spreads(findings: &Findings, summaries: &Summaries) -> Vec<Spread> {
    let pairs = findings.datasets.iter();
    let pairs = pairs.flat_map(|d| findings.methods.iter().map(move |m| (d, m)));
    pairs
        .filter_map(|(dataset, method)| spread(findings, summaries, dataset, method))
        .collect()
}

fn spread(
    findings: &Findings,
    summaries: &Summaries,
    dataset: &str,
    method: &str,
) -> Option<Spread> {
    let work = |s: &Summary| (findings.multiply_adds)(s.depth, s.width);
    let own = || summaries.of(method).filter(|s| s.dataset == dataset);
    let (small, large) = (
        own().min_by_key(|s| work(s))?,
        own().max_by_key(|s| work(s))?,
    );
    let seeds = large.top1_by_seed.iter();
    let after = seeds.filter_map(|(seed, top1)| Some(top1 - small.top1_by_seed.get(seed)?));
    let after: Vec<f64> = after.collect();
    (work(large) > work(small)).then_some(Spread {
        dataset: dataset.to_owned(),
        method: method.to_owned(),
        smallest: (small.depth, small.width),
        largest: (large.depth, large.width),
        work: work(large) as f64 / work(small) as f64,
        before: large.start_top1 - small.start_top1,
        after: mean(&after)?,
        deviation: deviation(&after),
    })
}

/// The spreads as a section; nothing without any.
pub(super) fn section(spreads: &[Spread]) -> Option<Section> {
    let text = "Top-1 of each method's largest model less its smallest's, in points: before fine-tuning, and \
                after it (mean ± standard deviation over the seeds that both have).";
    let several = spreads.iter().any(|s| s.dataset != spreads[0].dataset);
    let row = |s: &Spread| -> Vec<Cell> {
        let method = match several {
            true => format!("{} on {}", s.method, s.dataset),
            false => s.method.clone(),
        };
        let size = |(depth, width): Size| format!("{depth} x {width}");
        let points = |x: f64| format!("{:+.2}", 100.0 * x);
        let after = match s.deviation {
            Some(deviation) => format!("{} ± {:.2}", points(s.after), 100.0 * deviation),
            None => points(s.after),
        };
        [
            method,
            size(s.smallest),
            size(s.largest),
            number((10.0 * s.work).round() / 10.0),
            points(s.before),
            after,
        ]
        .map(Cell::from)
        .to_vec()
    };
    let columns = [
        "method",
        "smallest",
        "largest",
        "times the multiply-adds",
        "before",
        "after",
    ];
    let table = Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: spreads.iter().map(row).collect(),
    };
    let blocks = vec![Block::Text(text.to_owned()), Block::Table(table)];
    (!spreads.is_empty()).then(|| Section::new("From the smallest to the largest", blocks))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn the_spread_is_over_seeds_that_both_sizes_have() {
        let mut fixture = Fixture::new(&["wave", "one-size"]);
        fixture.rows("wave", 3, &[0.70, 0.72]);
        fixture.rows("wave", 6, &[0.75, 0.73, 0.99]);
        fixture.rows("one-size", 6, &[0.5]);
        let findings = fixture.findings();
        let found = spreads(&findings, &Summaries::new(&findings));
        assert_eq!(found.len(), 1, "a single size has no spread");
        let wave = &found[0];
        assert_eq!((wave.smallest, wave.largest), ((3, 64), (6, 64)));
        assert_eq!(wave.work, 2.0);
        assert!((wave.after - 0.03).abs() < 1e-12 && wave.before.abs() < 1e-12);
        let text = super::super::document::Document {
            title: "t".into(),
            sections: Vec::from_iter(section(&found)),
        };
        let text = text.markdown();
        assert!(
            text.contains("| wave | 3 x 64 | 6 x 64 | 2 | +0.00 | +3.00 ± 2.83 |"),
            "{text}"
        );
        assert!(section(&[]).is_none());
    }
}
