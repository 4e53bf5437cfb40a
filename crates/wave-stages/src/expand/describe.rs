//! An expansion in words.

use super::ExpandPlan;
use super::prepared::Prepared;
use crate::model::{Model, shape_in_words};
use crate::record::Expected;
use crate::templates::TemplateDir;
use anyhow::Result;
use std::path::Path;
use wave_run::context::Context;
use wave_run::settings::Expand;

impl Prepared {
    fn describe(&self) -> Result<String> {
        let shape = &self.shape;
        let parameters = shape.parameter_count();
        let words = shape_in_words(shape);
        let mut text = format!("{}{words}\n{parameters} parameters\n", self.sizes());
        if let Some(Expected { top1, from }) = self.expected() {
            text += &format!("expected top-1 {:.2} % ({from})\n", 100.0 * top1);
        }
        for line in self.outside() {
            text += &format!("not condensed: {line}\n");
        }
        if let (Some(data), Some((resolved, step))) = (&self.data, &self.fitting) {
            text += &data.describe();
            text += &resolved.describe(data);
            text += &step.words();
        }
        Ok(text)
    }
}

/// The output of `wave expand --dry-run`.
///
/// # Errors
/// As the expansion's own, before its first step.
pub fn describe(dir: &Path, settings: &Expand, context: &Context) -> Result<String> {
    let plan = ExpandPlan::new(settings)?;
    Prepared::read(dir, plan, None, context)?.describe()
}

/// [`describe`] of templates in memory, and the model as it is without fitting.
///
/// # Errors
/// As the expansion's own, before its first step.
pub fn describe_of(
    templates: TemplateDir,
    settings: &Expand,
    context: &Context,
) -> Result<(String, Model)> {
    let prepared = Prepared::new(templates, ExpandPlan::new(settings)?, None, context)?;
    Ok((
        prepared.describe()?,
        prepared.templates.model(&prepared.shape)?,
    ))
}
