//! An adaptation with all its inputs.

use super::largest;
use super::plan::AdaptPlan;
use crate::score::check_parts;
use crate::templates::{self, TemplateDir};
use anyhow::Result;
use std::path::Path;
use wave_learngene::Sizes;
use wave_run::context::Context;
use wave_run::data::{Data, Input};
use wave_run::forecast::{self, Memory, Step};
use wave_run::settings::Adapt;
use wave_run::train::Resolved;

/// An adaptation with all its inputs, checked.
pub(super) struct Prepared {
    pub(super) templates: TemplateDir,
    /// With a batch as a number.
    pub(super) plan: AdaptPlan,
    pub(super) sizes: Sizes,
    pub(super) data: Data,
    pub(super) resolved: Resolved,
    /// Memory of a step.
    pub(super) step: Step,
}

impl Prepared {
    /// Reads the templates in a directory; an automatic batch is that of the `earlier` run, if any.
    pub(super) fn read(
        dir: &Path,
        mut plan: AdaptPlan,
        earlier: Option<&Path>,
        context: &Context,
    ) -> Result<Prepared> {
        let templates = templates::fetch(dir, context)?;
        let gene = &templates.learngene;
        let sizes = plan.sizes(&templates)?;
        let shape = sizes.costliest(&largest(&gene.auxiliary, &sizes));
        let values = gene.ledger().iter().map(|(_, n)| n).sum();
        let memory = |mode| Memory::of_composed(&shape, mode, values);
        let batch = forecast::fit_batch(&mut plan.data, &plan.training, memory, earlier, context)?;
        plan.table.extend(batch);
        let data = Data::open(
            &plan.data,
            Input::Like(templates.transform.clone()),
            context,
        )?;
        let resolved = plan.training.resolve(&data)?;
        let tensors = gene.tensors();
        let parts = plan.adapts.as_deref().unwrap_or_default();
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
        let Prepared {
            templates,
            plan,
            sizes,
            data,
            resolved,
            step,
        } = self;
        let gene = &templates.learngene;
        let anchors = plan.anchors(gene.auxiliary.depth);
        let delta = plan.no_delta(gene, data.class_names.len())?;
        let values: usize = delta.values().map(candle_core::Tensor::elem_count).sum();
        let (least, most) = sizes.depths;
        let mut text = format!(
            "depths {least} to {most}, widths {:?}; {values} values adapt, with {anchors} anchors\n",
            sizes.widths
        );
        text += &data.describe();
        text += &resolved.describe(data);
        text += &step.words();
        Ok(text)
    }
}

/// The output of `wave adapt --dry-run`.
///
/// # Errors
/// As the adaptation's own, before its first step.
pub fn describe(dir: &Path, settings: &Adapt, context: &Context) -> Result<String> {
    let plan = AdaptPlan::new(settings)?;
    Prepared::read(dir, plan, None, context)?.describe()
}
