//! What a comparison found, as tables and plots.

use crate::compare::{Bench, Choice, Compare, Row};
use crate::plot;
use crate::recipe::Recipe;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes `report.md` and the plots; returns the report.
pub fn write(
    recipe: &Recipe,
    compare: &Compare,
    bench: &Bench,
    rates: &BTreeMap<String, Choice>,
    rows: &[Row],
    out: &Path,
) -> Result<String> {
    let methods: Vec<&String> = compare.methods.keys().collect();
    let epochs = |method: &str| -> f64 {
        let row = rows.iter().find(|row| row.method == method);
        row.map_or(0.0, |row| (row.epochs * 1e3).round() / 1e3)
    };
    let all: Vec<String> = methods
        .iter()
        .map(|m| format!("{m} {}", epochs(m)))
        .collect();
    let mut text = format!(
        "# {}\n\nTop-1 in % on the test images, mean ± standard deviation over seeds {:?}{}. In \
         parentheses: before fine-tuning. Epochs of fine-tuning: {}.\n\n",
        recipe.name,
        compare.seeds,
        if compare.condensations > 1 {
            format!(" and {} condensations", compare.condensations)
        } else {
            String::new()
        },
        all.join(", ")
    );
    text += "| depth x width | parameters | transferred | scalers fitted |";
    text += &methods
        .iter()
        .map(|m| format!(" {m} |"))
        .collect::<String>();
    text += &format!("\n|{}\n", "---|".repeat(4 + methods.len()));
    for &(depth, width) in &compare.sizes {
        let of = |method: &str| -> Vec<&Row> {
            rows.iter()
                .filter(|r| r.method == method && (r.depth, r.width) == (depth, width))
                .collect()
        };
        let here: Vec<&Row> = methods.iter().flat_map(|m| of(m)).collect();
        let most = |f: fn(&Row) -> usize| here.iter().map(|r| f(r)).max().unwrap_or(0);
        let parameters = bench.parameters(depth, width);
        text += &format!(
            "| {depth} x {width} | {parameters} | {} | {} |",
            most(|r| r.transferred_parameters),
            most(|r| r.scalers_fitted)
        );
        let best = methods
            .iter()
            .map(|m| mean(&of(m), |r| r.top1))
            .fold(f64::NEG_INFINITY, f64::max);
        for method in &methods {
            let rows = of(method);
            if rows.is_empty() {
                text += " |";
                continue;
            }
            let (m, sd) = (mean(&rows, |r| r.top1), deviation(&rows));
            let bold = if m == best { "**" } else { "" };
            let spread = if rows.len() > 1 {
                format!(" ± {:.2}", 100.0 * sd)
            } else {
                String::new()
            };
            let start = 100.0 * mean(&rows, |r| r.start_top1);
            text += &format!(" {bold}{:.2}{bold}{spread} ({start:.1}) |", 100.0 * m);
        }
        text += "\n";
        let series: Vec<(String, Vec<(f64, f64)>)> = methods
            .iter()
            .map(|m| (m.to_string(), mean_curve(&of(m))))
            .collect();
        let title = format!("depth {depth}, width {width}");
        let svg = plot::line_plot(&title, "epoch", "top-1", &series)?;
        wave_hub::write_atomic(
            &out.join(format!("curve-{depth}x{width}.svg")),
            svg.as_bytes(),
        )?;
    }
    text += "\nLearning rates, chosen on held-out training images where a grid is given:\n\n";
    for (method, choice) in rates {
        text += &format!("- {method}: {}\n", choice.describe());
    }
    let long: Vec<&&String> = methods.iter().filter(|m| epochs(m) > 1.5).collect();
    if !long.is_empty() {
        text += "\nEpoch by epoch, mean over seeds:\n\n";
        for &(depth, width) in &compare.sizes {
            for method in &long {
                let rows: Vec<&Row> = rows
                    .iter()
                    .filter(|r| r.method == ***method && (r.depth, r.width) == (depth, width))
                    .collect();
                let curve: Vec<String> = mean_curve(&rows)
                    .iter()
                    .map(|(_, t)| format!("{:.2}", 100.0 * t))
                    .collect();
                if !curve.is_empty() {
                    text += &format!("- {depth} x {width}, {method}: {}\n", curve.join(", "));
                }
            }
        }
    }
    text += "\nTemplates, top-1 in % of models made from them without data:\n\n";
    // Several methods may start from the same templates.
    let dirs: BTreeSet<&PathBuf> = methods.iter().flat_map(|m| bench.templates(m)).collect();
    for dir in dirs {
        let config = crate::elastic::read(dir)?.config;
        let list: Vec<String> = config
            .accuracies
            .iter()
            .map(|a| format!("{} x {}: {:.2}", a.depth, a.width, 100.0 * a.top1))
            .collect();
        let name = dir
            .file_name()
            .map_or(String::new(), |n| n.to_string_lossy().into_owned());
        text += &format!("- {name}: {}\n", list.join(", "));
    }
    wave_hub::write_atomic(&out.join("report.md"), text.as_bytes())?;
    Ok(text)
}

fn mean(rows: &[&Row], f: impl Fn(&Row) -> f64) -> f64 {
    if rows.is_empty() {
        return f64::NEG_INFINITY;
    }
    rows.iter().map(|r| f(r)).sum::<f64>() / rows.len() as f64
}

/// Sample standard deviation of the accuracy.
fn deviation(rows: &[&Row]) -> f64 {
    let m = mean(rows, |r| r.top1);
    let n = rows.len().max(2) - 1;
    (rows.iter().map(|r| (r.top1 - m).powi(2)).sum::<f64>() / n as f64).sqrt()
}

fn mean_curve(rows: &[&Row]) -> Vec<(f64, f64)> {
    let points = rows.iter().map(|r| r.curve.len()).min().unwrap_or(0);
    (0..points)
        .map(|i| {
            let n = rows.len() as f64;
            (
                rows[0].curve[i].0,
                rows.iter().map(|r| r.curve[i].1).sum::<f64>() / n,
            )
        })
        .collect()
}
