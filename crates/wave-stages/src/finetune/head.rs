//! The head of a fine-tuning: of the classes of its data.

use super::FinetunePlan;
use crate::model::{Model, Network};
use crate::score::zero_head;
use anyhow::Result;
use wave_run::context::Context;
use wave_run::data::{Data, Input};
use wave_run::error::request;

/// Opens the data for a model, and gives the model a new head if the plan asks for one.
pub fn open_data(model: &mut Model, plan: &FinetunePlan, context: &Context) -> Result<Data> {
    let data = Data::open(&plan.data, Input::Like(model.transform.clone()), context)?;
    if plan.new_head {
        reset_head(model, &data)?;
    }
    data.check_classes(
        model.network.classes(),
        "choose data with the model's classes, or start a new head with --new-head true",
    )?;
    data.check_names(
        &model.label_names,
        "start a new head with the data's names with --new-head true, or, if they are the model's classes, rename and \
         order the data's as the model has them",
    )?;
    Ok(data)
}

fn reset_head(model: &mut Model, data: &Data) -> Result<()> {
    let (classes, width) = (data.class_names.len(), model.network.size().1);
    let head = match &model.network {
        Network::ConvNext(shape) => shape.head(),
        _ => "head",
    };
    model.weights.extend(zero_head(head, classes, width)?);
    match &mut model.network {
        Network::Vit(shape) => shape.classes = classes,
        Network::ConvMixer(shape) => shape.classes = classes,
        Network::ConvNext(shape) => shape.classes = classes,
        Network::Transformer(shape) => shape.classes = classes,
        other => return Err(only_runs(other)),
    }
    model.label_names = data.class_names.clone();
    Ok(())
}

/// The error for a network that does not train.
pub(super) fn only_runs(network: &Network) -> anyhow::Error {
    let parts = match &network.parts()[..] {
        [] => String::new(),
        parts => format!(" with {}", parts.join(", ")),
    };
    request(format!(
        "{}{parts} only runs here: distil it with `wave condense --ancestor`, fine-tune what comes of it",
        network.family()
    ))
}
