//! The page of `wave inspect --html`.

use super::html::{colour_scale, details, document, paragraph, picture, section, table, verbatim};
use super::pictures::{Picture, thin};
use anyhow::Result;
use serde_json::{Map, Value};
use std::path::Path;
use wave_run::plot::{self, Chart, Series, Unit};

/// Largest number of rows and columns of a drawn matrix, ...
const LARGEST_SIDE: usize = 192;
/// ... and fewer where there are many matrices, so that a page stays at a few megabytes.
const MOST_PIXELS: usize = 600_000;

/// Titles of curves, with their keys in the log.
const CURVES: [(&str, &str); 6] = [
    ("Training loss", "loss"),
    ("Test top-1", "top1"),
    ("Test loss", "test_loss"),
    ("Learning rate", "learning_rate"),
    ("Gradient norm", "gradient_norm"),
    ("Images per second", "images_per_second"),
];

/// Contents of a page beside the summary.
pub(super) struct Shown<'a> {
    /// Names of the classes.
    pub(super) labels: Option<&'a [String]>,
    /// Recorded accuracies, as SVG.
    pub(super) surface: Option<&'a str>,
    /// The section that composes models.
    pub(super) composer: &'a str,
    pub(super) pictures: &'a [Picture],
    /// The log of the run.
    pub(super) entries: &'a [Value],
}

/// The page of `path`.
pub(super) fn page(path: &Path, summary: &Value, shown: &Shown) -> Result<String> {
    let Shown {
        labels,
        surface,
        composer,
        pictures,
        entries,
    } = *shown;
    let empty = Map::new();
    let summary = summary.as_object().unwrap_or(&empty);
    let mut body = composer.to_owned();
    let facts = facts(summary);
    // A size to choose comes first.
    body += &match composer.is_empty() {
        true => facts,
        false => details("Properties", &facts),
    };
    if let Some(ledger) = summary.get("ledger").and_then(Value::as_object) {
        body += &details("Parameters by origin", &ledger_table(ledger));
    }
    if let Some(rows) = summary.get("accuracies").and_then(Value::as_array)
        && !rows.is_empty()
    {
        let drawn = surface.map_or(String::new(), |svg| format!("<figure>{svg}</figure>\n"));
        body += &details("Accuracy without data", &(accuracies(rows) + &drawn));
    }
    body += &curves(entries)?;
    for picture in pictures {
        let gallery = gallery(picture)?;
        body += &match composer.is_empty() {
            true => section(&picture.title, &gallery),
            false => details(&picture.title, &gallery),
        };
    }
    if let Some(labels) = labels {
        let rows: Vec<Vec<String>> = labels
            .iter()
            .enumerate()
            .map(|(i, label)| vec![i.to_string(), label.clone()])
            .collect();
        let title = format!("{} classes", rows.len());
        body += &details(&title, &table(&["index", "label"], &rows));
    }
    if let Some(tensors) = summary.get("tensors").and_then(Value::as_object) {
        let rows: Vec<Vec<String>> = tensors
            .iter()
            .map(|(name, shape)| vec![name.clone(), sides(shape)])
            .collect();
        let title = format!("{} tensors", rows.len());
        body += &details(&title, &table(&["name", "shape"], &rows));
    }
    for (title, key) in [
        ("Auxiliary", "auxiliary"),
        ("Metadata", "metadata"),
        ("Provenance", "provenance"),
    ] {
        if let Some(value) = summary.get(key).filter(|value| !value.is_null()) {
            body += &details(title, &verbatim(&format!("{value:#}")));
        }
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(document(&name.to_string_lossy(), &body))
}

/// The values that are single words or numbers.
fn facts(summary: &Map<String, Value>) -> String {
    let rows: Vec<Vec<String>> = summary
        .iter()
        .filter_map(|(key, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(n) => n.to_string(),
                Value::Object(map) if key == "counts" => {
                    let counts = map.iter().map(|(set, n)| format!("{set} {n}"));
                    counts.collect::<Vec<_>>().join(", ")
                }
                _ => return None,
            };
            Some(vec![key.replace('_', " "), text])
        })
        .collect();
    table(&["property", "value"], &rows)
}

fn ledger_table(ledger: &Map<String, Value>) -> String {
    let rows: Vec<Vec<String>> = ledger
        .iter()
        .map(|(name, n)| vec![name.clone(), n.to_string()])
        .collect();
    table(&["origin", "parameters"], &rows)
}

fn accuracies(rows: &[Value]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let top1 = row["top1"].as_f64().unwrap_or(f64::NAN);
            vec![
                format!("{} x {}", row["depth"], row["width"]),
                format!("{:.2} %", 100.0 * top1),
            ]
        })
        .collect();
    table(&["depth x width", "top-1"], &rows)
}

/// `3 x 4`.
fn sides(shape: &Value) -> String {
    let sides: Vec<String> = shape
        .as_array()
        .map(|sides| sides.iter().map(Value::to_string).collect())
        .unwrap_or_default();
    sides.join(" x ")
}

fn curves(entries: &[Value]) -> Result<String> {
    let mut drawn = String::new();
    for (title, key) in CURVES {
        let points: Vec<(f64, f64)> = entries
            .iter()
            .filter_map(|e| Some((e["epoch"].as_f64()?, e[key].as_f64()?)))
            .collect();
        if !points.is_empty() {
            let chart = Chart {
                title,
                x_label: "epoch",
                y_label: "",
                unit: match key == "top1" {
                    true => Unit::Percent,
                    false => Unit::Plain,
                },
                series: &[Series::new(title, &points)],
            };
            drawn += &format!("<figure>{}</figure>\n", chart.narrow()?);
        }
    }
    Ok(match drawn.is_empty() {
        true => String::new(),
        false => section(
            "Training",
            &format!("<div class=\"large\">\n{drawn}</div>\n"),
        ),
    })
}

fn gallery(group: &Picture) -> Result<String> {
    let share = (MOST_PIXELS as f64 / group.panels.len().max(1) as f64).sqrt();
    let most = LARGEST_SIDE.min(share as usize).max(16);
    let mut strides = 1;
    let mut figures = String::new();
    for panel in &group.panels {
        let ((name, rows, cols, values), stride) = thin(panel, most);
        strides = strides.max(stride);
        let scale = plot::scale(&values);
        let caption = format!("{name}, −{scale:.2} … {scale:.2}");
        figures += &picture(&plot::heat_map(rows, cols, &values)?, &caption);
    }
    let note = match strides {
        1 => String::new(),
        n => paragraph(&format!("Of large matrices, row and column 1 in {n}.")),
    };
    let scale = colour_scale("lowest", "highest");
    Ok(format!(
        "{scale}{note}<div class=\"small\">\n{figures}</div>\n"
    ))
}
