//! Text that describes an expansion.

use super::{ExpandPlan, Prepared};
use anyhow::Result;
use std::path::Path;
use wave_artefacts::model::{Model, shape_in_words};
use wave_artefacts::templates::{self, Source, TemplateDir};
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::locate::on_hub;
use wave_run::settings::Expand;

impl Prepared {
    fn describe(&self) -> Result<String> {
        let shape = &self.shape;
        let parameters = shape.parameter_count();
        let words = shape_in_words(shape);
        let mut text = format!("{}{words}\n{parameters} parameters\n", self.sizes());
        if let Some((top1, from)) = self.expected() {
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

impl ExpandPlan {
    /// The command that repeats the expansion with these templates, with file names instead of paths.
    pub(super) fn command(&self, templates: &Source) -> String {
        let flags = self.table.iter().map(|(key, value)| {
            let value = match value {
                toml::Value::String(text) => name_of(Path::new(text)),
                other => other.to_string(),
            };
            format!(" --{} {value}", key.replace('_', "-"))
        });
        let flags: String = flags.collect();
        // Directory names are specific to a machine: the same model is the same bytes wherever its templates are.
        let templates = match templates.shipped {
            Some(name) => name.to_owned(),
            None if templates.path.is_dir() => "DIR".to_owned(),
            None => name_of(&templates.path),
        };
        format!("wave expand {templates}{flags}")
    }
}

/// The classes and images of a model of this shape, and the templates that it is made from.
pub(super) fn makes(label_names: &[String], shape: &VitShape, templates: &Path) -> String {
    let classes = match (shape.classes, label_names) {
        (_, [a, b, _, ..]) => format!("{} classes ({a}, {b}, ...)", label_names.len()),
        (0, []) => "a backbone without classes".into(),
        (n, []) => format!("{n} classes"),
        (_, few) => format!("{} classes ({})", few.len(), few.join(", ")),
    };
    let (side, name) = (shape.image_size, name_of(templates));
    format!("{classes}, {side} x {side}, from {name}")
}

/// The name of a file or directory without its path, or a name on a hub.
fn name_of(path: &Path) -> String {
    let name = path.file_name().filter(|_| on_hub(path).is_none());
    let name = name.unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The output of `wave expand --dry-run`.
pub fn describe(dir: &Path, settings: &Expand, context: &Context) -> Result<String> {
    let plan = ExpandPlan::new(settings)?;
    let prepared = Prepared::new(templates::fetch(dir, context)?, plan, None, context)?;
    let names = match &prepared.data {
        Some(data) => &data.class_names,
        None => &prepared.templates.config.label_names,
    };
    let makes = makes(names, &prepared.shape, dir);
    Ok(format!("makes {makes}\n{}", prepared.describe()?))
}

/// [`describe`] for templates in memory, and the model without fitting.
pub fn describe_of(
    templates: TemplateDir,
    settings: &Expand,
    context: &Context,
) -> Result<(String, Model)> {
    let prepared = Prepared::new(templates, ExpandPlan::new(settings)?, None, context)?;
    let text = prepared.describe()?;
    Ok((text, prepared.templates.model(&prepared.shape)?))
}
