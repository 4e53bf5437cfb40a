//! Condensations that train the weights which templates compose: when they do, and their variables.

use anyhow::Result;
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;
use wave_learngene::{Learngene, Part, Reach, Sizes};
use wave_models::Weights;
use wave_models::vit::VitShape;
use wave_ops::profile::{Work, doing};
use wave_run::error::request;
use wave_run::settings::{Condense, Larger, Trained};
use wave_run::train::{self, Live, Resolved};
use wave_train::{Rate, Variable};

/// The start of their names.
const PREFIX: &str = "composed.";

/// What is trained: the weights with Muon, else templates and scalers. `sizes` are those of `auxiliary`.
pub(super) fn trained(settings: &Condense, sizes: &Sizes, auxiliary: &VitShape) -> Result<Trained> {
    let usual = match settings.training.transformer.muon {
        Some(true) => Trained::Weights,
        _ => Trained::Factors,
    };
    let trained = settings.train.unwrap_or(usual);
    if trained == Trained::Factors {
        return Ok(trained);
    }
    let of_factors = [
        ("scaler_lr_ratio", settings.scaler_lr_ratio.is_some()),
        ("template_lr_ratio", settings.template_lr_ratio.is_some()),
        (
            "larger = deviations",
            settings.larger == Some(Larger::Deviations),
        ),
    ];
    let given = of_factors.iter().find(|(_, given)| *given);
    let mut ratios = sizes.variants.mlp_ratios.iter();
    let ratio = ratios.find(|ratio| **ratio > auxiliary.mlp_ratio);
    let interleaved = settings.kronecker.as_deref() == Some("interleave");
    let wrong = match (given, ratio, interleaved) {
        (Some((key, _)), ..) => format!("{key} is of templates and scalers that train"),
        (_, Some(ratio), _) => format!(
            "mlp_ratios: {ratio} is more than the auxiliary's {}",
            auxiliary.mlp_ratio
        ),
        (.., true) => {
            "kronecker = interleave: a smaller model's weights are no part of a larger's".into()
        }
        _ => return Ok(trained),
    };
    Err(request(format!(
        "{wrong}, and here the weights train that they compose; leave it out, or give --train factors"
    )))
}

/// Whether a variable of this name is a set of templates or a part of the bank.
fn is_factor(name: &str) -> bool {
    name.starts_with("templates.") || name.starts_with("bank.")
}

/// `factors`, the variables of templates, scalers and inherited weights, with the weights that they compose for models of
/// these sizes. The optimiser leaves templates and scalers to [`constrain`].
pub(super) fn variables(
    factors: Vec<Variable>,
    gene: &Learngene,
    sizes: &Reach,
    resolved: &Resolved,
    device: &Device,
) -> Result<Vec<Variable>> {
    let mut variables = factors;
    for v in variables.iter_mut().filter(|v| is_factor(&v.name)) {
        v.rate = Rate::Frozen;
    }
    for (part, t) in gene.composed(sizes)? {
        let v = train::variable(&part.stacked_name(), &t, resolved, t.dim(0)?, device)?;
        variables.push(Variable {
            name: format!("{PREFIX}{part}"),
            rate: Rate::Uniform(1.0),
            ..v
        });
    }
    Ok(variables)
}

/// Those weights among the values of all variables.
pub(super) fn weights(values: &Weights) -> BTreeMap<Part, Tensor> {
    let of = |part: Part| Some((part, values.get(&format!("{PREFIX}{part}"))?.clone()));
    Part::ALL.into_iter().filter_map(of).collect()
}

/// After a step: templates and scalers move towards the weights, and the weights become what they compose.
pub(super) fn constrain(gene: &Learngene, sizes: &Reach, live: &Live) -> candle_core::Result<()> {
    let _measured = doing(Work::Composition);
    let value = |v: &Variable| (v.name.clone(), v.var.as_detached_tensor());
    let values: Weights = live.variables.iter().map(value).collect();
    let gene = gene
        .with_tensors(&values)
        .nearer(&weights(&values), sizes)?;
    let mut moved: Weights = gene.tensors().into_iter().collect();
    moved.retain(|name, _| is_factor(name));
    for (part, t) in gene.composed(sizes)? {
        moved.insert(format!("{PREFIX}{part}"), t);
    }
    for v in &live.variables {
        if let Some(t) = moved.get(&v.name) {
            v.var.set(t)?;
        }
    }
    Ok(())
}
