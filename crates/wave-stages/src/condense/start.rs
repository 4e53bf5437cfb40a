//! Initial values of a condensation.

use super::{CondensePlan, growth};
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use wave_artefacts::templates::TemplateDir;
use wave_init::{DirectMethod, Positions};
use wave_learngene::{Learngene, Part, Templates};
use wave_models::vit;
use wave_run::settings::ScalerStart;

/// Noise on structured initial scalers, so that equal blocks can diverge.
const SCALER_NOISE: f32 = 0.03;

/// The learngene before its first step: a new one, or the `grown` templates with another level.
pub(super) fn begin(
    plan: &CondensePlan,
    grown: Option<&TemplateDir>,
    seed: u64,
) -> Result<Learngene> {
    let (Some(grown), Some(level)) = (grown, plan.templates.levels.last()) else {
        return start(plan, seed);
    };
    let gene = Learngene {
        plan: growth::smaller(grown)?,
        ..grown.learngene.clone()
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Ok(gene.grown(level.clone(), &first_templates(plan, &mut rng)?)?)
}

fn mean_width(plan: &CondensePlan) -> f64 {
    let widths = &plan.sizes.widths;
    widths.iter().sum::<usize>() as f64 / widths.len() as f64
}

/// Independent random templates.
fn first_templates(plan: &CondensePlan, rng: &mut ChaCha8Rng) -> Result<Templates> {
    let t = plan.templates.template_size;
    let mean_width = mean_width(plan);
    // Xavier for a square matrix of the mean width: a deviation as small as 0.02 trains much worse
    // in narrow networks.
    let bound = (3.0 / mean_width).sqrt() as f32;
    let uniform = rand_distr::Uniform::new_inclusive(-bound, bound)?;
    let mut of_set = |(set, n): (&String, &usize)| {
        let values: Vec<f32> = (0..n * t * t).map(|_| uniform.sample(rng)).collect();
        let templates = Tensor::from_vec(values, (*n, t, t), &Device::Cpu)?;
        Ok((set.clone(), templates))
    };
    plan.templates.counts.iter().map(&mut of_set).collect()
}

/// The templates, bank and other weights before the first step.
pub(super) fn start(plan: &CondensePlan, seed: u64) -> Result<Learngene> {
    let a = &plan.auxiliary;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut templates = first_templates(plan, &mut rng)?;
    // The default budget of templates holds two layers of the narrowest width.
    let two = a.with_size(2, plan.sizes.widths[0]);
    let mut options = wave_init::DirectOptions::new(plan.template_start);
    if [a, &two].iter().any(|shape| !shape.width.is_multiple_of(4)) {
        options.positions = Positions::Learned; // sines come in fours
    }
    if plan.template_start == DirectMethod::Mimetic {
        let layers = vit::stack(&crate::init::fill(&two, &options, seed)?, 2)?;
        for part in [Part::Qkv, Part::Proj] {
            let set = &plan.templates.sets[&part];
            let weights = &layers[&part.stacked_name()];
            let plan = &plan.templates;
            let t = wave_learngene::seed_templates(plan, part, &templates[set], weights, &two)?;
            templates.insert(set.clone(), t);
        }
    }
    let mut normal = || StandardNormal.sample(&mut rng);
    let bank = match plan.start {
        ScalerStart::Ramp => wave_learngene::ramp_scalers(
            &plan.templates,
            a,
            &two,
            a.depth,
            SCALER_NOISE,
            &mut normal,
        )?,
        ScalerStart::Random => {
            let (set, t) = (&plan.templates, &templates);
            // Same magnitude as the templates.
            let deviation = (1.0 / mean_width(plan)).sqrt();
            wave_learngene::random_scalers(set, t, a, a.depth, deviation, &mut normal)?
        }
        ScalerStart::Telg => {
            wave_learngene::telg_scalers(&plan.templates, a, a.depth, plan.depth_rule)?
        }
        ScalerStart::Share => wave_learngene::share_scalers(&plan.templates, a, a.depth)?,
    };
    // The methods agree outside the templates, except for positions; Xavier avoids decomposing mimetic
    // attention in every layer.
    options.method = DirectMethod::Xavier;
    let fresh = crate::init::fill(a, &options, seed)?;
    let mut inherited = vit::stack(&fresh, a.depth)?;
    inherited.retain(|name, _| !plan.templates.composes(name));
    Ok(Learngene {
        plan: plan.templates.clone(),
        templates,
        bank,
        inherited,
        auxiliary: a.clone(),
        depth_rule: plan.depth_rule,
        smaller: Vec::new(),
    })
}
