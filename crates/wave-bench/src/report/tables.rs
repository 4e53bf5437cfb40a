//! The tables of accuracy and cost, in the form of papers.

use super::Findings;
use super::document::{Block, Cell, Section, Table};
use super::gains::{Among, Gain, sizes_of, standing};
use super::summary::{Cost, Length, Size, Summaries, Summary, is_same_length};

/// Up to this number, methods are columns and sizes rows; beyond, the reverse.
const MOST_COLUMNS: usize = 6;

/// Contents of the tables.
pub(super) struct Found<'a> {
    pub(super) findings: &'a Findings<'a>,
    pub(super) summaries: &'a Summaries,
    pub(super) costs: &'a [Cost],
    pub(super) lengths: &'a [Length],
    pub(super) gains: &'a [Gain],
}

/// For each data set: the accuracies, and the lead of the subject.
pub(super) fn accuracy(found: &Found) -> Vec<Section> {
    let findings = found.findings;
    let section = |dataset: &String| {
        let title = match dataset.as_str() {
            "" => "Accuracy".to_owned(),
            dataset => format!("Accuracy on {dataset}"),
        };
        let mut blocks = vec![Block::Text(caption(found))];
        if findings.methods.len() <= MOST_COLUMNS {
            blocks.push(Block::Table(by_size(found, dataset)));
        } else {
            blocks.extend(
                found
                    .lengths
                    .iter()
                    .flat_map(|l| by_method(found, dataset, l)),
            );
        }
        blocks.extend(lead(found, dataset));
        Section::new(title, blocks)
    };
    findings.datasets.iter().map(section).collect()
}

fn caption(found: &Found) -> String {
    let findings = found.findings;
    let epochs: Vec<String> = found
        .costs
        .iter()
        .map(|cost| format!("{} {}", cost.method, number(cost.epochs)))
        .collect();
    let mut text = format!(
        "Top-1 in % on the test images, mean ± standard deviation over {}{}; in parentheses before \
         fine-tuning. The best is bold.",
        seeds(findings.seeds),
        match findings.condensations {
            0 | 1 => String::new(),
            n => format!(" and {n} condensations"),
        }
    );
    match (epochs.is_empty(), findings.methods.len() > MOST_COLUMNS) {
        (true, _) => text += " No training has come to its end.",
        (_, true) => {
            text += " Extra epochs are those before fine-tuning: once for all, and for each of the \
                     sizes. Transferred and stored values are means over sizes."
        }
        (_, false) => {
            text += &format!(
                " Transferred values and scalers: the most of any method. Epochs of fine-tuning: {}.",
                epochs.join(", ")
            )
        }
    }
    text
}

fn by_size(found: &Found, dataset: &str) -> Table {
    let findings = found.findings;
    let mut columns: Vec<String> = [
        "depth x width",
        "parameters",
        "transferred",
        "scalers fitted",
    ]
    .map(str::to_owned)
    .to_vec();
    columns.extend_from_slice(findings.methods);
    let row = |&(depth, width): &Size| {
        let here: Vec<&Summary> = found.summaries.at(dataset, (depth, width)).collect();
        let most = |f: fn(&Summary) -> usize| here.iter().map(|s| f(s)).max().unwrap_or(0);
        let mut cells: Vec<Cell> = vec![
            format!("{depth} x {width}").into(),
            (findings.parameters)(depth, width).to_string().into(),
            most(|s| s.transferred_parameters).to_string().into(),
            most(|s| s.scalers_fitted).to_string().into(),
        ];
        cells.extend(accuracies(found, dataset, (depth, width), findings.methods));
        cells
    };
    Table {
        columns,
        rows: findings.sizes.iter().map(row).collect(),
    }
}

/// A table with a row for each method of one length, under that length.
fn by_method(found: &Found, dataset: &str, length: &Length) -> Vec<Block> {
    let findings = found.findings;
    let sizes = sizes_of(findings, found.summaries, dataset, &length.methods);
    if sizes.is_empty() {
        return Vec::new();
    }
    let mut columns: Vec<String> = ["method", "extra epochs", "transferred", "stored"]
        .map(str::to_owned)
        .to_vec();
    columns.extend(sizes.iter().map(|&(depth, width)| {
        let parameters = (findings.parameters)(depth, width) as f64;
        format!("{depth} x {width} ({})", count(parameters))
    }));
    let here = |cost: &&Cost| {
        let mut of = found.summaries.of(&cost.method);
        length.methods.contains(&cost.method) && of.any(|s| s.dataset == dataset)
    };
    let costs: Vec<&Cost> = found.costs.iter().filter(here).collect();
    let methods: Vec<String> = costs.iter().map(|cost| cost.method.clone()).collect();
    let mut rows: Vec<Vec<Cell>> = costs
        .iter()
        .map(|cost| {
            vec![
                cost.method.as_str().into(),
                extra_epochs(cost).into(),
                count(cost.transferred_parameters).into(),
                count(cost.stored_parameters).into(),
            ]
        })
        .collect();
    add_accuracies(&mut rows, found, dataset, &sizes, &methods);
    let others: String = costs
        .iter()
        .filter(|cost| !is_same_length(cost.epochs, length.epochs))
        .map(|cost| format!("; {} for {}", cost.method, number(cost.epochs)))
        .collect();
    let intro = format!("Fine-tuned for {}{others}:", plural(length.epochs, "epoch"));
    vec![Block::Text(intro), Block::Table(Table { columns, rows })]
}

/// Adds a column for each size to rows of methods.
fn add_accuracies(
    rows: &mut [Vec<Cell>],
    found: &Found,
    dataset: &str,
    sizes: &[Size],
    methods: &[String],
) {
    for &size in sizes {
        let cells = accuracies(found, dataset, size, methods);
        rows.iter_mut()
            .zip(cells)
            .for_each(|(row, cell)| row.push(cell));
    }
}

/// A cell for each method at a size, the best in bold; empty without rows.
pub(super) fn accuracies(
    found: &Found,
    dataset: &str,
    size: Size,
    methods: &[String],
) -> Vec<Cell> {
    let cells: Vec<Option<&Summary>> = methods
        .iter()
        .map(|method| found.summaries.get(dataset, method, size))
        .collect();
    let best = Summaries::best(cells.iter().flatten().copied()).map(|s| s.top1);
    let seeds = found.findings.seeds.len();
    cells
        .into_iter()
        .map(|cell| cell.map_or(Cell::default(), |s| accuracy_cell(s, best, seeds)))
        .collect()
}

fn accuracy_cell(s: &Summary, best: Option<f64>, seeds: usize) -> Cell {
    let mean = format!("{:.2}", 100.0 * s.top1);
    let mut text = String::new();
    if let Some(sd) = s.deviation {
        text += &format!(" ± {:.2}", 100.0 * sd);
    }
    text += &format!(" ({:.1})", 100.0 * s.start_top1);
    if s.runs < seeds {
        text += &format!(", {} of {seeds} seeds", s.runs);
    }
    match best == Some(s.top1) {
        true => Cell { strong: mean, text },
        false => (mean + &text).into(),
    }
}

/// The sizes where the subject is first, and its distance to the best other method.
fn lead(found: &Found, dataset: &str) -> Vec<Block> {
    let findings = found.findings;
    let Some(subject) = findings.subject else {
        return Vec::new();
    };
    if found.summaries.of(subject).all(|s| s.dataset != dataset) {
        return Vec::new();
    }
    let mut blocks = vec![Block::List(standing(subject, dataset, found.gains))];
    let here: Vec<&Gain> = found
        .gains
        .iter()
        .filter(|g| g.dataset == dataset)
        .collect();
    if here.is_empty() {
        return blocks;
    }
    blocks.push(Block::Text(format!(
        "{subject} less the best of the others that were fine-tuned for as long, in points: of all, \
         and, where that is another, of the baselines (not those beside it in an ablation, nor \
         trained for each model). t and p (two-sided, not corrected for the number of sizes) of a \
         paired test over the seeds that both have."
    )));
    let row = |g: &&Gain| -> Vec<Cell> {
        let among = match g.among {
            Among::All => "all",
            Among::Baselines => "baselines",
        };
        let paired = g.paired;
        let or_none = |text: Option<String>| text.unwrap_or_default();
        vec![
            format!("{} x {}", g.depth, g.width).into(),
            g.rival.as_str().into(),
            among.into(),
            format!("{:+.2}", 100.0 * g.difference).into(),
            or_none(paired.and_then(|p| p.t).map(|t| format!("{t:.2}"))).into(),
            or_none(paired.and_then(|p| p.p).map(probability)).into(),
            or_none(paired.map(|p| p.pairs.to_string())).into(),
        ]
    };
    blocks.push(Block::Table(Table {
        columns: [
            "depth x width",
            "best other",
            "of",
            "gain",
            "t",
            "p",
            "pairs",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: here.iter().map(row).collect(),
    }));
    blocks
}

/// Epochs and values of each method.
pub(super) fn costs(found: &Found) -> Section {
    const SIZES: [usize; 4] = [1, 5, 10, 20];

    let sizes = found.findings.sizes.len();
    let mut columns: Vec<String> = ["method", "fine-tuning", "once", "each model"]
        .map(str::to_owned)
        .to_vec();
    columns.push(format!("for {}", plural(sizes as f64, "size")));
    columns.push("transferred".to_owned());
    columns.extend(SIZES.map(|n| format!("stored for {}", plural(n as f64, "size"))));
    let row = |cost: &Cost| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![
            cost.method.as_str().into(),
            number(cost.epochs).into(),
            number(cost.shared_epochs).into(),
            number(cost.own_epochs).into(),
            extra_epochs(cost).into(),
            count(cost.transferred_parameters).into(),
        ];
        cells.extend(SIZES.map(|n| Cell::from(bytes(4.0 * cost.stored_for(n)))));
        cells
    };
    let table = Table {
        columns,
        rows: found.costs.iter().map(row).collect(),
    };
    let text = "Epochs of fine-tuning, those spent once for all sizes, those spent for each model \
                before its fine-tuning, and all but the fine-tuning for the sizes of this bench; \
                values taken over, mean over sizes; and what has to be kept to start models of a \
                number of sizes, at 4 bytes a value (where that differs by size: of the mean size).";
    Section::new(
        "Costs",
        vec![Block::Text(text.to_owned()), Block::Table(table)],
    )
}

/// The methods of each ablation by size.
pub(super) fn ablations(found: &Found) -> Vec<Section> {
    let findings = found.findings;
    let mut sections = Vec::new();
    for (title, methods) in findings.ablations {
        let mut blocks = Vec::new();
        for dataset in findings.datasets {
            let sizes = sizes_of(findings, found.summaries, dataset, methods);
            if sizes.is_empty() {
                continue;
            }
            if !dataset.is_empty() {
                blocks.push(Block::Text(format!("On {dataset}:")));
            }
            let columns = ["method".to_owned(), "epochs".to_owned()]
                .into_iter()
                .chain(
                    sizes
                        .iter()
                        .map(|(depth, width)| format!("{depth} x {width}")),
                );
            let mut rows: Vec<Vec<Cell>> = methods
                .iter()
                .map(|method| {
                    let cost = found.costs.iter().find(|cost| &cost.method == method);
                    let epochs = cost.map_or(String::new(), |cost| number(cost.epochs));
                    vec![method.as_str().into(), epochs.into()]
                })
                .collect();
            add_accuracies(&mut rows, found, dataset, &sizes, methods);
            blocks.push(Block::Table(Table {
                columns: columns.collect(),
                rows,
            }));
        }
        if blocks.is_empty() {
            blocks.push(Block::Text(
                "No training of it has come to its end.".to_owned(),
            ));
        }
        sections.push(Section::new(format!("Ablation: {title}"), blocks));
    }
    sections
}

/// `12 + 5 × 0.3 = 13.5`: once, plus for each size.
fn extra_epochs(cost: &Cost) -> String {
    let (shared, own) = (number(cost.shared_epochs), number(cost.own_epochs));
    let all = number(cost.extra_epochs);
    match (cost.shared_epochs > 0.0, cost.own_epochs > 0.0) {
        (_, false) => shared,
        (false, true) => format!("{} × {own} = {all}", cost.sizes),
        (true, true) => format!("{shared} + {} × {own} = {all}", cost.sizes),
    }
}

/// `seed 0`, `seeds 0, 1`.
pub(super) fn seeds(seeds: &[u64]) -> String {
    let all: Vec<String> = seeds.iter().map(u64::to_string).collect();
    format!(
        "seed{} {}",
        if all.len() == 1 { "" } else { "s" },
        all.join(", ")
    )
}

/// `1 epoch`, `2.5 epochs`.
pub(super) fn plural(n: f64, unit: &str) -> String {
    let n = number(n);
    format!("{n} {unit}{}", if n == "1" { "" } else { "s" })
}

/// At most three decimals.
pub(super) fn number(value: f64) -> String {
    format!("{}", (1e3 * value).round() / 1e3)
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

fn probability(p: f64) -> String {
    match p < 0.001 {
        true => "< 0.001".to_owned(),
        false => format!("{p:.3}"),
    }
}
