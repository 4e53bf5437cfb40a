//! Model cards: the `README.md` of an artefact, with the YAML head that hubs read.

use std::path::Path;

use crate::directory::{CARD_FILE, CONFIG_FILE};
use crate::files::read_start;

mod sections;

pub use sections::{PAPER, card_interface, card_timm, card_transformers, millions};

/// Longer cards are not searched.
const MOST_READ: u64 = 1 << 20;

/// A measured accuracy, for the head's `model-index`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CardResult {
    /// The identifier of the data set on the hub, or its name here.
    pub dataset: String,
    /// The measure, such as `top-1 at 6 x 64`.
    pub name: String,
    /// Fraction of the images that are classified correctly, 0 to 1.
    pub accuracy: f64,
}

/// The YAML head of a card. Fields that are `None` or empty are left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CardFront {
    /// SPDX-like identifier, as hubs spell it: `apache-2.0`.
    pub license: Option<String>,
    /// Free labels to search by.
    pub tags: Vec<String>,
    /// Data sets trained on.
    pub datasets: Vec<String>,
    /// Measured accuracies, which also name `accuracy` as the measure.
    pub results: Vec<CardResult>,
    /// The model that this one was made from: a hub name or a path.
    pub base_model: Option<String>,
    /// The library that loads it: `timm`.
    pub library_name: Option<String>,
    /// The task: `image-classification`.
    pub pipeline_tag: Option<String>,
}

/// A card: the YAML head between `---` lines, the title, and the body as it is, ending in one
/// newline. Any text is safe in the head: what YAML could misread is quoted.
pub fn model_card(front: &CardFront, title: &str, body_markdown: &str) -> String {
    let mut card = String::from("---\n");
    for (key, value) in [
        ("license", &front.license),
        ("library_name", &front.library_name),
        ("pipeline_tag", &front.pipeline_tag),
        ("base_model", &front.base_model),
    ] {
        let line = |value: &String| format!("{key}: {}\n", scalar(value));
        card.extend(value.iter().map(line));
    }
    push_list(&mut card, "datasets", &front.datasets);
    if !front.results.is_empty() {
        push_list(&mut card, "metrics", &["accuracy".to_owned()]);
    }
    push_list(&mut card, "tags", &front.tags);
    let title: Vec<&str> = title.split_whitespace().collect();
    let title = title.join(" ");
    push_results(&mut card, &title, front);
    card.push_str(&format!("---\n\n# {title}\n"));
    let body = body_markdown.trim_matches(['\n', '\r']);
    if !body.is_empty() {
        card.push_str(&format!("\n{body}\n"));
    }
    card
}

/// The licence of the weights in a directory: of its card, else of `config.json` or, as in timm, its `pretrained_cfg`.
pub fn stated_license(dir: &Path) -> Option<String> {
    let of_config = || {
        let config: serde_json::Value = crate::read_json(&dir.join(CONFIG_FILE)).ok()?;
        let mut places = [&config["license"], &config["pretrained_cfg"]["license"]].into_iter();
        places.find_map(|value| license_name(value.as_str()?))
    };
    card_license(dir).or_else(of_config)
}

/// The licence in the YAML head of a directory's card; `None` where there is none, or it is `unknown`.
fn card_license(dir: &Path) -> Option<String> {
    let text = read_start(&dir.join(CARD_FILE), MOST_READ).ok()?;
    let text = String::from_utf8(text).ok()?;
    let (head, _) = split(&text)?;
    let mut lines = head.lines();
    let value = lines.find_map(|line| line.strip_prefix("license:"))?;
    let value = match value.trim() {
        "" => lines.next()?.trim().strip_prefix("- ")?, // a list of one
        value => value,
    };
    license_name(value)
}

/// A licence's name, if it is one.
fn license_name(value: &str) -> Option<String> {
    let value = value.trim().trim_matches(['"', '\'']);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    let named = !value.is_empty() && value.chars().all(plain) && value != "unknown";
    named.then(|| value.to_owned())
}

/// A card with another licence in its YAML head; the card itself if it has no head.
pub fn with_license(card: &str, license: &str) -> String {
    let Some((head, body)) = split(card) else {
        return card.to_owned();
    };
    let mut dropped = false;
    let kept = head.lines().filter(|line| {
        // The key, and a list below it.
        dropped = line.starts_with("license:") || (dropped && line.starts_with(['-', ' ']));
        !dropped
    });
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    format!("---\nlicense: {}\n{kept}---\n{body}", scalar(license))
}

/// The YAML head, and the rest.
pub(crate) fn split(card: &str) -> Option<(&str, &str)> {
    let mut starts = ["---\n", "---\r\n"].into_iter();
    let rest = starts.find_map(|start| card.strip_prefix(start))?;
    let mut start = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..start], &rest[start + line.len()..]));
        }
        start += line.len();
    }
    None
}

fn push_list(card: &mut String, key: &str, values: &[String]) {
    if !values.is_empty() {
        card.push_str(&format!("{key}:\n"));
        for value in values {
            card.push_str(&format!("- {}\n", scalar(value)));
        }
    }
}

/// The `model-index`: the results by data set.
fn push_results(card: &mut String, title: &str, front: &CardFront) {
    let (Some(task), false) = (&front.pipeline_tag, front.results.is_empty()) else {
        return;
    };
    let title = scalar(title);
    card.push_str(&format!("model-index:\n- name: {title}\n  results:\n"));
    for results in front.results.chunk_by(|a, b| a.dataset == b.dataset) {
        let dataset = &results[0].dataset;
        // An identifier of the hub, or the hub's word for data that it does not have.
        let kind = match dataset.contains('/') {
            true => dataset,
            false => "imagefolder",
        };
        card.push_str(&format!(
            "  - task:\n      type: {}\n    dataset:\n      type: {}\n      name: {}\n    metrics:\n",
            scalar(task),
            scalar(kind),
            scalar(dataset)
        ));
        for result in results {
            let (name, accuracy) = (scalar(&result.name), result.accuracy);
            card.push_str(&format!(
                "    - type: accuracy\n      name: {name}\n      value: {accuracy:.4}\n"
            ));
        }
    }
}

/// `text` as a YAML string, unquoted if no reader could misread it.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    if text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(plain)
        && !words.contains(&text.to_ascii_lowercase().as_str())
    {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Line separators and the byte order mark are not printable to YAML either.
            c if c.is_control() || "\u{2028}\u{2029}\u{feff}".contains(c) => {
                quoted.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
