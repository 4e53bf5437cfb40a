//! The tables of accuracy and cost, in the form of papers.

use super::gains::lead;
use super::page::{Cell, Page};
use super::summary::{Cost, Length, Size, Summaries, Summary, is_same_length, words};
use super::{Found, number, plural, seeds};

/// For each data set: the accuracies, and the lead of the subject.
pub(super) fn accuracy(page: &mut Page, found: &Found) {
    for dataset in &found.findings.datasets {
        match dataset.as_str() {
            "" => page.section("Accuracy"),
            dataset => page.section(&format!("Accuracy on {dataset}")),
        }
        page.paragraph(&caption(found));
        for length in &found.lengths {
            by_method(page, found, dataset, length);
        }
        lead(page, found, dataset);
    }
}

fn caption(found: &Found) -> String {
    let condensations = match found.findings.condensations {
        0 | 1 => String::new(),
        n => format!(" and {n} condensations"),
    };
    let rest = match found.costs.is_empty() {
        true => "No training run has finished.",
        false => {
            "Extra epochs come before fine-tuning: once for all sizes, and for each size. \
             Transferred and stored values are means over sizes."
        }
    };
    format!(
        "Top-1 in % on the test images, mean ± standard deviation over {}{condensations}; before \
         fine-tuning in parentheses. The best is bold. {rest}",
        seeds(&found.findings.seeds)
    )
}

/// The methods with one length of fine-tuning, a row each, below a line that gives the length.
fn by_method(page: &mut Page, found: &Found, dataset: &str, length: &Length) {
    let sizes = sizes_of(found, dataset, &length.methods);
    if sizes.is_empty() {
        return;
    }
    let mut columns =
        Vec::from(["method", "extra epochs", "transferred", "stored"].map(str::to_owned));
    columns.extend(sizes.iter().map(|&size| {
        let parameters = (found.findings.parameters)(size.0, size.1) as f64;
        format!("{} ({})", words(size), count(parameters))
    }));
    let here = |cost: &&Cost| {
        let mut own = found.summaries.on(dataset, &cost.method);
        length.methods.contains(&cost.method) && own.next().is_some()
    };
    let costs: Vec<&Cost> = found.costs.iter().filter(here).collect();
    let others: String = costs
        .iter()
        .filter(|cost| !is_same_length(cost.epochs, length.epochs))
        .map(|cost| format!("; {} for {}", cost.method, number(cost.epochs)))
        .collect();
    let epochs = plural(length.epochs, "epoch");
    page.paragraph(&format!("Fine-tuned for {epochs}{others}:"));
    let rows = costs.iter().map(|cost| -> Vec<Cell> {
        vec![
            cost.method.as_str().into(),
            extra_epochs(found, cost).into(),
            count(cost.transferred_parameters).into(),
            count(cost.stored_parameters).into(),
        ]
    });
    let methods: Vec<String> = costs.iter().map(|cost| cost.method.clone()).collect();
    let rows = with_accuracies(rows.collect(), found, dataset, &sizes, &methods);
    page.table(&columns, rows);
}

/// Rows of methods with a column for each size.
fn with_accuracies(
    mut rows: Vec<Vec<Cell>>,
    found: &Found,
    dataset: &str,
    sizes: &[Size],
    methods: &[String],
) -> Vec<Vec<Cell>> {
    for &size in sizes {
        let cells = accuracies(found, dataset, size, methods);
        rows.iter_mut()
            .zip(cells)
            .for_each(|(row, cell)| row.push(cell));
    }
    rows
}

/// The sizes of a data set at which any of these methods has rows, in the bench's order.
fn sizes_of(found: &Found, dataset: &str, methods: &[String]) -> Vec<Size> {
    let has = |size: &Size| {
        let mut here = found.summaries.at(dataset, *size);
        here.any(|s| methods.contains(&s.method))
    };
    found.findings.sizes.iter().copied().filter(has).collect()
}

/// A cell for each method at a size, the best in bold; empty if the method has no rows.
fn accuracies(found: &Found, dataset: &str, size: Size, methods: &[String]) -> Vec<Cell> {
    let cells = methods.iter();
    let cells: Vec<Option<&Summary>> = cells
        .map(|method| found.summaries.get(dataset, method, size))
        .collect();
    let best = Summaries::best(cells.iter().flatten().copied()).map(|s| s.top1);
    let seeds = found.findings.seeds.len();
    let cell = |s: &Summary| {
        let mean = format!("{:.2}", 100.0 * s.top1);
        let spread = s.deviation.map(|sd| format!(" ± {:.2}", 100.0 * sd));
        let mut text = format!(
            "{} ({:.1})",
            spread.unwrap_or_default(),
            100.0 * s.start_top1
        );
        if s.runs < seeds {
            text += &format!(", {} of {seeds} seeds", s.runs);
        }
        match best == Some(s.top1) {
            true => Cell { strong: mean, text },
            false => (mean + &text).into(),
        }
    };
    cells
        .into_iter()
        .map(|s| s.map_or(Cell::default(), cell))
        .collect()
}

/// Epochs and values of each method.
pub(super) fn costs(page: &mut Page, found: &Found) {
    const SIZES: [usize; 4] = [1, 5, 10, 20];

    page.section("Costs");
    page.paragraph(
        "Epochs of fine-tuning, epochs spent once for all sizes, epochs spent on each model before \
         fine-tuning, and the total without fine-tuning for the sizes of this bench; transferred \
         values, mean over sizes; and the storage needed to start models of a number of sizes, at \
         4 bytes per value (of the mean size where it differs by size).",
    );
    let sizes = plural(found.findings.sizes.len() as f64, "size");
    let mut columns = Vec::from(["method", "fine-tuning", "once", "each model"].map(str::to_owned));
    columns.extend([format!("for {sizes}"), "transferred".to_owned()]);
    columns.extend(SIZES.map(|n| format!("stored for {}", plural(n as f64, "size"))));
    let row = |cost: &Cost| {
        let mut cells = vec![
            cost.method.clone(),
            number(cost.epochs),
            number(cost.shared_epochs),
            number(cost.own_epochs),
            extra_epochs(found, cost),
            count(cost.transferred_parameters),
        ];
        cells.extend(SIZES.map(|n| bytes(4.0 * cost.stored_for(n))));
        cells
    };
    page.table(&columns, found.costs.iter().map(row));
}

/// The methods of each ablation by size.
pub(super) fn ablations(page: &mut Page, found: &Found) {
    let findings = found.findings;
    for (title, methods) in &findings.ablations {
        page.section(&format!("Ablation: {title}"));
        let mut complete = false;
        for dataset in &findings.datasets {
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
                let cost = found.costs.iter().find(|cost| &cost.method == method);
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
fn extra_epochs(found: &Found, cost: &Cost) -> String {
    let sizes = found.findings.sizes.len();
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

fn bytes(n: f64) -> String {
    match n {
        0.0 => "0".to_owned(),
        n if n < 1e6 => format!("{:.1} KB", n / 1e3),
        n => format!("{:.2} MB", n / 1e6),
    }
}
