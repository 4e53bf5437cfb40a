//! Initial values of a condensation.

use super::{CondensePlan, growth};
use crate::ancestor::{Ancestor, AncestorOutput};
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use wave_artefacts::model::{Network, shape_in_words};
use wave_artefacts::templates::TemplateDir;
use wave_data::Transform;
use wave_init::{Choices, DirectMethod, Positions};
use wave_learngene::{Learngene, Part, Templates, factorised, seed_templates};
use wave_learngene::{ramp_scalers, random_scalers, share_scalers, telg_scalers};
use wave_models::vit::{self, VitShape};
use wave_models::{Weights, refuse};
use wave_run::data::Data;
use wave_run::settings::{ScalerStart, TemplateStart};

/// Noise on structured initial scalers, so that equal blocks can diverge.
const SCALER_NOISE: f32 = 0.03;

/// The learngene before its first step: a new one, or the `grown` templates with another level.
pub(super) fn begin(
    plan: &CondensePlan,
    grown: Option<&TemplateDir>,
    ancestor: Option<&Ancestor>,
    data: &Data,
    seed: u64,
) -> Result<Learngene> {
    let (Some(grown), Some(level)) = (grown, plan.templates.levels.last()) else {
        let gene = start(plan, seed)?;
        return match ancestor.filter(|_| plan.given.template_start == TemplateStart::Ancestor) {
            Some(ancestor) => from_ancestor(gene, plan, ancestor, &data.transform),
            None => Ok(gene),
        };
    };
    let gene = Learngene {
        plan: growth::smaller(grown)?,
        ..grown.learngene.clone()
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Ok(gene.grown(level.clone(), &first_templates(plan, &mut rng)?)?)
}

/// Refuses a start from the weights of an ancestor that is no ViT of the auxiliary's shape.
pub(super) fn check(plan: &CondensePlan, ancestor: Option<&Ancestor>) -> Result<()> {
    if plan.given.template_start != TemplateStart::Ancestor {
        return Ok(());
    }
    // The classifier may differ.
    let headless = |shape: &VitShape| VitShape {
        classes: 0,
        norm_eps: vit::LAYER_NORM_EPS,
        ..shape.clone()
    };
    let found = match ancestor {
        None => "there is none".to_owned(),
        Some(ancestor) => match &ancestor.network {
            Network::Vit(shape) if headless(shape) == headless(&plan.auxiliary) => return Ok(()),
            Network::Vit(shape) => format!("it has {}", shape_in_words(shape)),
            _ => format!("it is {}", ancestor.describe()),
        },
    };
    refuse!(
        "template_start = ancestor: the ancestor must be a ViT of the auxiliary's shape ({}), but \
         {found}; change the auxiliary, or use another template_start",
        shape_in_words(&plan.auxiliary)
    )
}

/// The templates and scalers nearest to the ancestor's weights, and its other weights, in place of those of `gene`.
fn from_ancestor(
    mut gene: Learngene,
    plan: &CondensePlan,
    ancestor: &Ancestor,
    images: &Transform,
) -> Result<Learngene> {
    let on_host = |(name, t): (&String, &Tensor)| Ok((name.clone(), t.to_device(&Device::Cpu)?));
    let stacked = ancestor.frozen.prepared().into_iter().flatten();
    let mut weights: Weights = stacked.map(on_host).collect::<Result<_>>()?;
    embed_images_of(images, ancestor, &mut weights)?;
    if plan.output(Some(ancestor)) == AncestorOutput::Features {
        weights.retain(|name, _| !name.starts_with("head"));
    }
    (gene.templates, gene.bank) =
        factorised(&gene.plan, &gene.templates, &weights, &gene.auxiliary)?;
    for (name, t) in &mut gene.inherited {
        if let Some(own) = weights.get(name).filter(|own| own.dims() == t.dims()) {
            *t = own.clone();
        }
    }
    Ok(gene)
}

/// Adapts the ancestor's patch embedding to images normalised for `images`.
fn embed_images_of(images: &Transform, ancestor: &Ancestor, weights: &mut Weights) -> Result<()> {
    let [weight, bias] = ["weight", "bias"].map(|name| format!("patch_embed.proj.{name}"));
    let (Some(w), Some(b)) = (weights.get(&weight), weights.get(&bias)) else {
        return Ok(());
    };
    let [scale, shift] = ancestor.renormalisation(images, &Device::Cpu)?;
    let shifted = w.broadcast_mul(&shift)?.sum((1, 2, 3))?;
    let moved = [(bias, (b + shifted)?), (weight, w.broadcast_mul(&scale)?)];
    weights.extend(moved);
    Ok(())
}

fn mean_width(plan: &CondensePlan) -> f64 {
    let widths = &plan.sizes.widths;
    widths.iter().sum::<usize>() as f64 / widths.len() as f64
}

/// Independent random templates.
fn first_templates(plan: &CondensePlan, rng: &mut ChaCha8Rng) -> Result<Templates> {
    let t = plan.templates.template_size;
    // Xavier for a square matrix of the mean width: a deviation as small as 0.02 trains much worse
    // in narrow networks.
    let bound = (3.0 / mean_width(plan)).sqrt() as f32;
    let uniform = rand_distr::Uniform::new_inclusive(-bound, bound)?;
    let of_set = |(set, n): (&String, &usize)| {
        let values: Vec<f32> = (0..n * t * t).map(|_| uniform.sample(rng)).collect();
        let templates = Tensor::from_vec(values, (*n, t, t), &Device::Cpu)?;
        Ok((set.clone(), templates))
    };
    plan.templates.counts.iter().map(of_set).collect()
}

/// The templates, bank and other weights before the first step.
pub(super) fn start(plan: &CondensePlan, seed: u64) -> Result<Learngene> {
    let a = &plan.auxiliary;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut templates = first_templates(plan, &mut rng)?;
    // The default budget of templates holds two layers of the narrowest width.
    let two = a.with_size(2, plan.sizes.widths[0]);
    let method = match plan.given.template_start {
        TemplateStart::Mimetic => DirectMethod::Mimetic,
        TemplateStart::Xavier | TemplateStart::Ancestor => DirectMethod::Xavier,
    };
    // Sines come in fours.
    let fours = [a, &two].iter().all(|shape| shape.width.is_multiple_of(4));
    let choices = Choices {
        positions: Some(match method {
            DirectMethod::Mimetic if fours => Positions::Sinusoidal,
            _ => Positions::Learned,
        }),
        position_scale: Some(1.0),
        ..Choices::default()
    };
    if method == DirectMethod::Mimetic {
        let layers = vit::stack(&wave_init::initialise(&two, method, &choices, seed)?, 2)?;
        for part in [Part::Qkv, Part::Proj] {
            let set = &plan.templates.sets[&part];
            let weights = &layers[part.stacked_name()];
            let t = seed_templates(&plan.templates, part, &templates[set], weights, &two)?;
            templates.insert(set.clone(), t);
        }
    }
    let mut normal = || StandardNormal.sample(&mut rng);
    let (sets, anchors) = (&plan.templates, a.depth);
    let bank = match plan.given.scaler_start {
        ScalerStart::Ramp => ramp_scalers(sets, a, &two, anchors, SCALER_NOISE, &mut normal)?,
        ScalerStart::Random => {
            // Same magnitude as the templates.
            let deviation = (1.0 / mean_width(plan)).sqrt();
            random_scalers(sets, &templates, a, anchors, deviation, &mut normal)?
        }
        ScalerStart::Telg => telg_scalers(sets, a, anchors, plan.depth_rule)?,
        ScalerStart::Share => share_scalers(sets, a, anchors)?,
    };
    // The methods agree outside the templates, except for positions; Xavier avoids decomposing mimetic
    // attention in every layer.
    let fresh = wave_init::initialise(a, DirectMethod::Xavier, &choices, seed)?;
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
