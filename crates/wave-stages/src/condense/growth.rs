//! The plan of a condensation that adds a level to templates.

use super::CondensePlan;
use anyhow::Result;
use wave_artefacts::model::shape_in_words;
use wave_artefacts::templates::TemplateDir;
use wave_learngene::{Level, Plan};
use wave_models::vit::VitShape;
use wave_run::error::request;
use wave_run::recipe::{merge, to_table};
use wave_run::settings::{Auxiliary, Condense};

/// The plan for growing templates: settings that are not given are taken from the templates.
pub(super) fn grown(settings: &Condense, templates: &TemplateDir) -> Result<CondensePlan> {
    let gene = &templates.learngene;
    let usual = Condense {
        auxiliary: Auxiliary::from(&gene.auxiliary),
        anchors: Some(gene.auxiliary.depth),
        template_size: Some(gene.plan.template_size),
        kronecker: Some(gene.plan.kronecker.name().to_owned()),
        share_mlp: Some(gene.plan.counts.contains_key("mlp")),
        ..Condense::default()
    };
    let mut filled = to_table(&usual)?;
    merge(&mut filled, &to_table(settings)?);
    let plan = CondensePlan::new(&filled.try_into()?)?;
    let given = settings.templates.is_some();
    let mut plan = plan.grows(&smaller(templates)?, &gene.auxiliary, given)?;
    plan.depth_rule = gene.depth_rule;
    Ok(plan)
}

/// The plan of a set of templates, with its condensed sizes as a level.
pub(super) fn smaller(templates: &TemplateDir) -> Result<Plan> {
    if templates.learngene.auxiliary.classes == 0 {
        return Err(request(
            "grow: these are backbone templates, without the projection to the ancestor's \
             features; only classifier templates can grow",
        ));
    }
    let plan = templates.learngene.plan.clone();
    let told = &templates.config.provenance;
    match told.depths.iter().max().zip(told.widths.iter().max()) {
        _ if !plan.levels.is_empty() => Ok(plan),
        Some((depth, width)) => Ok(leveled(plan, (*depth, *width))),
        None => Err(request(
            "grow: the templates do not record the sizes they were condensed for; condense them \
             with --depths and --widths",
        )),
    }
}

/// A plan with all its templates as one level of sizes, unless it has levels.
fn leveled(mut plan: Plan, (depth, width): (usize, usize)) -> Plan {
    if plan.levels.is_empty() {
        plan.levels.push(Level {
            depth,
            width,
            counts: plan.counts.clone(),
        });
    }
    plan
}

impl CondensePlan {
    /// Turns this into a plan that grows templates of the plan `smaller`, which has levels, for this auxiliary.
    /// `given` says whether the template counts come from the settings, as totals.
    pub(super) fn grows(
        mut self,
        smaller: &Plan,
        auxiliary: &VitShape,
        given: bool,
    ) -> Result<CondensePlan> {
        let own = VitShape {
            channels: auxiliary.channels,
            classes: auxiliary.classes,
            ..self.auxiliary.clone()
        };
        if own != *auxiliary {
            // The depth of an auxiliary is the number of its anchors.
            let words = |shape| shape_in_words(shape).replacen(" layers", " anchors", 1);
            return Err(request(format!(
                "grow: the templates were condensed with {}, but the auxiliary has {}; remove the \
                 auxiliary's keys",
                words(auxiliary),
                words(&own)
            )));
        }
        let same = |p: &Plan| (p.template_size, p.kronecker, p.sets.clone());
        if same(&self.templates) != same(smaller) {
            return Err(request(format!(
                "grow: the templates are {t} x {t}, in {} order; remove template_size, kronecker \
                 and share_mlp",
                smaller.kronecker.name(),
                t = smaller.template_size
            )));
        }
        let (depth, width) = self.sizes.largest();
        if !given {
            let added = Plan::default_budget(width, smaller.template_size)?;
            self.templates.counts = smaller.counts.clone();
            for (part, set) in &smaller.sets {
                *self.templates.counts.entry(set.clone()).or_default() += added.n_templates(*part);
            }
        }
        let level = Level {
            depth,
            width,
            counts: self.templates.counts.clone(),
        };
        let last = smaller.levels.last();
        if let Some(last) = last.filter(|last| last.holds(depth, width)) {
            return Err(request(format!(
                "grow: the templates already make models of up to {} layers and width {}; give \
                 larger --depths or --widths",
                last.depth, last.width
            )));
        }
        self.sizes.smaller = smaller.levels.iter().map(|l| (l.depth, l.width)).collect();
        self.work = self.sizes.work(&self.auxiliary);
        let levels = smaller.levels.iter().cloned().chain([level]).collect();
        self.templates = self.templates.with_levels(levels)?;
        Ok(self)
    }

    /// The plan of its templates, with its condensed sizes as a level.
    pub(super) fn leveled(&self) -> Plan {
        leveled(self.templates.clone(), self.sizes.largest())
    }
}
