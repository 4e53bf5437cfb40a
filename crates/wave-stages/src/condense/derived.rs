//! Sizes and templates of a condensation, derived from its settings.

use crate::elastic;
use anyhow::Result;
use std::collections::BTreeMap;
use wave_learngene::{DepthRule, Kronecker, Part, Plan, Sizes};
use wave_models::default_patch;
use wave_models::vit::VitShape;
use wave_run::data::DEFAULT_SIDE;
use wave_run::error::request;
use wave_run::settings::{Condense, CondenseValues, ScalerStart, Trained};

/// The values that the optimiser updates: composed weights, or factors if a setting rules out composed weights.
/// `sizes` are within those of `auxiliary`.
pub(super) fn trained(
    settings: &CondenseValues,
    sizes: &Sizes,
    auxiliary: &VitShape,
) -> Result<Trained> {
    let mut ratios = sizes.variants.mlp_ratios.iter();
    let ratio = ratios.find(|ratio| **ratio > auxiliary.mlp_ratio);
    let interleaved = settings.kronecker == "interleave";
    let wrong = match (settings.scaler_lr_ratio, ratio, interleaved) {
        (Some(_), ..) => "scaler_lr_ratio applies to trained scalers".to_owned(),
        (_, Some(ratio), _) => format!(
            "mlp_ratios: {ratio} is more than the auxiliary's {}",
            auxiliary.mlp_ratio
        ),
        (.., true) => {
            "kronecker = interleave: a smaller model's weights are not a part of a larger model's"
                .into()
        }
        _ => return Ok(settings.train.unwrap_or(Trained::Weights)),
    };
    match settings.train {
        Some(Trained::Weights) => Err(request(format!(
            "{wrong}, but composed weights are trained here; remove it, or give --train factors"
        ))),
        _ => Ok(Trained::Factors),
    }
}

/// The auxiliary's largest shape, on images like ImageNet's.
pub(super) fn auxiliary(settings: &CondenseValues) -> Result<VitShape> {
    let a = &settings.auxiliary;
    let head_width = a.head_width.unwrap_or(64);
    let width = a.width.unwrap_or(384);
    if head_width == 0 || !width.is_multiple_of(head_width) || width == 0 {
        return Err(request(format!(
            "auxiliary.width {width} is not a multiple of auxiliary.head_width {head_width}"
        )));
    }
    let image_size = a.image_size.unwrap_or(DEFAULT_SIDE);
    let auxiliary = VitShape {
        image_size,
        channels: 3,
        patch: a.patch.unwrap_or_else(|| default_patch(image_size, 16)),
        depth: settings.anchors.unwrap_or(depth(settings)),
        width,
        heads: width / head_width,
        mlp_ratio: a.mlp_ratio.unwrap_or(4.0),
        classes: 1000,
        class_token: a.class_token.unwrap_or(false),
        ..VitShape::default()
    };
    auxiliary.validate()?;
    Ok(auxiliary)
}

fn depth(settings: &CondenseValues) -> usize {
    settings.auxiliary.depth.unwrap_or(12)
}

/// The sizes to train, within the auxiliary's.
pub(super) fn sizes(settings: &CondenseValues, auxiliary: &VitShape) -> Result<Sizes> {
    let given = settings.depths.clone();
    let depths = elastic::depths(&given.unwrap_or_else(|| vec![depth(settings)]))?;
    let (width, head_width) = (auxiliary.width, auxiliary.head_width());
    let widths = settings.widths.clone().unwrap_or_else(|| vec![width]);
    let drawn = &settings.variants.head_widths;
    for w in &widths {
        let fits = |head: &usize| *head > 0 && w.is_multiple_of(*head);
        if *w == 0 || *w > width || !drawn.iter().chain([&head_width]).any(fits) {
            return Err(request(format!(
                "widths: {w}, expected a multiple of the head width {head_width}, or of one of \
                 head_widths, up to the auxiliary's width {width}"
            )));
        }
    }
    let mut sizes = elastic::sizes(&settings.elastic, depths, widths, elastic::GROWTH)?;
    sizes.variants = elastic::variants(&settings.variants, &sizes.widths, auxiliary)?;
    Ok(sizes)
}

/// Relative positions of layers between the anchors: with the fixed scalers of TELG, layers are TELG's at every depth.
pub(super) fn depth_rule(settings: &CondenseValues, auxiliary: &VitShape) -> Result<DepthRule> {
    match (settings.scaler_start, settings.scaler_lr_ratio) {
        (ScalerStart::Telg, Some(0.0)) if auxiliary.depth < 2 => Err(request(format!(
            "anchors = {}: fixed telg scalers need two, for the base and for base plus slope; set \
             anchors = 2",
            auxiliary.depth
        ))),
        (ScalerStart::Telg, Some(0.0)) => Ok(DepthRule::Tleg),
        _ => Ok(DepthRule::LastIsOne),
    }
}

/// The assignment of templates to parts; the default number is for width `reference`.
pub(super) fn template_plan(settings: &CondenseValues, reference: usize) -> Result<Plan> {
    let t = settings.template_size.unwrap_or(reference);
    let order = &settings.kronecker;
    let kronecker = Kronecker::from_name(order).ok_or_else(|| {
        request(format!(
            "unknown Kronecker order {order:?}; expected tile or interleave"
        ))
    })?;
    let default = Plan::default_budget(reference, t)?;
    let counts = match settings.templates.as_deref() {
        None => Part::ALL.map(|part| default.n_templates(part)),
        Some(given) => <[usize; 4]>::try_from(given).map_err(|_| {
            request(format!(
                "templates = {given:?}; give four counts, for qkv, proj, fc1 and fc2"
            ))
        })?,
    };
    let mut sets = Plan::own_sets();
    if settings.share_mlp {
        sets.extend([Part::Fc1, Part::Fc2].map(|part| (part, "mlp".to_owned())));
    }
    let mut by_set: BTreeMap<String, usize> = BTreeMap::new();
    for (set, n) in sets.values().zip(counts) {
        *by_set.entry(set.clone()).or_default() += n;
    }
    Ok(Plan::new(t, kronecker, sets, by_set)?)
}

/// The first given setting that applies to class scores only and changes their use.
pub(super) fn of_scores(settings: &Condense) -> Option<&'static str> {
    let optimisation = &settings.training.optimisation;
    let given = [
        ("temperature", settings.temperature.is_some()),
        ("cache_top", settings.outputs.cache_top.is_some()),
        ("label_smoothing", optimisation.label_smoothing.is_some()),
        ("ce_weight", settings.ce_weight.is_some_and(|x| x != 0.0)),
        ("kl_weight", settings.kl_weight.is_some_and(|x| x != 1.0)),
    ];
    let key = given.into_iter().find(|(_, given)| *given);
    key.map(|(key, _)| key)
}
