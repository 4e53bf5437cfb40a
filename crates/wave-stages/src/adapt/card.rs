//! The card of a delta, and of adapted templates.

use crate::templates;
use serde_json::Value;
use std::path::Path;
use wave_hub::{Accuracy, PAPER, TemplateConfig};
use wave_learngene::Learngene;

/// The card of what was adapted from the templates in `dir`: of whole templates, if their configuration is given, or of a
/// delta.
pub(super) fn card(
    dir: &Path,
    whole: Option<&TemplateConfig>,
    gene: &Learngene,
    accuracies: &[Accuracy],
    provenance: &Value,
) -> String {
    let source = dir.display();
    let (what, command) = match whole {
        Some(_) => ("Weight templates", "wave expand DIR".to_owned()),
        None => (
            "A delta of weight templates",
            format!("wave expand {source} --delta DIR"),
        ),
    };
    let data = provenance["data"].as_str().unwrap_or("wave");
    let mut body = format!(
        "{what}, adapted from `{source}` to {data} once, for models of all sizes. Make one \
         with\n\n```sh\n{command} --depth 6 --width {}\n```\n\n{PAPER}",
        gene.auxiliary.width
    );
    body += &templates::card_accuracies(gene, accuracies, "adapted");
    if let Some(config) = whole {
        body += &templates::card_use(gene, config);
    }
    let title = format!("{what}, {data}");
    templates::card(gene, accuracies, provenance, &title, &body)
}
