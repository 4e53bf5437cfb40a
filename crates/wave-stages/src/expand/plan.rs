//! The plan of an expansion, its size chosen and checked.

use super::DEFAULTS;
use crate::budget::{self, Candidate, Limits};
use crate::record::Record;
use anyhow::Result;
use toml::Table;
use wave_artefacts::templates::TemplateDir;
use wave_data::Transform;
use wave_learngene::{Learngene, Level};
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::error::request;
use wave_run::recipe::to_table;
use wave_run::settings::{self, Duration, Expand, ExpandValues, Optimisation};
use wave_run::train::TrainingPlan;

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
    duration: Option<Duration>,
}

impl ExpandPlan {
    /// The plan of these settings.
    ///
    /// # Errors
    /// If a value is out of its range, or a limit is not a number.
    pub fn new(settings: &Expand) -> Result<ExpandPlan> {
        settings::check(settings)?;
        let Optimisation { epochs, steps, .. } = settings.training.optimisation;
        let training = TrainingPlan::new(&settings.training, DEFAULTS)?;
        Ok(ExpandPlan {
            table: to_table(settings)?,
            limits: Limits::new(settings)?,
            given: settings.clone().into(),
            data: DataPlan::new(&settings.training)?,
            duration: epochs
                .is_some()
                .then_some(training.duration)
                .or(steps.map(Duration::Steps)),
            training,
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
                self.table
                    .insert(key.into(), toml::Value::Integer(value as i64));
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
        let of = match self.duration {
            None | Some(Duration::Steps(0) | Duration::Epochs(0.0)) => return Ok(None),
            Some(Duration::Steps(n)) => format!("{n} steps"),
            Some(Duration::Epochs(n)) => format!("{n} epochs"),
        };
        Err(request(format!(
            "fitting scalers for {of} needs images; give --data D, or drop the duration to expand \
             without fitting"
        )))
    }
}
