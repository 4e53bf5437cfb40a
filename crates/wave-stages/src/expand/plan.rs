//! The plan of an expansion: its settings, then its templates, size and data.

use super::DEFAULTS;
use crate::budget::{self, Candidate, Limits};
use crate::record::Record;
use anyhow::Result;
use std::path::Path;
use toml::{Table, Value};
use wave_artefacts::delta;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::Network;
use wave_artefacts::templates::TemplateDir;
use wave_data::Transform;
use wave_learngene::{Learngene, Level};
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::error::request;
use wave_run::forecast::{self, Memory, Step};
use wave_run::recipe::to_table;
use wave_run::settings::{self, Expand, ExpandValues, Fill, FirstScalers};
use wave_run::train::{Resolved, TrainingPlan};

/// The settings of an expansion, checked.
#[derive(Clone, Debug)]
pub struct ExpandPlan {
    /// The settings, which a resumed run must repeat.
    pub(super) table: Table,
    /// The limits within which a size is chosen, if any.
    limits: Limits,
    /// All other settings.
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
            limits: Limits::new(settings)?,
            given: settings.clone().into(),
            data: DataPlan::new(&settings.training)?,
            training: TrainingPlan::new(&settings.training, DEFAULTS)?,
        })
    }

    /// The shape of the model, for a given depth and width.
    ///
    /// # Errors
    /// If depth or width is missing, or templates cannot make such a shape.
    pub fn shape(&self, gene: &Learngene) -> Result<VitShape> {
        let size = budget::needed(self.given.depth, self.given.width)?;
        budget::shape(&self.given, gene, size)
    }

    /// Replaces limits on the size with a size; also returns the sizes within the limits, best first.
    ///
    /// # Errors
    /// If no size is within the limits, or the templates record no accuracies.
    pub fn sized(
        mut self,
        templates: &TemplateDir,
        context: &Context,
    ) -> Result<(ExpandPlan, Option<Vec<Candidate>>)> {
        let record = Record::new(&templates.config, &templates.learngene.auxiliary);
        let expected = |shape: &VitShape| Some(record.expected(shape)?.0);
        let candidates = budget::choose(templates, &self.given, self.limits, expected, context)?;
        if let Some(best) = candidates.as_ref().and_then(|all| all.first()) {
            (self.given.depth, self.given.width) = (Some(best.depth), Some(best.width));
            for limit in ["max_params", "max_macs", "max_latency_ms"] {
                self.table.remove(limit);
            }
            for (key, value) in [("depth", best.depth), ("width", best.width)] {
                self.table.insert(key.into(), Value::Integer(value as i64));
            }
        }
        Ok((self, candidates))
    }

    /// The part that a model of this shape is made from: the values of its level, or of the level with the requested
    /// number of templates.
    pub(super) fn used<'a>(&self, gene: &'a Learngene, shape: &VitShape) -> Result<&'a Learngene> {
        let Some(wanted) = self.given.templates_used else {
            return Ok(gene.used_by(shape));
        };
        let mut counts: Vec<usize> = gene.plan.levels.iter().map(Level::templates).collect();
        if counts.is_empty() {
            counts.push(gene.plan.counts.values().sum());
        }
        match counts.iter().position(|n| *n == wanted) {
            Some(level) => Ok(gene.of_level(level)),
            None => {
                counts.dedup(); // a deeper level may have no more templates
                Err(request(format!(
                    "templates_used = {wanted}; expected one of {counts:?}, the levels of these \
                     templates"
                )))
            }
        }
    }

    /// Refuses a new head, for classes other than the templates', that would not be trained.
    pub(super) fn check_head(&self, own: usize, found: usize) -> Result<()> {
        if own == found || self.given.head_lr_ratio as f32 > 0.0 {
            return Ok(());
        }
        Err(request(format!(
            "the data has {found} classes, the templates' head {own}; a new head starts at zero \
             and must be trained; drop --head-lr-ratio 0"
        )))
    }

    /// The data to fit scalers on, or to test on, if any is named.
    pub(super) fn open_data(
        &self,
        transform: Transform,
        context: &Context,
    ) -> Result<Option<Data>> {
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
        Err(request(format!(
            "fitting scalers for {of} needs images; give --data D, or drop the duration to expand \
             without fitting"
        )))
    }
}

/// An expansion with all its inputs, checked.
pub(super) struct Prepared {
    pub(super) templates: TemplateDir,
    /// The plan, with size and batch size resolved.
    pub(super) plan: ExpandPlan,
    /// The sizes within the limits, if given, best first.
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) shape: VitShape,
    pub(super) layout: Layout,
    pub(super) data: Option<Data>,
    /// Training of the scalers and memory per step, if there is data.
    pub(super) fitting: Option<(Resolved, Step)>,
}

impl Prepared {
    /// An expansion of these templates; an automatic batch size is that of the `earlier` run, if any.
    pub(super) fn new(
        mut templates: TemplateDir,
        plan: ExpandPlan,
        earlier: Option<&Path>,
        context: &Context,
    ) -> Result<Prepared> {
        if let Some(delta) = &plan.given.delta {
            templates = templates.adapted(&delta::fetch(Path::new(delta), context)?)?;
        }
        let (mut plan, candidates) = plan.sized(&templates, context)?;
        let gene = &templates.learngene;
        let shape = plan.shape(gene)?;
        let network = Network::Vit(shape.clone());
        let layout = Layout::of(&plan.given.output, &network)?;
        forecast::check_network(&network)?;
        let used = plan.used(gene, &shape)?;
        let scalers = used.plan.scaler_count(&shape);
        let memory = |mode| Memory::of_composed(&shape, mode, scalers);
        let batch = forecast::fit_batch(&mut plan.data, &plan.training, memory, earlier, context)?;
        plan.table.extend(batch);
        let data = plan.open_data(templates.transform_of(&shape), context)?;
        let mut fitting = None;
        if let Some(data) = &data {
            plan.check_head(shape.classes, data.class_names.len())?;
            data.tests.check_names(
                &templates.config.label_names,
                "if the classes are the same, rename and reorder the data's to match the \
                 templates; otherwise expand without data, and start a new head with wave \
                 finetune --new-head true",
            )?;
            let resolved = plan.training.resolve(data)?;
            let step = Step::new(memory(resolved.mode), data, &resolved)?;
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

    /// The sizes within the limits as a table, or an empty string.
    pub(super) fn sizes(&self) -> String {
        self.candidates
            .as_deref()
            .map_or(String::new(), budget::table)
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

    /// The properties in which the shape is outside the condensed range.
    pub(super) fn outside(&self) -> Vec<String> {
        self.record().outside(&self.shape)
    }

    fn record(&self) -> Record<'_> {
        Record::new(&self.templates.config, &self.templates.learngene.auxiliary)
    }
}
