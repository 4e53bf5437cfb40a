//! `wave init`: a model in closed form, from its size alone or from a trained model. (Not `git init`.)

mod methods;
mod plan;

use crate::score::check_finite;
use anyhow::Result;
use candle_core::Tensor;
pub use methods::{check, choices};
use plan::{Frame, InitPlan, frame};
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::{Model, Network, shape_in_words};
use wave_artefacts::origin;
use wave_data::Transform;
use wave_init::{Choices, Cost, Donor, METHODS, Request, Start, filters, find};
use wave_models::convmixer::ConvMixerShape;
use wave_models::convnext::ConvNextShape;
use wave_models::vit::VitShape;
use wave_models::{Activation, Dilations, Weights, refuse};
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::inputs::Inputs;
use wave_run::run_dir::{self, Options, StageOutput};
use wave_run::settings::{Architecture, Init, MixerActivation};
use wave_run::{forecast, locate};
use wave_train::Examples;

/// Text on the methods in `wave init --help`.
pub fn help() -> String {
    let line = |name: &str, description: &str| format!("  {name:20} {description}\n");
    let mut text = String::from("Methods for --arch vit:\n");
    for method in METHODS {
        text += &line(method.name, method.description);
    }
    text += "The methods from weight-selection to prune take weights from the --from model.\n\n";
    text += "Methods for --arch convmixer and convnext:\n";
    for method in filters::METHODS {
        text += &line(method.name, method.description);
    }
    text + "The last two take filters or their statistics from the --from model.\n"
}

/// Initialises a model by `method` and writes it to `out`. Returns the output of `--json`.
pub fn init(method: &str, settings: &Init, out: &Path, options: &Options) -> Result<Value> {
    let (model, cost) = new_model_and_cost(method, settings, &options.context)?;
    let layout = Layout::of(&settings.output, &model.network)?;
    let taken = match cost.transferred {
        0 => String::new(),
        n => format!(" {n} values come from a trained model."),
    };
    let summary = format!("Initialised with wave, method {method}; not trained.{taken}");
    let mut table = wave_run::recipe::to_table(settings)?;
    table.insert("method".into(), toml::Value::String(method.into()));
    let inputs = Inputs::new(&options.context)
        .frame(&model.transform, &model.label_names)
        .artefact_if_any("start", settings.from.as_deref())?
        .place(settings.data.as_deref());
    run_dir::fill(out, &table, &inputs, options, |_| {
        let result = json!({
            "parameters": model.parameters(),
            "top1": null,
            "transferred_parameters": cost.transferred,
            "stored_parameters": cost.stored,
        });
        Ok(StageOutput {
            result,
            write: Box::new(move || model.write(out, layout, None, &summary)),
        })
    })
}

/// The output of `--dry-run`.
pub fn describe(method: &str, settings: &Init, context: &Context) -> Result<String> {
    let model = new_model(method, settings, context)?;
    Layout::of(&settings.output, &model.network)?;
    let network = match &model.network {
        Network::Vit(shape) => shape_in_words(shape),
        other => format!("{other:#?}"),
    };
    Ok(format!("{network}\n{} parameters\n", model.parameters()))
}

/// The model for these settings.
pub fn new_model(method: &str, settings: &Init, context: &Context) -> Result<Model> {
    Ok(new_model_and_cost(method, settings, context)?.0)
}

/// The network for these settings, without weights.
pub fn new_network(method: &str, settings: &Init, context: &Context) -> Result<Network> {
    let plan = InitPlan::new(method, settings)?;
    network(&plan, &frame(&plan, context)?)
}

fn network(plan: &InitPlan, frame: &Frame) -> Result<Network> {
    let network = match plan.given.arch {
        Architecture::Vit => Network::Vit(vit(plan, frame)?),
        Architecture::Convmixer | Architecture::Convnext => convolution(plan, frame)?,
    };
    forecast::check_network(&network)?;
    Ok(network)
}

fn new_model_and_cost(method: &str, settings: &Init, context: &Context) -> Result<(Model, Cost)> {
    let plan = InitPlan::new(method, settings)?;
    let frame = frame(&plan, context)?;
    let network = network(&plan, &frame)?;
    let (weights, cost) = match &network {
        Network::Vit(shape) => vit_weights(&plan, &frame, shape, context)?,
        _ => {
            let (choices, seed) = (methods::filters(&plan.given)?, plan.given.seed);
            let donor = frame
                .donor
                .as_ref()
                .map(|(network, weights)| (network, weights));
            filters::start(method, &network, donor, &choices, seed)?
        }
    };
    let who = format!("method {method} makes");
    check_finite(&weights, &who, "give options nearer to their defaults")?;
    let origin = match (cost.transferred, &plan.given.from) {
        (1.., Some(from)) => {
            let from = Path::new(from);
            origin::of(from, &locate::config(from, context)?["wave"], context)
        }
        _ => Value::Null,
    };
    let provenance = json!({
        "stage": "init",
        "version": env!("CARGO_PKG_VERSION"),
        "method": method,
        "origin": origin,
        "seed": plan.given.seed,
        "transferred_parameters": cost.transferred,
    });
    let model = Model {
        network,
        weights,
        transform: frame.transform,
        label_names: frame.label_names,
        provenance,
    };
    Ok((model, cost))
}

fn vit(plan: &InitPlan, frame: &Frame) -> Result<VitShape> {
    let base = match &frame.donor {
        Some((Network::Vit(shape), _)) => shape.clone(),
        _ => VitShape {
            class_token: false,
            ..VitShape::default()
        },
    };
    let heads = match plan.takes_images {
        // Use narrower heads instead of fewer.
        true => {
            let fit = |heads: &usize| plan.width.is_multiple_of(*heads);
            (1..=base.heads).rev().find(fit).unwrap_or(1)
        }
        false => (plan.width / frame.head_width.unwrap_or(64)).max(1),
    };
    let shape = VitShape {
        image_size: frame.transform.image_size,
        channels: frame.transform.channels,
        patch: frame.patch(plan, 16),
        depth: plan.depth,
        width: plan.width,
        heads: plan.given.heads.unwrap_or(heads),
        mlp_ratio: plan.given.mlp_ratio.unwrap_or(base.mlp_ratio),
        classes: frame.label_names.len(),
        class_token: plan.given.class_token.unwrap_or(base.class_token),
        distilled: false,
        norm_eps: base.norm_eps,
    };
    shape.validate()?;
    Ok(shape)
}

fn vit_weights(
    plan: &InitPlan,
    frame: &Frame,
    shape: &VitShape,
    context: &Context,
) -> Result<(Weights, Cost)> {
    let (mut donor, mut images) = (None, None);
    if let Some((Network::Vit(whole), weights)) = &frame.donor {
        donor = Some(Donor::new(whole.clone(), weights.clone())?);
        if plan.takes_images && plan.images.spec.is_some() {
            images = Some(sample(&plan.images, &frame.transform, whole, context)?);
        }
    }
    let given = (donor.as_ref(), images.as_ref());
    let start = start(&plan.method, shape, given, &plan.choices, plan.given.seed)?;
    Ok((start.weights, start.cost))
}

fn convolution(plan: &InitPlan, frame: &Frame) -> Result<Network> {
    if let (Architecture::Convnext, Some(dilation)) = (plan.given.arch, &plan.given.dilation) {
        refuse!(
            "dilation = {dilation}: a ConvNeXt has no dilation; remove it, or give --arch \
             convmixer"
        );
    }
    let (kernel, ratio) = match &frame.donor {
        Some((Network::ConvMixer(shape), _)) => (Some(shape.kernel), None),
        Some((Network::ConvNext(shape), _)) => (Some(shape.kernel), Some(shape.mlp_ratio)),
        _ => (None, None),
    };
    let kernel = plan.given.kernel.or(kernel);
    let (image_size, channels) = (frame.transform.image_size, frame.transform.channels);
    let classes = frame.label_names.len();
    match plan.given.arch {
        Architecture::Convnext => {
            let shape = ConvNextShape {
                image_size,
                channels,
                patch: frame.patch(plan, if plan.stages.is_some() { 4 } else { 7 }),
                depth: plan.depth,
                stages: plan.stages,
                width: plan.width,
                kernel: kernel.unwrap_or(7),
                mlp_ratio: plan.given.mlp_ratio.or(ratio).unwrap_or(4.0),
                classes,
            };
            shape.validate()?;
            Ok(Network::ConvNext(shape))
        }
        _ => {
            let dilation = plan.given.dilation.as_deref().unwrap_or("1");
            let shape = ConvMixerShape {
                image_size,
                channels,
                patch: frame.patch(plan, 7),
                depth: plan.depth,
                width: plan.width,
                kernel: kernel.unwrap_or(9),
                classes,
                activation: match plan.given.activation {
                    Some(MixerActivation::Relu) => Activation::Relu,
                    Some(MixerActivation::Gelu) | None => Activation::Gelu,
                },
                dilations: Dilations::parse(dilation, plan.depth)?,
            };
            shape.validate()?;
            Ok(Network::ConvMixer(shape))
        }
    }
}

/// Default number of images for a method that uses images.
pub const SAMPLE: usize = 500;

/// Images for a method that uses some, [`SAMPLE`] unless the plan gives a number: (images, channels, side, side). They
/// need no labels.
///
/// # Errors
/// If the data cannot be read, or the images do not fit in memory together with the tokens that `donor` makes of them.
pub fn sample(
    plan: &DataPlan,
    transform: &Transform,
    donor: &VitShape,
    context: &Context,
) -> Result<Tensor> {
    context.only_one("prune runs")?;
    let plan = DataPlan {
        train_limit: plan.train_limit.or(Some(SAMPLE)),
        batch: 1, // no steps
        ..plan.clone()
    };
    let data = Data::open_any(&plan, Input::Like(transform.clone()), None, context)?;
    forecast::check_images(donor, data.train_indices.len())?;
    let batches = data.training_images().batches(64);
    let batches = batches.map(|batch| Ok(batch?.input()?));
    let batches: Vec<Tensor> = batches.collect::<Result<_>>()?;
    data.tell_broken();
    Ok(Tensor::cat(&batches, 0)?)
}

/// Initialises a shape by the method of this name, from a donor if it needs one, and from images if it uses some.
pub fn start(
    method: &str,
    shape: &VitShape,
    (donor, images): (Option<&Donor>, Option<&Tensor>),
    choices: &Choices,
    seed: u64,
) -> Result<Start> {
    let request = Request {
        shape,
        donor,
        images,
        choices,
        seed,
    };
    Ok(find(method)?.start(&request)?)
}
