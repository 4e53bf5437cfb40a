//! The plan for fine-tuning: its settings, checked.

use super::{Beside, DEFAULTS};
use crate::ancestor::{Ancestor, AncestorOutput};
use crate::cache::{Cache, CachePlan};
use crate::score::check_parts;
use anyhow::Result;
use toml::Table;
use wave_artefacts::model::Network;
use wave_artefacts::zero_shot;
use wave_learngene::Objective;
use wave_models::vit::VitShape;
use wave_models::{Weights, convmixer};
use wave_run::data::{Data, DataPlan};
use wave_run::error::request;
use wave_run::recipe::to_table;
use wave_run::settings::{self, Elastic, Finetune, FinetuneValues};
use wave_run::train::TrainingPlan;

/// The settings for fine-tuning, checked.
#[derive(Clone, Debug)]
pub struct FinetunePlan {
    /// The settings, which a resumed run must repeat.
    pub(super) table: Table,
    pub(super) cache: Option<CachePlan>,
    pub(super) objective: Objective,
    pub(super) beside: Beside,
    /// The growth of slices, if given.
    pub(super) elastic: Elastic,
    /// The settings with their defaults.
    pub given: FinetuneValues,
    pub(super) data: DataPlan,
    /// Training.
    pub training: TrainingPlan,
}

impl FinetunePlan {
    /// The plan of these settings.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub fn new(settings: &Finetune) -> Result<FinetunePlan> {
        settings::check(settings)?;
        zero_shot::check(&settings.zero_shot, settings.ancestor.as_deref())?;
        let given = FinetuneValues::from(settings.clone());
        let mut data = DataPlan::new(&settings.training)?;
        Ok(FinetunePlan {
            table: to_table(settings)?,
            cache: CachePlan::new(&settings.outputs, &mut data)?,
            objective: Objective {
                ce_weight: 1.0,
                kl_weight: given.kl_weight,
                temperature: given.temperature,
            },
            beside: Beside {
                layer_scale: given.layer_scale,
                mlp_scalar: given.mlp_scalar,
            },
            elastic: settings.elastic.clone(),
            given,
            data,
            training: TrainingPlan::new(&settings.training, DEFAULTS)?,
        })
    }

    /// True for a weight that does not train: the settings freeze it, or it is a running statistic, which the forward
    /// pass maintains.
    pub(super) fn is_frozen(&self, name: &str) -> bool {
        let frozen = &self.given.freeze;
        frozen.iter().any(|part| name.contains(part)) || convmixer::is_running_statistic(name)
    }

    /// Refuses frozen parts that none of the weights' names contains, or that leave nothing to train.
    pub(super) fn check_frozen(&self, weights: &Weights) -> Result<()> {
        check_parts("freeze", &self.given.freeze, weights.keys())?;
        match weights.keys().all(|name| self.is_frozen(name)) {
            false => Ok(()),
            true => Err(request(
                "freeze leaves nothing to train; give parts of fewer names",
            )),
        }
    }

    /// Opens the cache of the ancestor's outputs, if there is to be one.
    ///
    /// # Errors
    /// As [`Cache::of_plan`]; also if another setting needs an ancestor, and there is none.
    pub fn open_cache(&self, ancestor: Option<&Ancestor>, data: &Data) -> Result<Option<Cache>> {
        let mut keys = ["kl_weight", "temperature"].into_iter();
        if let (None, Some(key)) = (ancestor, keys.find(|key| self.table.contains_key(*key))) {
            return Err(request(format!(
                "{key} applies only with an ancestor; give --ancestor A, or remove it"
            )));
        }
        Cache::of_plan(self.cache.as_ref(), ancestor, AncestorOutput::Scores, data)
    }

    /// The shape of the transformer that has extra parameters in training.
    pub(super) fn beside_of<'a>(&self, network: &'a Network) -> Result<&'a VitShape> {
        match network {
            Network::Vit(shape) => Ok(shape),
            other => Err(request(format!(
                "layer_scale and mlp_scalar apply to vision transformers, but this is {}; remove \
                 them",
                other.family()
            ))),
        }
    }

    /// Mean multiply-adds per image in a step, over the slices of a transformer that steps sample.
    ///
    /// # Errors
    /// If it has no slices of these sizes.
    pub fn mean_multiply_adds(&self, shape: &VitShape) -> Result<f64> {
        let sizes = self.slices(&Network::Vit(shape.clone()))?;
        let whole = || shape.multiply_adds() as f64;
        Ok(sizes.map_or_else(whole, |sizes| sizes.mean_multiply_adds(shape)))
    }
}
