//! The plan of an expansion: its settings, then its templates, size and data; and the text that describes it.

use super::DEFAULTS;
use crate::budget::{self, Candidate};
use crate::record::Record;
use anyhow::{Context as _, Result};
use std::path::Path;
use toml::{Table, Value};
use wave_artefacts::delta;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::{Model, Network, shape_in_words};
use wave_artefacts::templates::{self, Source, TemplateDir};
use wave_data::Transform;
use wave_learngene::{Learngene, Level};
use wave_models::refuse;
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::forecast::{self, Memory, Step};
use wave_run::locate::on_hub;
use wave_run::paths::word;
use wave_run::recipe::{means_nothing, to_table};
use wave_run::settings::{self, Expand, ExpandValues, Fill, FirstScalers};
use wave_run::train::{Resolved, TrainingPlan};

/// Refuses settings of fitting where no data is given to fit on, except for `shared` keys, which a recipe may give for
/// other stages.
pub fn check(settings: &Expand, shared: &[&str]) -> Result<()> {
    if settings.training.images.data.is_some() {
        return Ok(());
    }
    let ratio = settings.head_lr_ratio.map(|_| "head_lr_ratio".to_owned());
    let given = to_table(&settings.training)?;
    let mut keys = ratio.into_iter().chain(given.keys().cloned());
    // A duration is refused with its own advice; a seed draws scalers too.
    let free = |key: &str| ["seed", "steps", "epochs"].contains(&key) || shared.contains(&key);
    match keys.find(|key| !free(key)) {
        None => Ok(()),
        Some(key) => Err(means_nothing(&key, "expand without --data")),
    }
}

/// The settings of an expansion, checked.
#[derive(Clone, Debug)]
pub struct ExpandPlan {
    /// The settings, which a resumed run must repeat.
    pub(super) table: Table,
    pub(super) given: ExpandValues,
    /// Data to fit scalers on, if any.
    pub data: DataPlan,
    /// Training.
    pub training: TrainingPlan,
}

impl ExpandPlan {
    /// The plan of these settings.
    pub fn new(settings: &Expand) -> Result<ExpandPlan> {
        settings::check(settings)?;
        Ok(ExpandPlan {
            table: to_table(settings)?,
            given: settings.clone().into(),
            data: DataPlan::new(&settings.training)?,
            training: TrainingPlan::new(&settings.training, DEFAULTS)?,
        })
    }

    /// The shape of the model, if depth and width are given and templates can make it.
    pub fn shape(&self, gene: &Learngene) -> Result<VitShape> {
        let size = budget::needed(self.given.depth, self.given.width)?;
        budget::shape(&self.given, gene, size)
    }

    /// The part that a model of this shape is made from: the values of its level, or of a level with the requested number
    /// of templates: the first of these that holds the size, else the last.
    pub(super) fn used<'a>(&self, gene: &'a Learngene, shape: &VitShape) -> Result<&'a Learngene> {
        let Some(wanted) = self.given.templates_used else {
            return Ok(gene.used_by(shape));
        };
        let mut counts: Vec<usize> = gene.plan.levels.iter().map(Level::templates).collect();
        if counts.is_empty() {
            counts.push(gene.plan.counts.values().sum());
        }
        let having = || (0..counts.len()).filter(|&at| counts[at] == wanted);
        let holds = |at: &usize| {
            let level = gene.plan.levels.get(*at);
            level.is_some_and(|level| level.holds(shape.depth, shape.width))
        };
        let level = having().find(holds).or_else(|| having().next_back());
        match level {
            Some(level) => Ok(gene.of_level(level)),
            None => {
                counts.dedup(); // a deeper level may have no more templates
                refuse!(
                    "templates_used = {wanted}; expected one of {counts:?}, the levels of these \
                     templates"
                )
            }
        }
    }

    /// The command that repeats the expansion with these templates, with file names instead of paths.
    pub(super) fn command(&self, templates: &Source) -> String {
        let name = |path: &Path| word(Path::new(&name_of(path)));
        let text = |value: &Value| match value {
            Value::String(text) => name(Path::new(text)),
            other => other.to_string(),
        };
        let flags = self.table.iter().map(|(key, value)| {
            let value = match value {
                Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
                one => text(one),
            };
            format!(" --{} {value}", key.replace('_', "-"))
        });
        let flags: String = flags.collect();
        // Directory names are specific to a machine: the same model is the same bytes wherever its templates are.
        let templates = match templates.shipped {
            Some(name) => name.to_owned(),
            None if templates.path.is_dir() => "DIR".to_owned(),
            None => name(&templates.path),
        };
        format!("wave expand {templates}{flags}")
    }

    /// The data to fit scalers on, or to test on, if any is named.
    fn open_data(&self, transform: Transform, context: &Context) -> Result<Option<Data>> {
        if self.data.spec.is_some() {
            return Data::open(&self.data, Input::Like(transform), context).map(Some);
        }
        // Without data nothing is fitted; refuse if fitting was requested.
        let given = &self.training.optimisation;
        let of = match (given.epochs, given.steps) {
            (Some(n), _) if n > 0.0 => format!("{n} epochs"),
            (_, Some(n)) if n > 0 => format!("{n} steps"),
            _ => return Ok(None),
        };
        refuse!(
            "fitting scalers for {of} needs images; give --data D, or drop the duration to expand \
             without fitting"
        )
    }
}

/// An expansion with all its inputs, checked.
pub(super) struct Prepared {
    pub(super) templates: TemplateDir,
    /// The plan, with size and batch size resolved.
    pub(super) plan: ExpandPlan,
    /// The sizes within the limits, if given, best first.
    pub(super) candidates: Vec<Candidate>,
    pub(super) shape: VitShape,
    pub(super) layout: Layout,
    pub(super) data: Option<Data>,
    /// Training of the scalers and memory per step, if there is data.
    pub(super) fitting: Option<(Resolved, Step)>,
}

impl Prepared {
    pub(super) fn new(
        mut templates: TemplateDir,
        mut plan: ExpandPlan,
        context: &Context,
    ) -> Result<Prepared> {
        if let Some(delta) = &plan.given.delta {
            let file = Path::new(delta).join("delta.safetensors");
            let adapted = templates.adapted(&delta::fetch(Path::new(delta), context)?);
            templates = adapted.with_context(|| file.display().to_string())?;
        }
        let candidates = budget::choose(&templates, &plan.given, context)?;
        if let Some(best) = candidates.first() {
            (plan.given.depth, plan.given.width) = (Some(best.depth), Some(best.width));
            for limit in ["max_params", "max_macs", "max_latency_ms"] {
                plan.table.remove(limit);
            }
            for (key, value) in [("depth", best.depth), ("width", best.width)] {
                plan.table.insert(key.into(), Value::Integer(value as i64));
            }
        }
        let gene = &templates.learngene;
        let shape = plan.shape(gene)?;
        let network = Network::Vit(shape.clone());
        let layout = Layout::of(&plan.given.output, &network)?;
        forecast::check_network(&network)?;
        let scalers = plan.used(gene, &shape)?.plan.scaler_count(&shape);
        let data = plan.open_data(templates.transform_of(&shape), context)?;
        let mut fitting = None;
        if let Some(data) = &data {
            let (own, found) = (shape.classes, data.class_names.len());
            if own != found && plan.given.head_lr_ratio as f32 <= 0.0 {
                refuse!(
                    "the data has {found} classes, the templates' head {own}; a new head starts at \
                     zero and must be trained; drop --head-lr-ratio 0"
                );
            }
            data.tests.check_names(
                &templates.config.label_names,
                "if the classes are the same, rename and reorder the data's to match the \
                 templates; otherwise expand without data, and start a new head with wave \
                 finetune --new-head true",
            )?;
            let resolved = plan.training.resolve(data)?;
            let memory = Memory::of_composed(&shape, resolved.mode, scalers);
            let step = Step::new(memory, data, &resolved)?;
            fitting = Some((resolved, step));
        }
        Ok(Prepared {
            templates,
            plan,
            candidates,
            shape,
            layout,
            data,
            fitting,
        })
    }

    /// The accuracy that the templates record for this model without data, and its source, if known.
    pub(super) fn expected(&self) -> Option<(f64, &'static str)> {
        let given = &self.plan.given;
        let untouched = given.scalers == FirstScalers::Bank
            && given.fill == Fill::Inherit
            && given.templates_used.is_none()
            && self.data.is_none();
        untouched.then(|| self.record().expected(&self.shape))?
    }

    fn describe(&self) -> String {
        let shape = &self.shape;
        let parameters = shape.parameter_count();
        let (sizes, words) = (budget::table(&self.candidates), shape_in_words(shape));
        let mut text = format!("{sizes}{words}\n{parameters} parameters\n");
        if let Some((top1, from)) = self.expected() {
            text += &format!("expected top-1 {:.2} % ({from})\n", 100.0 * top1);
        }
        for line in self.record().outside(&self.shape) {
            text += &format!("not condensed: {line}\n");
        }
        if let (Some(data), Some((resolved, step))) = (&self.data, &self.fitting) {
            text += &data.describe();
            text += &resolved.describe(data);
            text += &step.words();
        }
        text
    }

    pub(super) fn record(&self) -> Record<'_> {
        Record::new(&self.templates.config, &self.templates.learngene.auxiliary)
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
    let prepared = Prepared::new(templates::fetch(dir, context)?, plan, context)?;
    let names = match &prepared.data {
        Some(data) => &data.class_names,
        None => &prepared.templates.config.label_names,
    };
    let makes = makes(names, &prepared.shape, dir);
    Ok(format!("makes {makes}\n{}", prepared.describe()))
}

/// [`describe`] for templates in memory, and the model without fitting.
pub fn describe_of(
    templates: TemplateDir,
    settings: &Expand,
    context: &Context,
) -> Result<(String, Model)> {
    let prepared = Prepared::new(templates, ExpandPlan::new(settings)?, context)?;
    let model = prepared.templates.model(&prepared.shape)?;
    Ok((prepared.describe(), model))
}
