//! Trainings that draw the sizes of each step: what their settings mean.

use anyhow::Result;
use wave_learngene::Sizes;
use wave_run::error::request;
use wave_run::settings::Elastic;

/// Default power of growth.
const GROWTH_POWER: f64 = 3.0;

/// The sizes to draw between two depths, from some widths; `growth` is the default.
pub(crate) fn sizes(
    settings: &Elastic,
    depths: (usize, usize),
    mut widths: Vec<usize>,
    growth: f64,
) -> Sizes {
    widths.sort_unstable();
    widths.dedup();
    Sizes {
        depths,
        widths,
        growth: settings.growth.unwrap_or(growth),
        growth_power: settings.growth_power.unwrap_or(GROWTH_POWER),
        per_step: settings.per_step(),
    }
}

/// Refuses in-place distillation where each step trains one model.
///
/// # Errors
/// As said.
pub(crate) fn check(settings: &Elastic) -> Result<()> {
    if settings.per_step() < 2 && settings.inplace_weight() > 0.0 {
        return Err(request(
            "inplace_weight: the smaller models of a step learn from its largest, and a step trains one \
             model; give --sizes-per-step 2 or more",
        ));
    }
    Ok(())
}
