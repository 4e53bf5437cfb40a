//! `wave condense --method factorise`: the templates nearest to a transformer's own weights.

use super::artefact::write;
use super::{CondensePlan, EXPANDED};
use crate::ancestor::Ancestor;
use crate::elastic;
use crate::finetune::Options;
use crate::model::Network;
use crate::templates::{self, Description};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use wave_learngene::{Learngene, Part, Plan};
use wave_models::vit::VitShape;
use wave_run::data::{self, Data, Input};
use wave_run::error::request;
use wave_run::inputs::Inputs;
use wave_run::run_dir::{self, Made};
use wave_run::settings::{Auxiliary, Condense};

/// Factorises an ancestor and writes a template directory. Returns the output of `--json`.
pub(super) fn factorise(
    recipe: &str,
    settings: &Condense,
    ancestor: Option<&Ancestor>,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let (shape, model) = transformer(ancestor)?;
    let plan = CondensePlan::new(&Condense {
        auxiliary: auxiliary(&settings.auxiliary, shape)?,
        depths: None,
        widths: None,
        anchors: None,
        ..settings.clone()
    })?;
    let plan = plan.on(shape.channels, shape.classes);
    let inputs = Inputs::new(&options.context)
        .artefact_if_any("ancestor", plan.ancestor.as_deref())?
        .place(plan.data.spec.as_deref());
    run_dir::fill(out, &plan.table, &inputs, options, |_| {
        let began = Instant::now();
        let (gene, energy) = start(&plan, ancestor)?;
        let gene = templates::rounded(&gene, plan.float)?;
        let noise = noise(&plan, plan.training.seed)?;
        let data = match plan.data.spec {
            Some(_) => Some(Data::open(
                &plan.data,
                Input::Like(model.transform.clone()),
                &options.context,
            )?),
            None => None,
        };
        let provenance = json!({
            "recipe": recipe,
            "version": env!("CARGO_PKG_VERSION"),
            "method": "factorise",
            "ancestor": model.describe(),
            "ancestor_sha256": model.digest,
            "origin": model.origin,
            "energy_kept": energy,
            "energy_kept_of_noise": noise,
        });
        let about = Description {
            transform: &model.transform,
            label_names: model.label_names.clone(),
            provenance,
            accuracies: match &data {
                Some(data) => elastic::accuracies(&gene, &plan.sizes, &[], data, EXPANDED)?,
                None => Vec::new(),
            },
            shapes: Vec::new(),
        };
        let top1 = about.accuracies.last().map(|a| a.top1);
        let mut result = json!({
            "parameters": gene.ledger().iter().map(|(_, n)| n).sum::<usize>(),
            "top1": top1,
            "energy_kept": energy,
            "energy_kept_of_noise": noise,
            "seconds": began.elapsed().as_secs_f64().round(),
        });
        if let Some(data) = &data {
            data::count_broken(&mut result, data.tell_broken());
        }
        let float = plan.float;
        Ok(Made {
            result,
            write: Box::new(move || write(out, &gene, float, about)),
        })
    })
}

/// The templates and bank nearest to an ancestor's weights, with one anchor for each of its layers, and
/// its other weights; with the share of energy that each set keeps.
pub(super) fn start(
    plan: &CondensePlan,
    ancestor: Option<&Ancestor>,
) -> Result<(Learngene, BTreeMap<String, f64>)> {
    let (shape, model) = transformer(ancestor)?;
    if shape != &plan.auxiliary {
        return Err(request(format!(
            "to start from its factors the auxiliary must be like the ancestor, {shape:?}; found \
             {:?}",
            plan.auxiliary
        )));
    }
    let Some(weights) = model.frozen.prepared() else {
        return Err(no_transformer(model));
    };
    Ok(Learngene::factorise(&plan.templates, weights, shape)?)
}

/// The share of energy that each set keeps of random weights of the same shape.
fn noise(plan: &CondensePlan, seed: u64) -> Result<BTreeMap<String, f64>> {
    let shape = &plan.auxiliary;
    let set_plan: &Plan = &plan.templates;
    let mut weights = BTreeMap::new();
    for (stream, part) in Part::ALL.into_iter().enumerate() {
        let (rows, cols) = part.rows_cols(shape);
        let mut generator = wave_init::random::generator(seed, stream as u64);
        let dims = (plan.auxiliary.depth, rows, cols);
        weights.insert(part, wave_init::random::normal(dims, 1.0, &mut generator)?);
    }
    Ok(wave_learngene::factorise(set_plan, &weights, shape)?.energy)
}

fn transformer(ancestor: Option<&Ancestor>) -> Result<(&VitShape, &Ancestor)> {
    let Some(ancestor) = ancestor else {
        return Err(request(
            "method = factorise needs an ancestor; give --ancestor DIR",
        ));
    };
    match &ancestor.network {
        Network::Vit(shape) => Ok((shape, ancestor)),
        _ => Err(no_transformer(ancestor)),
    }
}

fn no_transformer(ancestor: &Ancestor) -> anyhow::Error {
    request(format!(
        "method = factorise needs a plain vision transformer, and the ancestor is {}; distil it",
        ancestor.describe()
    ))
}

/// The ancestor's shape as settings; given settings must agree with it.
fn auxiliary(given: &Auxiliary, shape: &VitShape) -> Result<Auxiliary> {
    let own = Auxiliary::from(shape);
    let merged = Auxiliary {
        depth: given.depth.or(own.depth),
        width: given.width.or(own.width),
        head_width: given.head_width.or(own.head_width),
        patch: given.patch.or(own.patch),
        image_size: given.image_size.or(own.image_size),
        mlp_ratio: given.mlp_ratio.or(own.mlp_ratio),
        class_token: given.class_token.or(own.class_token),
    };
    if merged != own {
        return Err(request(format!(
            "[condense.auxiliary] differs from the ancestor to factorise, {shape:?}; leave it out"
        )));
    }
    Ok(own)
}
