//! The template directory of a condensation, and its card.

use crate::model::{card_front, task};
use crate::origin;
use crate::templates::{self, Description, TAGS};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use wave_hub::{Accuracy, CardFront, FloatType};
use wave_learngene::Learngene;

/// Writes the template directory with its card.
pub(super) fn write(
    out: &Path,
    gene: &Learngene,
    float: FloatType,
    about: Description,
) -> Result<()> {
    let card = card(gene, &about.accuracies, &about.provenance);
    templates::write(out, gene, float, about, &card)
}

fn card(gene: &Learngene, accuracies: &[Accuracy], provenance: &Value) -> String {
    let task = task(gene.auxiliary.classes);
    let front = CardFront {
        tags: [task].into_iter().chain(TAGS).map(str::to_owned).collect(),
        library_name: Some("wave".into()),
        pipeline_tag: Some(task.into()),
        results: templates::card_results(accuracies, provenance),
        ..card_front()
    };
    let a = &gene.auxiliary;
    let mut body = format!(
        "Weight templates for vision transformers of any depth and of any width that is a \
         multiple of {}. Make one with\n\n```sh\nwave expand DIR --depth 6 --width \
         {}\n```\n\n| parameters | |\n|---|---|\n",
        a.head_width(),
        a.width
    );
    for (name, n) in gene.ledger() {
        body += &format!("| {name} | {n} |\n");
    }
    body += &templates::card_accuracies(accuracies, super::EXPANDED);
    body += &format!("\n```json\n{provenance:#}\n```\n");
    let title = format!(
        "Weight templates, {}",
        provenance["data"].as_str().unwrap_or("wave")
    );
    origin::card(front, provenance, &title, &body)
}
