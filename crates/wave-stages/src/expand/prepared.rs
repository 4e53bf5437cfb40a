//! An expansion with all inputs of its plan.

use super::plan::ExpandPlan;
use crate::budget::{self, Candidate};
use crate::record::Record;
use anyhow::Result;
use std::path::Path;
use wave_artefacts::delta;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::Network;
use wave_artefacts::templates::TemplateDir;
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::data::Data;
use wave_run::forecast::{self, Memory, Step};
use wave_run::settings::{Fill, FirstScalers};
use wave_run::train::Resolved;

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
        let scalers = used.plan.scaler_count(&shape, shape.depth);
        let memory = |mode| Memory::of_composed(&shape, mode, scalers);
        let batch = forecast::fit_batch(&mut plan.data, &plan.training, memory, earlier, context)?;
        plan.table.extend(batch);
        let data = plan.open_data(templates.transform_of(&shape), context)?;
        let fitting = match &data {
            Some(data) => {
                plan.check_head(shape.classes, data.class_names.len())?;
                data.tests.check_names(
                    &templates.config.label_names,
                    "if the classes are the same, rename and reorder the data's to match the \
                     templates; otherwise expand without data, and start a new head with wave \
                     finetune --new-head true",
                )?;
                let resolved = plan.training.resolve(data)?;
                let step = Step::new(memory(resolved.mode), data, &resolved)?;
                Some((resolved, step))
            }
            None => None,
        };
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
