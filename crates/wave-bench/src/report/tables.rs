//! The tables of accuracy and cost, in the form of papers.

use super::gains::lead;
use super::page::{Cell, Page};
use super::summary::{Cost, Found, Size, Summary, best, words};
use super::{number, plural, seeds};

/// For each data set: the accuracies, and the lead of the subject.
pub(super) fn accuracy(page: &mut Page, found: &Found) {
    for (dataset, _) in &found.findings.grid.datasets {
        match dataset.as_str() {
            "" => page.section("Accuracy"),
            dataset => page.section(&format!("Accuracy on {dataset}")),
        }
        page.paragraph(&caption(found));
        for length in found.lengths(dataset) {
            by_method(page, found, dataset, &length);
        }
        lead(page, found, dataset);
    }
}

fn caption(found: &Found) -> String {
    let bench = &found.findings.grid.bench;
    let condensations = match bench.condensations {
        1 => String::new(),
        n => format!(" and {n} condensations"),
    };
    let rest = match found.summaries.is_empty() {
        true => "No training run has finished.",
        false => {
            "Extra epochs come before fine-tuning: once for all sizes, and for each size. \
             Transferred and stored values are means over sizes."
        }
    };
    format!(
        "Top-1 in % on the test images, mean ± standard deviation over {}{condensations}; before \
         fine-tuning in parentheses. The best is bold. {rest}",
        seeds(&bench.seeds)
    )
}

/// The methods with one length of fine-tuning, a row each, below a line that gives the length.
fn by_method(page: &mut Page, found: &Found, dataset: &str, length: &[Cost]) {
    let methods: Vec<String> = length.iter().map(|cost| cost.method.clone()).collect();
    let sizes = sizes_of(found, dataset, &methods);
    let mut columns =
        Vec::from(["method", "extra epochs", "transferred", "stored"].map(str::to_owned));
    columns.extend(sizes.iter().map(|&size| {
        let parameters = (found.findings.parameters)(size.0, size.1) as f64;
        format!("{} ({})", words(size), count(parameters))
    }));
    let epochs = plural(length[0].epochs, "epoch");
    page.paragraph(&format!("Fine-tuned for {epochs}:"));
    let rows = length.iter().map(|cost| -> Vec<Cell> {
        vec![
            cost.method.as_str().into(),
            extra_epochs(found, dataset, cost).into(),
            count(cost.transferred_parameters).into(),
            count(cost.stored_parameters).into(),
        ]
    });
    let rows = with_accuracies(rows.collect(), found, dataset, &sizes, &methods);
    page.table(&columns, rows);
}

/// Rows of methods with a column for each size, the best in bold; empty where a method has no rows.
fn with_accuracies(
    mut rows: Vec<Vec<Cell>>,
    found: &Found,
    dataset: &str,
    sizes: &[Size],
    methods: &[String],
) -> Vec<Vec<Cell>> {
    let seeds = found.findings.grid.bench.seeds.len();
    for &size in sizes {
        let get = |method: &String| found.get(dataset, method, size);
        let best = best(methods.iter().filter_map(get)).map(|s| s.top1);
        let cell = |s: &Summary| {
            let mean = format!("{:.2}", 100.0 * s.top1);
            let spread = s.deviation.map(|sd| format!(" ± {:.2}", 100.0 * sd));
            let start = 100.0 * s.start_top1;
            let mut text = format!("{} ({start:.1})", spread.unwrap_or_default());
            let runs = s.top1_by_seed.len();
            if runs < seeds {
                text += &format!(", {runs} of {seeds} seeds");
            }
            match best == Some(s.top1) {
                true => Cell { strong: mean, text },
                false => (mean + &text).into(),
            }
        };
        for (row, method) in rows.iter_mut().zip(methods) {
            row.push(get(method).map_or(Cell::default(), cell));
        }
    }
    rows
}

/// The sizes of a data set at which any of these methods has rows, in the bench's order.
fn sizes_of(found: &Found, dataset: &str, methods: &[String]) -> Vec<Size> {
    let has = |size: &Size| {
        let mut here = found.at(dataset, *size);
        here.any(|s| methods.contains(&s.method))
    };
    let sizes = found.findings.grid.bench.sizes.iter();
    sizes.copied().filter(has).collect()
}

/// The methods of each ablation by size.
pub(super) fn ablations(page: &mut Page, found: &Found) {
    let grid = &found.findings.grid;
    for (title, methods) in &grid.bench.ablations {
        page.section(&format!("Ablation: {title}"));
        let mut complete = false;
        for (dataset, _) in &grid.datasets {
            let sizes = sizes_of(found, dataset, methods);
            if sizes.is_empty() {
                continue;
            }
            complete = true;
            if !dataset.is_empty() {
                page.paragraph(&format!("On {dataset}:"));
            }
            let mut columns = Vec::from(["method", "epochs"].map(str::to_owned));
            columns.extend(sizes.iter().map(|&size| words(size)));
            let rows = methods.iter().map(|method| -> Vec<Cell> {
                let cost = found.cost(dataset, method);
                let epochs = cost.map_or(String::new(), |cost| number(cost.epochs));
                vec![method.as_str().into(), epochs.into()]
            });
            let rows = with_accuracies(rows.collect(), found, dataset, &sizes, methods);
            page.table(&columns, rows);
        }
        if !complete {
            page.paragraph("None of its training runs has finished.");
        }
    }
}

/// `12 + 5 × 0.3 = 13.5`: once, plus for each size.
fn extra_epochs(found: &Found, dataset: &str, cost: &Cost) -> String {
    let sizes = found.on(dataset, &cost.method).count();
    let (shared, own) = (number(cost.shared_epochs), number(cost.own_epochs));
    let all = number(cost.shared_epochs + cost.own_epochs * sizes as f64);
    match (cost.shared_epochs > 0.0, cost.own_epochs > 0.0) {
        (_, false) => shared,
        (false, true) => format!("{sizes} × {own} = {all}"),
        (true, true) => format!("{shared} + {sizes} × {own} = {all}"),
    }
}

/// A number of values in thousands (from ten thousand) or millions.
fn count(values: f64) -> String {
    match values {
        v if v < 1e4 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.1} K", v / 1e3),
        v => format!("{:.2} M", v / 1e6),
    }
}
