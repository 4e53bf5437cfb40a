//! Size levels: templates that grow over successive condensations.

use super::{CondensePlan, check, growth};
use anyhow::{Context as _, Result};
use wave_artefacts::templates::TemplateDir;
use wave_run::error::request;
use wave_run::recipe::{merge, parse, to_table};
use wave_run::settings::Condense;

/// The settings of each level; a single one if `levels` is not given.
pub(super) fn of(settings: &Condense) -> Result<Vec<Condense>> {
    let Some(levels) = &settings.levels else {
        return Ok(vec![settings.clone()]);
    };
    if levels.is_empty() {
        return Err(request(
            "levels is empty; give the changes of at least one level",
        ));
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
                "level {at} of levels grows the level before it; remove grow and levels there"
            )));
        }
        Ok(parsed)
    };
    levels.iter().enumerate().map(of_level).collect()
}

/// The settings of each level, each checked on its own.
pub(super) fn checked(settings: &Condense) -> Result<Vec<Condense>> {
    let levels = of(settings)?;
    for level in &levels {
        check(level)?;
    }
    Ok(levels)
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
                let given = settings.templates.is_some();
                CondensePlan::new(settings)?.grows(&before.leveled(), &before.auxiliary, given)
            }
            (None, Some(templates)) => growth::grown(settings, templates),
            (None, None) => CondensePlan::new(settings),
        };
        plans.push(match levels.len() {
            1 => plan?,
            _ => plan.with_context(|| format!("level {at} of levels"))?,
        });
    }
    Ok(plans)
}
