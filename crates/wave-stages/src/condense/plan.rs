//! The plan of a condensation: sizes, templates and initial scalers, checked against each other.

use super::{defaults, derived};
use crate::ancestor::{Ancestor, AncestorOutput};
use crate::cache::CachePlan;
use anyhow::Result;
use wave_artefacts::{layout, zero_shot};
use wave_hub::FloatType;
use wave_learngene::{DepthRule, Objective, Plan, Sizes};
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::error::request;
use wave_run::settings::{self, Condense, CondenseValues, Trained};
use wave_run::train::TrainingPlan;

/// The settings of a condensation, checked.
#[derive(Clone, Debug)]
pub struct CondensePlan {
    /// The settings with their defaults.
    pub given: CondenseValues,
    /// A given setting that applies to class scores only.
    of_scores: Option<&'static str>,
    /// The auxiliary's largest shape; its depth is the number of anchors. Channels and classes are
    /// ImageNet's until [`CondensePlan::on`] sets those of the data.
    pub auxiliary: VitShape,
    /// Depths and widths to sample from.
    pub(super) sizes: Sizes,
    /// The work of each of the equal parts of the steps, see [`Sizes::work`].
    pub(super) work: Vec<f64>,
    pub(super) objective: Objective,
    pub(super) templates: Plan,
    /// Position of layers between the anchors.
    pub(super) depth_rule: DepthRule,
    /// The values that the optimiser updates.
    pub(super) train: Trained,
    pub(super) cache: Option<CachePlan>,
    /// Element type of all stored values, also used for evaluation.
    pub(super) float: FloatType,
    pub(super) data: DataPlan,
    pub(super) training: TrainingPlan,
}

/// Checks the settings on their own: their ranges, and that each term of the objective has a target.
pub fn check(settings: &Condense) -> Result<()> {
    settings::check(settings)?;
    if settings.ancestor.is_none() && settings.kl_weight != Some(0.0) {
        return Err(request(
            "no ancestor to distil; give --ancestor A, or --kl-weight 0 to learn from the labels \
             alone",
        ));
    }
    zero_shot::check(&settings.zero_shot, settings.ancestor.as_deref())?;
    if let (Some(sizes), None) = (settings.sizes, settings.minutes) {
        return Err(request(format!(
            "sizes = {sizes} belongs to a plan for --minutes; give --minutes N, or replace sizes by \
             depths and widths"
        )));
    }
    if settings.ce_weight == Some(0.0) && settings.kl_weight == Some(0.0) {
        return Err(request(
            "ce_weight = 0 and kl_weight = 0 leave nothing to learn; raise one of them",
        ));
    }
    if let (Some(output), None) = (settings.ancestor_output, &settings.ancestor) {
        return Err(request(format!(
            "ancestor_output = {output}, but there is no ancestor; give --ancestor A"
        )));
    }
    Ok(())
}

impl CondensePlan {
    /// The plan of these settings.
    pub fn new(settings: &Condense) -> Result<CondensePlan> {
        settings::check(settings)?;
        let own = CondenseValues::from(settings.clone());
        let auxiliary = derived::auxiliary(&own)?;
        let sizes = derived::sizes(&own, &auxiliary)?;
        let train = derived::trained(&own, &sizes, &auxiliary)?;
        let muon = own.training.transformer.muon;
        let muon = muon.unwrap_or(train == Trained::Weights);
        let mut data = DataPlan::new(&settings.training)?;
        Ok(CondensePlan {
            work: sizes.work(&auxiliary),
            templates: derived::template_plan(&own, sizes.widths[0])?,
            depth_rule: derived::depth_rule(&own, &auxiliary)?,
            of_scores: derived::of_scores(settings),
            auxiliary,
            sizes,
            objective: Objective {
                ce_weight: own.ce_weight,
                kl_weight: own.kl_weight,
                temperature: own.temperature,
            },
            train,
            cache: CachePlan::new(&settings.outputs, &mut data)?,
            float: layout::float(own.dtype.as_deref())?,
            given: own,
            data,
            training: TrainingPlan {
                muon,
                ..TrainingPlan::new(&settings.training, defaults(muon))?
            },
        })
    }

    /// With the channels and classes of the data.
    pub fn on(mut self, channels: usize, classes: usize) -> CondensePlan {
        self.auxiliary.channels = channels;
        self.auxiliary.classes = classes;
        self
    }

    /// Opens the data of a condensation, with `ancestor` if it has one.
    ///
    /// # Errors
    /// If there is no such data, or it lacks labels that are needed.
    pub fn open_data(&self, ancestor: Option<&Ancestor>, context: &Context) -> Result<Data> {
        let input = Input::Size {
            image_size: self.auxiliary.image_size,
            channels: ancestor.map(|ancestor| ancestor.transform.channels),
        };
        match ancestor {
            Some(_) if self.output(ancestor) == AncestorOutput::Features => match self.of_scores {
                None => Data::open_unlabelled(&self.data, input, &[], context),
                Some(key) => Err(request(format!(
                    "{key} applies only to score distillation, but the ancestor teaches by its \
                     features{}; remove it",
                    match self.given.ancestor_output {
                        Some(_) => "",
                        None => ", since it has no classifier",
                    }
                ))),
            },
            Some(ancestor) if self.objective.ce_weight == 0.0 => {
                Data::open_unlabelled(&self.data, input, &ancestor.label_names, context)
            }
            _ => Data::open(&self.data, input, context),
        }
    }

    /// Opens its data, checks that the ancestor fits, and sets the channels and classes of the data.
    pub(super) fn with_data(
        self,
        ancestor: Option<&Ancestor>,
        context: &Context,
    ) -> Result<(CondensePlan, Data)> {
        let data = self.open_data(ancestor, context)?;
        if let Some(ancestor) = ancestor {
            ancestor.check(&data, self.output(Some(ancestor)))?;
        }
        let classes = match (self.output(ancestor), ancestor) {
            (AncestorOutput::Features, Some(ancestor)) => ancestor.width(AncestorOutput::Features),
            _ => data.class_names.len(),
        };
        Ok((self.on(data.transform.channels, classes), data))
    }

    pub(super) fn output(&self, ancestor: Option<&Ancestor>) -> AncestorOutput {
        let usual = ancestor.map_or(AncestorOutput::Scores, Ancestor::usual_output);
        self.given.ancestor_output.unwrap_or(usual)
    }
}
