//! Trainings that sample a size in each step: interpretation of their settings, and accuracies at the
//! sampled sizes.

use crate::score::score_by;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wave_artefacts::templates;
use wave_hub::{Accuracy, ShapeAccuracy, TemplateConfig};
use wave_learngene::{Learngene, Sizes, Variants};
use wave_models::vit::VitShape;
use wave_models::{Network, refuse, resample};
use wave_run::data::Data;
use wave_run::recipe::means_nothing;
use wave_run::settings::{ElasticValues, VariantsValues};
use wave_run::train::{self, Resolved};
use wave_train::Scores;

/// The smallest and the largest of one or two given depths.
pub(crate) fn depths(given: &[usize]) -> Result<(usize, usize)> {
    match *given {
        [one] if one > 0 => Ok((one, one)),
        [least, most] if (1..=most).contains(&least) => Ok((least, most)),
        _ => {
            refuse!("depths = {given:?}; give one depth, or a minimum and a maximum, of at least 1")
        }
    }
}

/// Default fraction of the steps of a condensation or an adaptation over which the sampled sizes grow.
pub(crate) const GROWTH: f64 = 0.9;

/// The sizes to sample between two depths, from some widths; `growth` is the default.
pub(crate) fn sizes(
    settings: &ElasticValues,
    depths: (usize, usize),
    mut widths: Vec<usize>,
    growth: f64,
) -> Result<Sizes> {
    if widths.is_empty() {
        refuse!("widths is empty; give at least one");
    }
    widths.sort_unstable();
    widths.dedup();
    Ok(Sizes {
        growth: settings.growth.unwrap_or(growth),
        growth_power: settings.growth_power,
        ..Sizes::constant(depths, widths)
    })
}

/// The shapes that steps sample in addition to `sizes` of models like `whole`.
pub(crate) fn variants(
    given: &VariantsValues,
    sizes: &Sizes,
    whole: &VitShape,
) -> Result<Variants> {
    let variants = Variants {
        mlp_ratios: given.mlp_ratios.clone(),
        head_widths: given.head_widths.clone(),
        image_sizes: given.image_sizes.clone(),
        patches: given.patches.clone(),
        share: given.variant_share.unwrap_or(0.5),
    };
    let lists = [&given.head_widths, &given.image_sizes, &given.patches];
    let none = given.mlp_ratios.is_empty() && lists.iter().all(|list| list.is_empty());
    if given.variant_share.is_some() && none {
        return Err(means_nothing(
            "variant_share",
            "models without --mlp-ratios, --head-widths, --image-sizes or --patches",
        ));
    }
    let widths = &sizes.widths;
    for head in &variants.head_widths {
        if !widths.iter().any(|width| width.is_multiple_of(*head)) {
            refuse!("head_widths: {head} divides none of the widths {widths:?}");
        }
    }
    let or_own = |drawn: &[usize], own: usize| match drawn {
        [] => vec![own],
        drawn => drawn.to_vec(),
    };
    let images = or_own(&variants.image_sizes, whole.image_size);
    let patches = or_own(&variants.patches, whole.patch);
    for patch in &variants.patches {
        if !images.iter().any(|image| image.is_multiple_of(*patch)) {
            refuse!("patches: {patch} divides none of the image sizes {images:?}");
        }
    }
    for image in &variants.image_sizes {
        if !patches.iter().any(|patch| image.is_multiple_of(*patch)) {
            refuse!("image_sizes: {image} is not a multiple of any of the patch sizes {patches:?}");
        }
    }
    for &width in widths {
        let plain = whole.with_size(sizes.depths.1, width);
        variants
            .all(&plain)
            .iter()
            .try_for_each(VitShape::validate)?;
    }
    Ok(variants)
}

/// The shape that a step trains, sampled for models like `whole`.
pub(crate) fn sampled(sizes: &Sizes, whole: &VitShape, step: u64, settings: &Resolved) -> VitShape {
    let mut rng = train::step_generator(settings.seed ^ 0xe1a5, step);
    sizes.shape(whole, step, settings.steps, &mut rng)
}

/// Accuracy of a model composed from the learngene alone, on images resized for it.
pub(crate) fn score(gene: &Learngene, shape: &VitShape, data: &Data) -> Result<Scores> {
    let network = Network::Vit(shape.clone());
    let weights = data.tests.context.place(&gene.stacked_weights(shape)?)?;
    score_by(&network, &data.tests, |images| {
        network.logits(&weights, &resample::images(images, shape.image_size)?)
    })
}

/// The sizes that are tested at the end of a training, as width and depth: up to five depths for each width.
pub(crate) fn tested(
    (least, most): (usize, usize),
    widths: &[usize],
) -> impl Iterator<Item = (usize, usize)> {
    let depths: BTreeSet<usize> = (0..5).map(|i| least + i * (most - least) / 4).collect();
    let of_width =
        move |&width: &usize| depths.clone().into_iter().map(move |depth| (width, depth));
    widths.iter().flat_map(of_width)
}

/// The description of a `gene` trained at these sizes: `provenance` with the lists that models were sampled from, and
/// accuracies of models composed without training: at the [`tested`] and the `known` sizes, and of shapes of the middle
/// size that differ from the auxiliary in one sampled property.
pub(crate) fn description(
    gene: &Learngene,
    sizes: &Sizes,
    known: &[(usize, usize)],
    data: &Data,
    condition: &str,
    mut provenance: Value,
) -> Result<TemplateConfig> {
    let variants = &sizes.variants;
    let lists = [
        ("mlp_ratios", json!(variants.mlp_ratios)),
        ("head_widths", json!(variants.head_widths)),
        ("image_sizes", json!(variants.image_sizes)),
        ("patches", json!(variants.patches)),
    ];
    for (key, list) in lists.into_iter().filter(|(_, list)| *list != json!([])) {
        provenance[key] = list;
    }
    let mut about = templates::config(gene, &data.transform, data.class_names.clone(), provenance);
    if data.tests.indices.is_empty() {
        return Ok(about);
    }
    let (least, most) = sizes.depths;
    let known = known.iter().map(|&(depth, width)| (width, depth));
    let all: BTreeSet<_> = known.chain(tested(sizes.depths, &sizes.widths)).collect();
    for (width, depth) in all {
        let scores = score(gene, &gene.auxiliary.with_size(depth, width), data)?;
        about.accuracies.push(Accuracy {
            depth,
            width,
            top1: scores.top1,
            condition: condition.to_owned(),
        });
    }
    let width = sizes.widths[sizes.widths.len() / 2];
    let middle = gene.auxiliary.with_size((least + most) / 2, width);
    for shape in variants.one_by_one(&middle) {
        let scores = score(gene, &shape, data)?;
        about.shapes.push(ShapeAccuracy {
            depth: shape.depth,
            width: shape.width,
            heads: shape.heads,
            mlp_ratio: shape.mlp_ratio,
            image_size: shape.image_size,
            patch: shape.patch,
            top1: scores.top1,
        });
    }
    Ok(about)
}
