//! Templates that grow: the levels of a condensation, each of which grows the templates of the one before, and the plan
//! that adds a level to templates.

use super::CondensePlan;
use crate::ancestor::AncestorOutput;
use anyhow::{Context as _, Result};
use wave_artefacts::model::shape_in_words;
use wave_artefacts::templates::TemplateDir;
use wave_learngene::{Level, Plan};
use wave_models::refuse;
use wave_models::vit::VitShape;
use wave_run::data::Data;
use wave_run::recipe::{merge, parse, to_table};
use wave_run::settings::{Auxiliary, Condense};

/// The settings of each level; a single one if `levels` is not given.
pub(super) fn levels(settings: &Condense) -> Result<Vec<Condense>> {
    let Some(levels) = &settings.levels else {
        return Ok(vec![settings.clone()]);
    };
    if levels.is_empty() {
        refuse!("levels is empty; give the changes of at least one level");
    }
    let mut common = to_table(settings)?;
    common.remove("levels");
    let of_level = |(at, changes): (usize, &toml::Table)| {
        let mut table = common.clone();
        if at > 0 {
            // The first level's.
            for key in ["templates", "grow", "template_start", "scaler_start"] {
                table.remove(key);
            }
        }
        merge(&mut table, changes);
        let mut shared = ["mean", "std"].into_iter();
        if let Some(key) = shared.find(|key| changes.contains_key(*key)) {
            refuse!(
                "level {at} of levels sets {key}, but models of all levels share one; set it beside levels"
            );
        }
        let parsed: Condense = parse(&table, "condense", &format!("level {at} of levels"), &[])?;
        if parsed.levels.is_some() || (at > 0 && parsed.grow.is_some()) {
            refuse!("level {at} of levels grows the level before it; remove grow and levels there");
        }
        Ok(parsed)
    };
    levels.iter().enumerate().map(of_level).collect()
}

/// The plans of all levels; the first grows `templates`, if given.
pub(super) fn plans(
    levels: &[Condense],
    templates: Option<&TemplateDir>,
) -> Result<Vec<CondensePlan>> {
    let mut plans: Vec<CondensePlan> = Vec::new();
    for (at, settings) in levels.iter().enumerate() {
        let plan = match (plans.last(), templates) {
            (Some(before), _) => {
                let smaller = leveled(before.templates.clone(), before.sizes.largest());
                CondensePlan::new(settings)?.grows(&smaller, &before.auxiliary, settings)
            }
            (None, Some(templates)) => grown(settings, templates),
            (None, None) => CondensePlan::new(settings),
        };
        plans.push(match levels.len() {
            1 => plan?,
            _ => plan.with_context(|| format!("level {at} of levels"))?,
        });
    }
    Ok(plans)
}

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
    let mut plan = plan.grows(&smaller(templates)?, &gene.auxiliary, settings)?;
    plan.depth_rule = gene.depth_rule;
    plan.transform = Some(templates.transform_of(&plan.auxiliary));
    Ok(plan)
}

/// The plan of a set of templates, with its condensed sizes as a level.
pub(super) fn smaller(templates: &TemplateDir) -> Result<Plan> {
    if templates.learngene.auxiliary.classes == 0 {
        refuse!(
            "grow: these are backbone templates, without the projection to the ancestor's \
             features; only classifier templates can grow"
        );
    }
    let plan = templates.learngene.plan.clone();
    let sampled = |key| templates.config.sampled(key).into_iter();
    let most = |key| sampled(key).map(|n| n as usize).max();
    match most("depths").zip(most("widths")) {
        _ if !plan.levels.is_empty() => Ok(plan),
        Some(size) => Ok(leveled(plan, size)),
        None => refuse!(
            "grow: the templates do not record the sizes they were condensed for; condense them \
             with --depths and --widths"
        ),
    }
}

/// Refuses templates that lead to other outputs than the plan that grows them.
pub(super) fn check_outputs(
    smaller: &TemplateDir,
    output: AncestorOutput,
    plan: &CondensePlan,
    data: &Data,
) -> Result<()> {
    let (found, tests) = (smaller.learngene.auxiliary.classes, &data.tests);
    match output {
        AncestorOutput::Scores => {
            let own = "grow templates on data with their own classes";
            tests.check_classes(found, own)?;
            let remedy = format!("{own}, with the same names in the same order");
            tests.check_names(&smaller.config.label_names, &remedy)
        }
        AncestorOutput::Features if found == plan.auxiliary.classes => Ok(()),
        AncestorOutput::Features => refuse!(
            "grow: the templates have {found} outputs, the ancestor {} features; grow templates \
             that were condensed from its features",
            plan.auxiliary.classes
        ),
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
    /// Turns this plan of `given` settings into one that grows templates of the plan `smaller`, which has levels, for
    /// this auxiliary. Given template counts are totals.
    pub(super) fn grows(
        mut self,
        smaller: &Plan,
        auxiliary: &VitShape,
        given: &Condense,
    ) -> Result<CondensePlan> {
        let given_start = match (given.template_start, given.scaler_start) {
            (Some(_), _) => Some("template_start"),
            (None, scalers) => scalers.map(|_| "scaler_start"),
        };
        if let Some(key) = given_start {
            refuse!(
                "{key} does not apply to templates that grow: they keep their values, and new ones begin \
                 with scalers of 0; remove {key}"
            );
        }
        let own = VitShape {
            channels: auxiliary.channels,
            classes: auxiliary.classes,
            ..self.auxiliary.clone()
        };
        if own != *auxiliary {
            // The depth of an auxiliary is the number of its anchors.
            let words = |shape| shape_in_words(shape).replacen(" layers", " anchors", 1);
            let (old, new) = (words(auxiliary), words(&own));
            refuse!(
                "grow: the templates were condensed with {old}, but the auxiliary has {new}; remove \
                 the auxiliary's keys"
            );
        }
        let same = |p: &Plan| (p.template_size, p.kronecker, p.sets.clone());
        if same(&self.templates) != same(smaller) {
            let (t, order) = (smaller.template_size, smaller.kronecker.name());
            refuse!(
                "grow: the templates are {t} x {t}, in {order} order; remove template_size, \
                 kronecker and share_mlp"
            );
        }
        let (depth, width) = self.sizes.largest();
        if given.templates.is_none() {
            let added = Plan::default_budget(width, smaller.template_size);
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
            refuse!(
                "grow: the templates already make models of up to {} layers and width {}; give \
                 larger --depths or --widths",
                last.depth,
                last.width
            );
        }
        self.sizes.smaller = smaller.levels.iter().map(|l| (l.depth, l.width)).collect();
        self.work = self.sizes.work(&self.auxiliary);
        let levels = smaller.levels.iter().cloned().chain([level]).collect();
        self.templates = self.templates.with_levels(levels)?;
        Ok(self)
    }
}
