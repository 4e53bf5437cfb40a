//! Levels of size: templates that grow, in one condensation after another.

use super::{CondensePlan, check};
use crate::model::shape_in_words;
use crate::templates::TemplateDir;
use anyhow::{Context as _, Result};
use wave_learngene::{Level, Plan};
use wave_models::vit::VitShape;
use wave_run::error::request;
use wave_run::recipe::{merge, parse, to_table};
use wave_run::settings::{Auxiliary, Condense};

/// The settings of each level: of one, where `levels` names none.
///
/// # Errors
/// If `levels` is empty, or one of them has an unknown key.
pub(super) fn of(settings: &Condense) -> Result<Vec<Condense>> {
    let Some(levels) = &settings.levels else {
        return Ok(vec![settings.clone()]);
    };
    if levels.is_empty() {
        return Err(request("levels is empty; give the changes of at least one"));
    }
    let mut common = to_table(settings)?;
    common.remove("levels");
    let of_level = |(at, changes): (usize, &toml::Table)| {
        let mut table = common.clone();
        if at > 0 {
            table.remove("templates"); // the first level's
        }
        merge(&mut table, changes);
        let parsed: Condense = parse(&table, "condense", &format!("level {at} of levels"), &[])?;
        if parsed.levels.is_some() || (at > 0 && parsed.grow.is_some()) {
            return Err(request(format!(
                "level {at} of levels grows the level before it; leave out grow and levels there"
            )));
        }
        Ok(parsed)
    };
    levels.iter().enumerate().map(of_level).collect()
}

/// The settings of each level, each checked alone.
pub(super) fn checked(settings: &Condense) -> Result<Vec<Condense>> {
    let levels = of(settings)?;
    for level in &levels {
        check(level)?;
    }
    Ok(levels)
}

/// The plans of all levels; the first grows `templates`, if it grows any.
pub(super) fn plans(
    levels: &[Condense],
    templates: Option<&TemplateDir>,
) -> Result<Vec<CondensePlan>> {
    let mut plans: Vec<CondensePlan> = Vec::new();
    for (at, settings) in levels.iter().enumerate() {
        let plan = match (plans.last(), templates) {
            (Some(before), _) => {
                let given = settings.templates.is_some();
                CondensePlan::new(settings)?.grows(&before.leveled(), &before.auxiliary, given)
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

/// The plan of a growth of templates.
pub(super) fn grown(settings: &Condense, templates: &TemplateDir) -> Result<CondensePlan> {
    let gene = &templates.learngene;
    let usual = Auxiliary::from(&gene.auxiliary);
    let own = settings.auxiliary.clone();
    let filled = Condense {
        auxiliary: Auxiliary {
            depth: own.depth.or(usual.depth),
            width: own.width.or(usual.width),
            head_width: own.head_width.or(usual.head_width),
            patch: own.patch.or(usual.patch),
            image_size: own.image_size.or(usual.image_size),
            mlp_ratio: own.mlp_ratio.or(usual.mlp_ratio),
            class_token: own.class_token.or(usual.class_token),
        },
        anchors: settings.anchors.or(usual.depth),
        template_size: settings.template_size.or(Some(gene.plan.template_size)),
        kronecker: settings
            .kronecker
            .clone()
            .or_else(|| Some(gene.plan.kronecker.name().to_owned())),
        share_mlp: settings
            .share_mlp
            .or(Some(gene.plan.counts.contains_key("mlp"))),
        ..settings.clone()
    };
    let plan = CondensePlan::new(&filled)?;
    let given = settings.templates.is_some();
    let mut plan = plan.grows(&smaller(templates)?, &gene.auxiliary, given)?;
    plan.table = to_table(settings)?;
    plan.depth_rule = gene.depth_rule;
    Ok(plan)
}

/// The plan of a set of templates, with the sizes that it was condensed for as its level.
///
/// # Errors
/// If it does not say which.
pub(super) fn smaller(templates: &TemplateDir) -> Result<Plan> {
    if templates.learngene.auxiliary.classes == 0 {
        return Err(request(
            "grow: these are templates of backbones, and the map to the features that taught them is gone; only \
             templates of classifiers grow",
        ));
    }
    let plan = templates.learngene.plan.clone();
    if !plan.levels.is_empty() {
        return Ok(plan);
    }
    let told = &templates.config.provenance;
    match told.depths.iter().max().zip(told.widths.iter().max()) {
        Some((depth, width)) => Ok(leveled(plan, *depth, *width)),
        None => Err(request(
            "grow: the templates do not say for which sizes they were condensed; condense them with --depths and \
             --widths",
        )),
    }
}

/// A plan with all its templates as one level of sizes, unless it has levels.
fn leveled(mut plan: Plan, depth: usize, width: usize) -> Plan {
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
    /// As a growth of templates of this plan and for this auxiliary; `smaller` has levels. `given` says whether the
    /// numbers of templates are the settings', of all of them.
    ///
    /// # Errors
    /// If these are other templates, or the sizes or numbers are no larger.
    fn grows(mut self, smaller: &Plan, auxiliary: &VitShape, given: bool) -> Result<CondensePlan> {
        let own = VitShape {
            channels: auxiliary.channels,
            classes: auxiliary.classes,
            ..self.auxiliary.clone()
        };
        if own != *auxiliary {
            // The depth of an auxiliary is the number of its anchors.
            let words = |shape| shape_in_words(shape).replacen(" layers", " anchors", 1);
            return Err(request(format!(
                "grow: the templates were condensed with {}, and this is {}; leave out the keys of the auxiliary",
                words(auxiliary),
                words(&own)
            )));
        }
        let same = |p: &Plan| (p.template_size, p.kronecker, p.sets.clone());
        if same(&self.templates) != same(smaller) {
            return Err(request(format!(
                "grow: the templates are of {t} x {t}, in {} order; leave out template_size, kronecker and share_mlp",
                smaller.kronecker.name(),
                t = smaller.template_size
            )));
        }
        let (depth, width) = self.most();
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
                "grow: the templates make models of up to {} layers of width {} already; give larger --depths or \
                 --widths",
                last.depth, last.width
            )));
        }
        self.sizes.smaller = smaller.levels.iter().map(|l| (l.depth, l.width)).collect();
        self.work = self.sizes.work(&self.auxiliary);
        let levels = smaller.levels.iter().cloned().chain([level]).collect();
        self.templates = self.templates.with_levels(levels)?;
        Ok(self)
    }

    /// The plan of its templates, with what it condenses as a level.
    fn leveled(&self) -> Plan {
        let (depth, width) = self.most();
        leveled(self.templates.clone(), depth, width)
    }
}
