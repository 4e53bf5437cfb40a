//! The template directory of a condensation, and its card.

use super::training::Distillation;
use crate::ancestor::Ancestor;
use crate::elastic;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wave_artefacts::templates::{self, Description, TemplateDir};
use wave_hub::{PAPER, TemplateConfig};
use wave_learngene::Learngene;
use wave_run::data::Data;
use wave_run::train::Outcome;

const EXPANDED: &str = "expanded without data";

/// The description of a condensed `gene`, with its accuracies; `grown` are the templates that it started from.
pub(super) fn description<'a>(
    recipe: &str,
    of: &Distillation,
    data: &'a Data,
    grown: Option<&TemplateDir>,
    outcome: &Outcome,
    gene: &Learngene,
) -> Result<Description<'a>> {
    let plan = of.plan;
    let targets = of.distill_targets.as_ref();
    let ancestor = targets.map(|targets| targets.shown.ancestor);
    let mut provenance = json!({
        "recipe": recipe,
        "version": env!("CARGO_PKG_VERSION"),
        "ancestor": ancestor.map(Ancestor::describe),
        "ancestor_output": ancestor.map(|_| of.output.to_string()),
        "ancestor_sha256": ancestor.map(|a| &a.digest),
        "origin": ancestor.map(|a| &a.origin),
        "data": data.spec,
        "training_images": data.train_indices.len(),
        "seed": of.resolved.seed,
        "steps": outcome.steps,
        "epochs": outcome.epochs,
        "depths": [plan.sizes.depths.0, plan.sizes.depths.1],
        "widths": plan.sizes.widths,
    });
    let mut known = Vec::new();
    if let Some(TemplateDir { config, .. }) = grown {
        known.extend(config.accuracies.iter().map(|a| (a.depth, a.width)));
        let (before, sizes) = (&config.provenance, &plan.sizes);
        let depths = before.depths.iter().copied();
        let depths = depths.chain([sizes.depths.0, sizes.depths.1]);
        let depths: BTreeSet<usize> = depths.collect();
        let widths: BTreeSet<&usize> = before.widths.iter().chain(&sizes.widths).collect();
        provenance["depths"] = json!([depths.first(), depths.last()]);
        provenance["widths"] = json!(widths);
        provenance["grown"] = before.record.clone();
    }
    elastic::tell_variants(&plan.sizes.variants, &mut provenance);
    if let Some(named) = ancestor.and_then(|a| a.named.as_ref()) {
        provenance["prompts"] = json!(named.prompts);
    }
    Ok(Description {
        transform: &data.transform,
        label_names: data.class_names.clone(),
        provenance,
        accuracies: elastic::accuracies(gene, &plan.sizes, &known, data, EXPANDED)?,
        shapes: elastic::shape_accuracies(gene, &plan.sizes, data)?,
    })
}

pub(super) fn card(gene: &Learngene, config: &TemplateConfig) -> String {
    let (accuracies, provenance) = (&config.accuracies, &config.provenance.record);
    let a = &gene.auxiliary;
    let mut body = format!(
        "Weight templates for vision transformers of any depth and of any width that is a multiple of {}. {PAPER}",
        a.head_width(),
    );
    body += &templates::card_accuracies(gene, accuracies, EXPANDED);
    body += "\n| values in the file | |\n|---|---|\n";
    for (name, n) in gene.ledger() {
        body += &format!("| {name} | {n} |\n");
    }
    body += &templates::card_use(gene, config);
    let recipe = match &provenance["recipe"] {
        Value::String(name) if name != "condense" => format!(" {name}.toml"),
        _ => String::new(),
    };
    body += &format!("\n## Made by\n\n```sh\nwave condense{recipe}\n```\n");
    let title = format!(
        "Weight templates, {}",
        provenance["data"].as_str().unwrap_or("wave")
    );
    templates::card(gene, accuracies, provenance, &title, &body)
}
