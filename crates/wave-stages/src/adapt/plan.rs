//! The plan of an adaptation: its settings, then the templates and data that they are for.

use super::defaults;
use crate::templates::TemplateDir;
use crate::{elastic, layout};
use anyhow::Result;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use toml::Table;
use wave_hub::FloatType;
use wave_learngene::{Learngene, Sizes};
use wave_models::Weights;
use wave_run::data::DataPlan;
use wave_run::error::request;
use wave_run::recipe::to_table;
use wave_run::settings::{self, Adapt, AdaptValues, ElasticValues, VariantsValues};
use wave_run::train::TrainingPlan;

/// Anchors of a delta, unless others are asked for.
const ANCHORS: usize = 2;

/// Rank of a delta's differences of templates, unless another is asked for.
const TEMPLATE_RANK: usize = 1;

/// Default share of the steps over which sizes grow.
const GROWTH: f64 = 0.9;

/// The settings of an adaptation, checked.
#[derive(Clone, Debug)]
pub(super) struct AdaptPlan {
    /// The settings, which a resumed run must repeat.
    pub(super) table: Table,
    /// True if templates are written, false if a delta.
    pub(super) whole: bool,
    /// Learning rate of scalers, relative to that of the rest.
    pub(super) scaler_lr_ratio: f32,
    pub(super) float: FloatType,
    pub(super) data: DataPlan,
    pub(super) training: TrainingPlan,
    template_rank: usize,
    anchors: Option<usize>,
    pub(super) adapts: Option<Vec<String>>,
    depths: Option<Vec<usize>>,
    widths: Option<Vec<usize>>,
    elastic: ElasticValues,
    variants: VariantsValues,
}

impl AdaptPlan {
    pub(super) fn new(settings: &Adapt) -> Result<AdaptPlan> {
        settings::check(settings)?;
        let own = AdaptValues::from(settings.clone());
        let whole = own.whole;
        let float = match (&own.dtype, whole) {
            (None, false) => FloatType::F16,
            (dtype, _) => layout::float(dtype.as_deref())?,
        };
        Ok(AdaptPlan {
            table: to_table(settings)?,
            whole,
            scaler_lr_ratio: own.scaler_lr_ratio as f32,
            float,
            data: DataPlan::new(&settings.training)?,
            training: TrainingPlan::new(&settings.training, defaults(whole))?,
            template_rank: own.template_rank.unwrap_or(match whole {
                true => 0,
                false => TEMPLATE_RANK,
            }),
            anchors: own.anchors,
            adapts: own.adapts,
            depths: own.depths,
            widths: own.widths,
            elastic: own.elastic,
            variants: own.variants,
        })
    }

    /// Anchors of the delta of templates that have so many.
    pub(super) fn anchors(&self, templates: usize) -> usize {
        let usual = match self.whole {
            true => templates,
            false => ANCHORS.min(templates),
        };
        self.anchors.unwrap_or(usual)
    }

    /// The delta of these templates before the first step.
    pub(super) fn no_delta(
        &self,
        gene: &Learngene,
        classes: usize,
    ) -> candle_core::Result<Weights> {
        let anchors = self.anchors(gene.auxiliary.depth);
        let mut rng = ChaCha8Rng::seed_from_u64(self.training.seed);
        let mut normal = || StandardNormal.sample(&mut rng);
        let adapts = |name: &str| self.adapts(name);
        gene.no_delta(anchors, classes, self.template_rank, &mut normal, adapts)
    }

    /// True if a tensor of the learngene adapts, of those that are neither scalers nor classifier.
    pub(super) fn adapts(&self, name: &str) -> bool {
        match &self.adapts {
            _ if name.starts_with("templates.") => self.whole,
            Some(parts) => parts.iter().any(|part| name.contains(part)),
            None => self.whole || name.contains("norm"),
        }
    }

    /// The sizes that steps draw from: those given, or those that were condensed.
    pub(super) fn sizes(&self, templates: &TemplateDir) -> Result<Sizes> {
        let auxiliary = &templates.learngene.auxiliary;
        let condensed = &templates.config.provenance;
        let told = |sizes: &Vec<usize>| (!sizes.is_empty()).then(|| sizes.clone());
        let depths = self.depths.clone().or_else(|| told(&condensed.depths));
        let depths = elastic::depths(&depths.unwrap_or_else(|| vec![auxiliary.depth]))?;
        let widths = self.widths.clone().or_else(|| told(&condensed.widths));
        let widths = widths.unwrap_or_else(|| vec![auxiliary.width]);
        if widths.is_empty() {
            return Err(request("widths is empty; give at least one"));
        }
        let heads = &self.variants.head_widths;
        for &width in &widths {
            let fits = |head: &usize| *head > 0 && width.is_multiple_of(*head);
            if !heads.iter().any(fits) {
                templates.learngene.shape(depths.1, width, None)?;
            }
        }
        let mut sizes = elastic::sizes(&self.elastic, depths, widths, GROWTH);
        sizes.variants = elastic::variants(&self.variants, &sizes.widths, auxiliary)?;
        Ok(sizes)
    }
}
