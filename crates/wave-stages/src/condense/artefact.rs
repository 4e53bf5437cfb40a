//! The template directory of a condensation: measured accuracies, and its card.

use super::{CondensePlan, score};
use crate::model::{card_front, task};
use crate::origin;
use crate::templates::{self, Description, TAGS};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use wave_hub::{Accuracy, CardFront, CardResult, FloatType};
use wave_learngene::Learngene;
use wave_run::data::Data;

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

/// Accuracies of models composed without data, at up to five depths for each width.
pub(super) fn accuracies(
    gene: &Learngene,
    plan: &CondensePlan,
    data: &Data,
) -> Result<Vec<Accuracy>> {
    if data.tests.indices.is_empty() {
        return Ok(Vec::new());
    }
    let (least, most) = plan.sizes.depths;
    let mut depths: Vec<usize> = (0..5).map(|i| least + i * (most - least) / 4).collect();
    depths.dedup();
    let mut all = Vec::new();
    for &width in &plan.sizes.widths {
        for &depth in &depths {
            let scores = score(gene, &plan.auxiliary.with_size(depth, width), data)?;
            all.push(Accuracy {
                depth,
                width,
                top1: scores.top1,
                condition: "expanded without data".into(),
            });
        }
    }
    Ok(all)
}

fn card(gene: &Learngene, accuracies: &[Accuracy], provenance: &Value) -> String {
    let task = task(gene.auxiliary.classes);
    let front = CardFront {
        tags: [task].into_iter().chain(TAGS).map(str::to_owned).collect(),
        library_name: Some("wave".into()),
        pipeline_tag: Some(task.into()),
        results: accuracies
            .iter()
            .map(|a| CardResult {
                dataset: origin::dataset(provenance),
                name: format!("top-1 at {} x {}, {}", a.depth, a.width, a.condition),
                accuracy: a.top1,
            })
            .collect(),
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
    if !accuracies.is_empty() {
        body += "\n| depth | width | top-1, expanded without data |\n|---|---|---|\n";
    }
    for accuracy in accuracies {
        let Accuracy {
            depth, width, top1, ..
        } = accuracy;
        body += &format!("| {depth} | {width} | {:.2} % |\n", 100.0 * top1);
    }
    body += &format!("\n```json\n{provenance:#}\n```\n");
    let title = format!(
        "Weight templates, {}",
        provenance["data"].as_str().unwrap_or("wave")
    );
    origin::card(front, provenance, &title, &body)
}
