//! The template directory of a condensation, and its card.

use super::CondensePlan;
use crate::ancestor::Ancestor;
use crate::elastic;
use crate::templates::{self, Description, TemplateDir};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wave_hub::{PAPER, TemplateConfig};
use wave_learngene::Learngene;
use wave_run::data::Data;

/// The condition of recorded accuracies.
const EXPANDED: &str = "expanded without data";

/// A condensation that has trained.
pub(super) struct Condensed<'a> {
    /// The recipe's name.
    pub(super) recipe: &'a str,
    pub(super) plan: &'a CondensePlan,
    pub(super) ancestor: Option<&'a Ancestor>,
    pub(super) data: &'a Data,
    pub(super) seed: u64,
    pub(super) steps: u64,
    pub(super) epochs: f64,
    /// The templates that it grew.
    pub(super) grown: Option<&'a TemplateDir>,
}

impl<'a> Condensed<'a> {
    /// The description of its templates, with their accuracies.
    pub(super) fn description(&self, gene: &Learngene) -> Result<Description<'a>> {
        let Condensed { plan, data, .. } = self;
        let known = self.grown.map_or(&[][..], |grown| &grown.config.accuracies);
        let known: Vec<(usize, usize)> = known.iter().map(|a| (a.depth, a.width)).collect();
        Ok(Description {
            transform: &data.transform,
            label_names: data.class_names.clone(),
            provenance: self.provenance(),
            accuracies: elastic::accuracies(gene, &plan.sizes, &known, data, EXPANDED)?,
            shapes: elastic::shape_accuracies(gene, &plan.sizes, data)?,
        })
    }

    fn provenance(&self) -> Value {
        let Condensed {
            plan,
            ancestor,
            data,
            ..
        } = self;
        let mut provenance = json!({
            "recipe": self.recipe,
            "version": env!("CARGO_PKG_VERSION"),
            "ancestor": ancestor.map(Ancestor::describe),
            "ancestor_output": ancestor.map(|_| plan.output(*ancestor).to_string()),
            "ancestor_sha256": ancestor.map(|a| &a.digest),
            "origin": ancestor.map(|a| &a.origin),
            "data": data.spec,
            "training_images": data.train_indices.len(),
            "seed": self.seed,
            "steps": self.steps,
            "epochs": self.epochs,
            "depths": [plan.sizes.depths.0, plan.sizes.depths.1],
            "widths": plan.sizes.widths,
        });
        if let Some(grown) = self.grown {
            let (before, sizes) = (&grown.config.provenance, &plan.sizes);
            let depths = before.depths.iter().copied();
            let depths = depths.chain([sizes.depths.0, sizes.depths.1]);
            let depths: BTreeSet<usize> = depths.collect();
            let widths: BTreeSet<&usize> = before.widths.iter().chain(&sizes.widths).collect();
            provenance["depths"] = json!([depths.first(), depths.last()]);
            provenance["widths"] = json!(widths);
            provenance["grown"] = before.record().clone();
        }
        elastic::tell_variants(&plan.sizes.variants, &mut provenance);
        if let Some(named) = ancestor.and_then(|a| a.named.as_ref()) {
            provenance["prompts"] = json!(named.prompts);
        }
        provenance
    }
}

/// The card of the templates.
pub(super) fn card(gene: &Learngene, config: &TemplateConfig) -> String {
    let (accuracies, provenance) = (&config.accuracies, config.provenance.record());
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
