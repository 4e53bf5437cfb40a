//! Human-readable results: aligned rows of names and values, without empty values.

use crate::inspect::sides;
use crate::predict;
use serde_json::{Map, Value};
use wave_run::forecast::bytes;
use wave_run::terminal::{cell, column, one_line};

/// Keys not shown as rows: logits are for programs only, candidate sizes go to stderr, a card follows the rows.
const HIDDEN: [&str; 3] = ["logits", "sizes", "card"];

/// A result as text, or the plan or report in it. The tensors of a model or of templates are counted, and listed if
/// `verbose`; those of a bare weights file are always listed, since it contains nothing else.
pub(super) fn text(result: &Value, verbose: bool) -> String {
    if let Some(text) = result["plan"].as_str().or(result["report"].as_str()) {
        return text.to_owned();
    }
    if let Some(predictions) = result["predictions"].as_array() {
        return predict::text(predictions);
    }
    let Value::Object(map) = result else {
        return value("", result) + "\n";
    };
    let mut map = map.clone();
    if let (Some(Value::Object(tensors)), false) = (map.get("tensors"), verbose)
        && result["kind"] != "tensors"
    {
        let n = tensors.len();
        map.insert("tensors".into(), format!("{n}, listed with -v").into());
    }
    let card = result["card"].as_str();
    rows(&map, "") + &card.map_or(String::new(), |card| format!("\n{card}"))
}

/// The entries of a map, one on each line; nested maps and tables below their names.
fn rows(map: &Map<String, Value>, indent: &str) -> String {
    let is_shown = |key: &str, value| !HIDDEN.contains(&key) && !is_empty(value);
    let shown = map.iter().filter(|(key, value)| is_shown(key, value));
    let shown = shown.map(|(k, v)| (cell(&name(k)), k, v));
    let shown: Vec<(String, &String, &Value)> = shown.collect();
    let short = shown.iter().filter(|(_, _, value)| !is_block(value));
    let width = column(short.map(|(name, ..)| name.as_str()));
    let deeper = format!("{indent}  ");
    let line = |(name, key, v): &(String, &String, &Value)| match v {
        Value::Object(map) if *key == "tensors" => {
            format!("{indent}{name}\n{}", tensors(map, &deeper))
        }
        Value::Object(map) => format!("{indent}{name}\n{}", rows(map, &deeper)),
        Value::Array(items) if is_block(v) => format!("{indent}{name}\n{}", table(items, &deeper)),
        v => format!("{indent}{name:width$}  {}\n", value(key, v)),
    };
    shown.iter().map(line).collect()
}

/// Names of tensors unchanged, with their shapes.
fn tensors(map: &Map<String, Value>, indent: &str) -> String {
    let names: Vec<String> = map.keys().map(|name| cell(name)).collect();
    let width = column(names.iter().map(String::as_str));
    let line = |(name, shape): (&String, &Value)| {
        let line = format!("{indent}{name:width$}  {}", sides(shape));
        line.trim_end().to_string() + "\n"
    };
    names.iter().zip(map.values()).map(line).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        _ => false,
    }
}

/// True if a value takes several lines.
fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().any(|i| i.is_object() || i.is_string()),
        _ => false,
    }
}

/// Maps as a table with a column for each key; other items one on each line.
fn table(items: &[Value], indent: &str) -> String {
    let mut keys: Vec<&String> = Vec::new();
    for map in items.iter().filter_map(Value::as_object) {
        for (key, value) in map {
            let hidden = HIDDEN.contains(&key.as_str()) || value.is_null() || is_block(value);
            if !hidden && !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    if keys.is_empty() {
        let line = |item: &Value| format!("{indent}{}\n", value("", item));
        return items.iter().map(line).collect();
    }
    let head = keys.iter().map(|key| cell(&name(key))).collect();
    let text = |item: &Value, key: &str| match &item[key] {
        Value::Null => String::new(),
        v => cell(&value(key, v)),
    };
    let row = |item: &Value| keys.iter().map(|key| text(item, key)).collect();
    let lines = std::iter::once(head).chain(items.iter().map(row));
    let lines: Vec<Vec<String>> = lines.collect();
    let width = |i: usize| column(lines.iter().map(|cells| cells[i].as_str()));
    let widths: Vec<usize> = (0..keys.len()).map(width).collect();
    let numeric = |key: &str| items.iter().any(|item| item[key].is_number());
    let line = |cells: Vec<String>| {
        let cells = cells.iter().zip(&widths).zip(&keys);
        let cells: Vec<String> = cells
            .map(|((cell, width), key)| match numeric(key) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:width$}"),
            })
            .collect();
        format!("{indent}{}\n", cells.join("  ").trim_end())
    };
    lines.into_iter().map(line).collect()
}

/// A key as words.
fn name(key: &str) -> String {
    match key {
        "top1" => "top-1".into(),
        "top5" => "top-5".into(),
        "expected_top1" => "expected top-1".into(),
        "start_top1" => "top-1 at the start".into(),
        _ => match key.strip_suffix("_range") {
            Some(of) => name(of),
            None => key.replace('_', " "),
        },
    }
}

/// A value with the unit of its key.
fn value(key: &str, value: &Value) -> String {
    let fractions = ["top5", "exact", "probability", "share", "share_of_peak"];
    let fraction = key.ends_with("top1") || fractions.contains(&key);
    match value {
        Value::String(text) => one_line(text).into_owned(),
        Value::Array(ends) if key.ends_with("_range") && ends.len() == 2 => {
            let of = key.trim_end_matches("_range");
            let [from, to] = [0, 1].map(|end| self::value(of, &ends[end]));
            format!("{from} to {to}")
        }
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(|item| self::value(key, item)).collect();
            parts.join(", ")
        }
        Value::Number(n) => match (n.as_u64(), n.as_f64()) {
            (_, Some(x)) if fraction => format!("{:.1} %", 100.0 * x),
            (Some(n), _) if key.ends_with("bytes") => bytes(n as f64),
            (Some(n), _) if key.ends_with("parameters") => count(n),
            (Some(n), _) if key.ends_with("seed") => n.to_string(),
            (Some(n), _) => thousands(n),
            (None, Some(x)) if key.ends_with("seconds") => format!("{x:.1} s"),
            (None, Some(x)) => number(x),
            (None, None) => n.to_string(),
        },
        other => other.to_string(),
    }
}

/// `1.2 M (1,234,567)`: in the largest unit below the value.
fn count(n: u64) -> String {
    let (size, unit) = match n {
        ..10_000 => return thousands(n),
        10_000..1_000_000 => (1e3, "k"),
        1_000_000..1_000_000_000 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    format!("{:.1} {unit} ({})", n as f64 / size, thousands(n))
}

/// `1,234,567`.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Four significant digits, without trailing zeros.
fn number(x: f64) -> String {
    if x == 0.0 || !x.is_finite() || !(1e-4..1e6).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let decimals = (3 - x.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{x:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
