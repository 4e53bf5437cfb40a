//! The page of `wave inspect --html`.

use super::Found;
use super::composer::composer;
use super::html::{COLOUR_SCALE, details, document, paragraph, picture, section, table, verbatim};
use super::pictures::{Picture, thin};
use anyhow::Result;
use serde_json::{Map, Value};
use std::path::Path;
use wave_artefacts::model::Model;
use wave_run::log;
use wave_run::plot::{self, Chart, Series, Unit};

/// Maximum number of rows and columns of a plotted matrix, ...
const LARGEST_SIDE: usize = 192;
/// ... and fewer with many matrices, so that a page stays at a few megabytes.
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

/// The page for the contents of `path`, with its recorded accuracies as SVG and the log of its run.
pub(super) fn page(
    path: &Path,
    found: &Found,
    surface: Option<&str>,
    pictures: &[Picture],
    entries: &[Value],
) -> Result<String> {
    let composer = match &found.templates {
        Some(templates) => composer(path, templates)?,
        None => String::new(),
    };
    let empty = Map::new();
    let summary = found.summary.as_object().unwrap_or(&empty);
    let facts = facts(summary);
    // The choice of a size comes first.
    let mut body = match composer.is_empty() {
        true => facts,
        false => composer.clone() + &details("Properties", &facts),
    };
    if let Some(ledger) = summary.get("ledger").and_then(Value::as_object) {
        let rows = ledger.iter().map(|(name, n)| (name.clone(), n.to_string()));
        let rows = table(["origin", "parameters"], rows);
        body += &details("Parameters by origin", &rows);
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
    if let Some(Model { label_names, .. }) = &found.model {
        let rows = label_names.iter().enumerate();
        let rows = rows.map(|(i, label)| (i.to_string(), label.clone()));
        let title = format!("{} classes", label_names.len());
        body += &details(&title, &table(["index", "label"], rows));
    }
    if let Some(tensors) = summary.get("tensors").and_then(Value::as_object) {
        let rows = tensors.iter();
        let rows = rows.map(|(name, shape)| (name.clone(), sides(shape)));
        let title = format!("{} tensors", tensors.len());
        body += &details(&title, &table(["name", "shape"], rows));
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

/// The values that are single strings or numbers.
fn facts(summary: &Map<String, Value>) -> String {
    let rows = summary.iter().filter_map(|(key, value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(n) => n.to_string(),
            Value::Object(map) if key == "counts" => {
                let counts = map.iter().map(|(set, n)| format!("{set} {n}"));
                counts.collect::<Vec<_>>().join(", ")
            }
            _ => return None,
        };
        Some((key.replace('_', " "), text))
    });
    table(["property", "value"], rows)
}

fn accuracies(rows: &[Value]) -> String {
    let row = |row: &Value| {
        let size = format!("{} x {}", row["depth"], row["width"]);
        let top1 = row["top1"].as_f64().unwrap_or(f64::NAN);
        (size, format!("{:.2} %", 100.0 * top1))
    };
    table(["depth x width", "top-1"], rows.iter().map(row))
}

/// `3 x 4`.
pub(crate) fn sides(shape: &Value) -> String {
    let sides = shape.as_array().into_iter().flatten();
    let sides: Vec<String> = sides.map(Value::to_string).collect();
    sides.join(" x ")
}

fn curves(entries: &[Value]) -> Result<String> {
    let mut drawn = String::new();
    for (title, key) in CURVES {
        let points = log::over_epochs(entries, key);
        if !points.is_empty() {
            let unit = match key {
                "top1" => Unit::Percent,
                _ => Unit::Plain,
            };
            let series = [Series::new(title, &points)];
            let svg = Chart::over_epochs(title, unit, &series).narrow()?;
            drawn += &format!("<figure>{svg}</figure>\n");
        }
    }
    if drawn.is_empty() {
        return Ok(drawn);
    }
    let drawn = format!("<div class=\"large\">\n{drawn}</div>\n");
    Ok(section("Training", &drawn))
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
        n => paragraph(&format!("Large matrices show 1 in {n} rows and columns.")),
    };
    Ok(format!(
        "{COLOUR_SCALE}{note}<div class=\"small\">\n{figures}</div>\n"
    ))
}
