//! The plan of an adaptation: its settings, then its templates and data.

use super::defaults;
use crate::elastic;
use crate::score::check_parts;
use anyhow::Result;
use candle_core::Tensor;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::path::Path;
use toml::Table;
use wave_artefacts::layout;
use wave_artefacts::templates::{self, TemplateDir};
use wave_hub::FloatType;
use wave_learngene::{Learngene, Sizes};
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::forecast::{self, Memory, Step};
use wave_run::recipe::to_table;
use wave_run::settings::{self, Adapt, AdaptValues};
use wave_run::train::{Resolved, TrainingPlan};

/// Default number of anchors of a delta.
const ANCHORS: usize = 2;

/// Default rank of a delta's template differences.
const TEMPLATE_RANK: usize = 1;

/// The settings of an adaptation, checked.
#[derive(Clone, Debug)]
pub(super) struct AdaptPlan {
    /// The settings, which a resumed run must repeat.
    pub(super) table: Table,
    pub(super) float: FloatType,
    pub(super) data: DataPlan,
    pub(super) training: TrainingPlan,
    /// All other settings.
    pub(super) given: AdaptValues,
}

impl AdaptPlan {
    pub(super) fn new(settings: &Adapt) -> Result<AdaptPlan> {
        settings::check(settings)?;
        let given = AdaptValues::from(settings.clone());
        let float = match (&given.dtype, given.whole) {
            (None, false) => FloatType::F16,
            (dtype, _) => layout::float(dtype.as_deref())?,
        };
        Ok(AdaptPlan {
            table: to_table(settings)?,
            float,
            data: DataPlan::new(&settings.training)?,
            training: TrainingPlan::new(&settings.training, defaults(given.whole))?,
            given,
        })
    }

    /// Number of anchors of the delta, for templates with `templates` anchors.
    pub(super) fn anchors(&self, templates: usize) -> usize {
        let usual = match self.given.whole {
            true => templates,
            false => ANCHORS.min(templates),
        };
        self.given.anchors.unwrap_or(usual)
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
        let usual = if self.given.whole { 0 } else { TEMPLATE_RANK };
        let rank = self.given.template_rank.unwrap_or(usual);
        let adapts = |name: &str| self.adapts(name);
        gene.no_delta(anchors, classes, rank, &mut normal, adapts)
    }

    /// True if a tensor of the learngene is adapted, among those that are neither scalers nor classifier.
    fn adapts(&self, name: &str) -> bool {
        match &self.given.adapts {
            _ if name.starts_with("templates.") => self.given.whole,
            Some(parts) => parts.iter().any(|part| name.contains(part)),
            None => self.given.whole || name.contains("norm"),
        }
    }

    /// The sizes to sample from: the given ones, or those of the condensation.
    fn sizes(&self, templates: &TemplateDir) -> Result<Sizes> {
        let (given, auxiliary) = (&self.given, &templates.learngene.auxiliary);
        let condensed = &templates.config.provenance;
        let said = |given: &Option<Vec<usize>>, condensed: &Vec<usize>, own: usize| {
            let told = || (!condensed.is_empty()).then(|| condensed.clone());
            given.clone().or_else(told).unwrap_or_else(|| vec![own])
        };
        let depths = said(&given.depths, &condensed.depths, auxiliary.depth);
        let depths = elastic::depths(&depths)?;
        let widths = said(&given.widths, &condensed.widths, auxiliary.width);
        for &width in &widths {
            let fits = |head: &usize| *head > 0 && width.is_multiple_of(*head);
            if !given.variants.head_widths.iter().any(fits) {
                templates.learngene.shape(depths.1, width, None)?;
            }
        }
        let mut sizes = elastic::sizes(&given.elastic, depths, widths, elastic::GROWTH)?;
        sizes.variants = elastic::variants(&given.variants, &sizes.widths, auxiliary)?;
        Ok(sizes)
    }
}

/// An adaptation with all its inputs, checked.
pub(super) struct Prepared {
    pub(super) templates: TemplateDir,
    /// The plan, with the batch size resolved.
    pub(super) plan: AdaptPlan,
    pub(super) sizes: Sizes,
    pub(super) data: Data,
    pub(super) resolved: Resolved,
    pub(super) step: Step,
}

impl Prepared {
    /// Reads the templates in a directory; an automatic batch size is that of the `earlier` run, if any.
    pub(super) fn read(
        dir: &Path,
        mut plan: AdaptPlan,
        earlier: Option<&Path>,
        context: &Context,
    ) -> Result<Prepared> {
        let templates = templates::fetch(dir, context)?;
        let gene = &templates.learngene;
        let sizes = plan.sizes(&templates)?;
        let shape = sizes.costliest(&gene.auxiliary);
        let values = gene.ledger().iter().map(|(_, n)| n).sum();
        let memory = |mode| Memory::of_composed(&shape, mode, values);
        let batch = forecast::fit_batch(&mut plan.data, &plan.training, memory, earlier, context)?;
        plan.table.extend(batch);
        let input = Input::Like(templates.transform.clone());
        let data = Data::open(&plan.data, input, context)?;
        let resolved = plan.training.resolve(&data)?;
        let tensors = gene.tensors();
        let parts = plan.given.adapts.as_deref().unwrap_or_default();
        check_parts("adapts", parts, tensors.iter().map(|(name, _)| name))?;
        Ok(Prepared {
            step: Step::new(memory(resolved.mode), &data, &resolved)?,
            templates,
            plan,
            sizes,
            data,
            resolved,
        })
    }

    fn describe(&self) -> Result<String> {
        let (gene, data) = (&self.templates.learngene, &self.data);
        let anchors = self.plan.anchors(gene.auxiliary.depth);
        let delta = self.plan.no_delta(gene, data.class_names.len())?;
        let values: usize = delta.values().map(Tensor::elem_count).sum();
        let (least, most) = self.sizes.depths;
        let mut text = format!(
            "depths {least} to {most}, widths {:?}; {values} trainable values, {anchors} anchors\n",
            self.sizes.widths
        );
        text += &data.describe();
        text += &self.resolved.describe(data);
        text += &self.step.words();
        Ok(text)
    }
}

/// The output of `wave adapt --dry-run`.
pub fn describe(dir: &Path, settings: &Adapt, context: &Context) -> Result<String> {
    let plan = AdaptPlan::new(settings)?;
    Prepared::read(dir, plan, None, context)?.describe()
}
