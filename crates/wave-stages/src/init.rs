//! `wave init`: a model in closed form, from its size alone or from a trained one. (Not `git init`.)

pub mod flags;
mod positional;

use crate::hypernetwork::{self, HyperModel};
use crate::layout::Layout;
use crate::model::{Model, Network};
use crate::{origin, templates};
use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_init::choices::{AutoLgRule, LayerScaleForm};
use wave_init::{
    Base, Choices, Cost, DirectOptions, Donor, METHODS, MlpMean, Positions, Request, Start,
    VitDims, filters, find,
};
use wave_models::Weights;
use wave_models::positional::PositionalAttention;
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::data::DataPlan;
use wave_run::error::request;
use wave_run::forecast;
use wave_run::inputs::Inputs;
use wave_run::run_dir::{self, Made, Options};
use wave_run::settings::{BatchSize, Images, Init, PositionKind, Scaled};
use wave_run::{data, locate};

mod convolution;

/// Input and classes of a new model.
pub struct Frame {
    /// Preprocessing of images.
    pub transform: Transform,
    /// Names of the classes.
    pub label_names: Vec<String>,
    patch: Option<usize>,
    head_width: Option<usize>,
    /// The model of `--from`.
    donor: Option<(Network, Weights)>,
}

impl Frame {
    /// Side of a patch: from the settings or the model of `--from`, else `usual` or another one that
    /// divides the images.
    fn patch(&self, settings: &Init, usual: usize) -> usize {
        let given = settings.patch.or(self.patch);
        given.unwrap_or_else(|| wave_models::default_patch(self.transform.image_size, usual))
    }
}

/// A line of the help on methods.
pub fn method_line(name: &str, description: &str) -> String {
    format!("  {name:20} {description}\n")
}

/// The architectures of networks that classify images.
pub fn architectures() -> Vec<&'static str> {
    let positional = PositionalAttention::ALL.map(|(name, _)| name);
    [&["vit", "convmixer", "convnext"][..], &positional].concat()
}

/// Text on the methods in `wave init --help`.
pub fn help() -> String {
    let mut text = String::from("Methods, for a vit:\n");
    for method in METHODS {
        text += &method_line(method.name, method.description);
    }
    text += "Those from weight-selection to nested take weights from the model of --from; ghn3 predicts \
             them by the hypernetwork there.\n\n";
    text += "For a convmixer or a convnext:\n";
    for method in filters::METHODS {
        text += &method_line(method.name, method.description);
    }
    text += "The last two take them from the model of --from.\n\n";
    text += &positional::help();
    text
}

/// Initialises a model by `method` and writes it to `out`. Returns the output of `--json`.
pub fn init(method: &str, settings: &Init, out: &Path, options: &Options) -> Result<Value> {
    let (model, cost) = new_model_and_cost(method, settings, &options.context)?;
    let layout = Layout::of(&settings.output, &model.network)?;
    let taken = match cost.transferred {
        0 => String::new(),
        n => format!(" {n} values are those of a trained model."),
    };
    let summary = format!("Initialised with wave, method {method}; not trained.{taken}");
    let inputs = Inputs::new(&options.context).frame(&model.transform, &model.label_names);
    let begun = Begun {
        method,
        parameters: model.parameters(),
        cost,
    };
    write_start(begun, settings, out, options, inputs, || {
        model.write(out, layout, None, &summary)
    })
}

/// A new model: how it came about and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    /// The method that made it.
    pub method: &'a str,
    /// The number of its weights.
    pub parameters: usize,
    /// What was taken over from trained models.
    pub cost: Cost,
}

/// Writes a new model with `write`, in a run in `out` with these `inputs` and those that the settings
/// name. Returns the output of `--json`.
///
/// # Errors
/// If `out` is not free, or the work fails.
pub fn write_start(
    begun: Begun,
    settings: &impl Serialize,
    out: &Path,
    options: &Options,
    inputs: Inputs,
    write: impl FnOnce() -> Result<()>,
) -> Result<Value> {
    let mut table = wave_run::recipe::to_table(settings)?;
    table.insert("method".into(), toml::Value::String(begun.method.into()));
    let given = |key: &str| table.get(key).and_then(toml::Value::as_str);
    let inputs = inputs
        .artefact_if_any("start", given("from"))?
        .place(given("data"));
    run_dir::fill(out, &table, &inputs, options, |_| {
        let result = json!({
            "parameters": begun.parameters,
            "top1": null,
            "transferred_parameters": begun.cost.transferred,
            "stored_parameters": begun.cost.stored,
        });
        Ok(Made {
            result,
            write: Box::new(write),
        })
    })
}

/// The model of these settings.
pub fn new_model(method: &str, settings: &Init, context: &Context) -> Result<Model> {
    Ok(new_model_and_cost(method, settings, context)?.0)
}

fn new_model_and_cost(method: &str, settings: &Init, context: &Context) -> Result<(Model, Cost)> {
    let frame = frame(&settings.into(), context)?;
    let seed = settings.seed.unwrap_or(0);
    let (network, weights, cost) = match settings.arch.as_deref().unwrap_or("vit") {
        "vit" => vit(method, settings, &frame, seed, context)?,
        arch @ ("convmixer" | "convnext") => {
            convolution::start(arch, method, settings, &frame, seed)?
        }
        other => match PositionalAttention::find(other) {
            Some(attention) => positional::network(method, attention, settings, &frame, seed)?,
            None => {
                return Err(request(format!(
                    "arch = {other}; expected one of {}",
                    architectures().join(", ")
                )));
            }
        },
    };
    let origin = match (cost.transferred, &settings.from) {
        (1.., Some(from)) => origin_of(from, context)?,
        _ => Value::Null,
    };
    let provenance = json!({
        "stage": "init",
        "version": env!("CARGO_PKG_VERSION"),
        "method": method,
        "origin": origin,
        "seed": seed,
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

/// The origin of the model that weights are taken from.
fn origin_of(from: &str, context: &Context) -> Result<Value> {
    let from = Path::new(from);
    let provenance = locate::config(from, context)?["wave"].clone();
    Ok(origin::of(from, &provenance, context))
}

/// A vision transformer by one of the methods.
fn vit(
    method: &str,
    settings: &Init,
    frame: &Frame,
    seed: u64,
    context: &Context,
) -> Result<(Network, Weights, Cost)> {
    let needs_donor = find(method)?.donors > 0;
    let (depth, width) = size(settings.depth, settings.width)?;
    // Only methods that copy weights also take the donor's other sizes.
    let donor = match &frame.donor {
        Some((Network::Vit(shape), weights)) if needs_donor => Some((shape, weights)),
        _ => None,
    };
    if needs_donor && donor.is_none() {
        let found = match &settings.from {
            Some(from) => format!("--from {from} is none"),
            None => "there is no --from".into(),
        };
        return Err(request(format!(
            "method {method} takes weights from a trained transformer, but {found}; give --from DIR \
             with the directory of one (templates make models with `wave expand`)"
        )));
    }
    let base = match donor {
        Some((shape, _)) => shape.clone(),
        None => VitShape {
            class_token: false,
            ..VitShape::default()
        },
    };
    let head_width = frame.head_width.unwrap_or(64);
    let shape = VitShape {
        image_size: frame.transform.image_size,
        channels: frame.transform.channels,
        patch: frame.patch(settings, 16),
        depth,
        width,
        heads: settings.heads.unwrap_or((width / head_width).max(1)),
        mlp_ratio: settings.mlp_ratio.unwrap_or(base.mlp_ratio),
        classes: frame.label_names.len(),
        class_token: settings.class_token.unwrap_or(base.class_token),
        distilled: false,
        norm_eps: base.norm_eps,
    };
    shape.validate()?;
    forecast::check_network(&Network::Vit(shape.clone()))?;
    let donors = match donor {
        Some((shape, weights)) => vec![Donor::new(shape.clone(), weights.clone())?],
        None => Vec::new(),
    };
    let start = start(method, &shape, &donors, settings, seed, context)?;
    Ok((Network::Vit(shape), start.weights, start.cost))
}

/// Depth and width, which every method needs.
///
/// # Errors
/// Naming the one that is missing.
pub fn size(depth: Option<usize>, width: Option<usize>) -> Result<(usize, usize)> {
    let given = |name: &str, value: Option<usize>| {
        value.ok_or_else(|| request(format!("no {name}; give --{name} N")))
    };
    Ok((given("depth", depth)?, given("width", width)?))
}

/// Weights of a shape by the method of this name, from as many donors as it needs.
pub fn start(
    method: &str,
    shape: &VitShape,
    donors: &[Donor],
    settings: &Init,
    seed: u64,
    context: &Context,
) -> Result<Start> {
    let mut choices = choices_of(method, settings, shape.image_size)?;
    if let (hypernetwork::METHOD, Some(from)) = (method, &settings.from) {
        choices.hypernetwork = Some(HyperModel::read(Path::new(from), context)?.hypernetwork);
    }
    let request = Request {
        shape,
        donors,
        choices: &choices,
        seed,
    };
    Ok(find(method)?.start(&request)?)
}

/// Options of a method, from the settings.
///
/// # Errors
/// As [`choices`]; also if mimetic attention is asked for where the method cannot use it.
fn choices_of(method: &str, settings: &Init, image_size: usize) -> Result<Choices> {
    if let (Some(rest), "mimetic" | "layerscale") = (&settings.rest, method) {
        rest.parse::<Base>()?;
    }
    choices(settings, image_size)
}

/// Options of all methods, from the settings, for images of this size.
pub fn choices(settings: &Init, image_size: usize) -> Result<Choices> {
    let mut choices = Choices {
        position_scale: settings.position_scale,
        ..Choices::default()
    };
    let usual = || Positions::usual_scale(image_size);
    let scale = settings.position_scale.unwrap_or_else(usual);
    choices.positions = settings.positions.map(|kind| match kind {
        PositionKind::Learned => Positions::Learned,
        PositionKind::Sinusoidal => Positions::Sinusoidal { scale },
    });
    choices.mlp_mean = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    if let Some(layout) = &settings.vp_layout {
        choices.vp_layout = layout.parse()?;
    }
    if let Some(rest) = &settings.rest {
        choices.rest = rest.parse()?;
        // Mimetic attention takes two of them; `choices_of` refuses the others.
        choices.base = rest.parse().unwrap_or(choices.base);
    }
    if let Some(scope) = &settings.zero {
        choices.zero.scope = scope.parse()?;
    }
    choices.qk = mixture("qk", settings.qk.as_deref())?;
    choices.vp = mixture("vp", settings.vp.as_deref())?;
    if let Some(layers) = &settings.layers {
        choices.layers = layers.parse()?;
    }
    if let Some(blocks) = settings.blocks {
        choices.heru_lg.blocks = blocks;
        choices.auto_lg.rule = AutoLgRule::Most(blocks);
    }
    if let Some(similarity) = &settings.similarity {
        choices.auto_lg.similarity.clone_from(similarity);
    }
    if let Some(gamma) = settings.gamma {
        choices.layer_scale.gamma = gamma;
    }
    choices.layer_scale.form = match settings.scaled {
        None | Some(Scaled::Branch) => LayerScaleForm::Branch,
        Some(Scaled::Skip) => LayerScaleForm::Skip,
    };
    Ok(choices)
}

/// Parses alpha and beta.
pub fn mixture(name: &str, values: Option<&[f64]>) -> Result<Option<(f64, f64)>> {
    match values {
        None => Ok(None),
        Some(&[alpha, beta]) => Ok(Some((alpha, beta))),
        Some(other) => Err(request(format!(
            "{name} = {other:?}; give two numbers, alpha and beta, such as 0.7,0.7"
        ))),
    }
}

/// Parses `none`, `eq1=SIGMA` or `eq2=B`.
pub fn mlp_mean(text: &str) -> Result<MlpMean> {
    let wrong = || {
        request(format!(
            "mlp_mean = {text}; expected none, eq1=SIGMA or eq2=B"
        ))
    };
    let number = |v: &str| v.parse::<f64>().map_err(|_| wrong());
    match text.split_once('=') {
        None if text == "none" => Ok(MlpMean::None),
        Some(("eq1", v)) => Ok(MlpMean::Eq1 { sigma: number(v)? }),
        Some(("eq2", v)) => Ok(MlpMean::Eq2 { b: number(v)? }),
        _ => Err(wrong()),
    }
}

/// New weights of a transformer, under timm's names.
pub fn fill(shape: &VitShape, options: &DirectOptions, seed: u64) -> Result<Weights> {
    let dims = VitDims::of(shape)?;
    wave_init::initialise(&dims, options, seed).context("initialisation")
}

/// The settings of a [`Frame`].
#[derive(Clone, Debug, Default)]
pub struct FrameSettings {
    /// A model or template directory.
    pub from: Option<String>,
    /// Images.
    pub data: Option<String>,
    /// Side of the image in pixels.
    pub image_size: Option<usize>,
    /// Colour channels.
    pub channels: Option<usize>,
    /// Classes.
    pub classes: Option<usize>,
}

impl From<&Init> for FrameSettings {
    fn from(settings: &Init) -> FrameSettings {
        FrameSettings {
            from: settings.from.clone(),
            data: settings.data.clone(),
            image_size: settings.image_size,
            channels: settings.channels,
            classes: settings.classes,
        }
    }
}

/// Input and classes: of another directory, of data, or of the settings.
///
/// # Errors
/// If the directory or data cannot be read.
pub fn frame(settings: &FrameSettings, context: &Context) -> Result<Frame> {
    let mut frame = if let Some(from) = &settings.from {
        frame_of(from, context)?
    } else if settings.data.is_some() {
        let images = Images {
            data: settings.data.clone(),
            ..Images::default()
        };
        let dataset = data::open(settings.data.as_deref(), context)?;
        let image_size = settings
            .image_size
            .or_else(|| data::image_side(&dataset))
            .unwrap_or(data::DEFAULT_SIDE);
        let input = data::Input::Size {
            image_size,
            channels: match settings.channels {
                Some(channels) => data::Channels::Exactly(channels),
                None => data::Channels::Otherwise(3),
            },
        };
        let plan = DataPlan {
            batch: BatchSize::Images(1),
            ..DataPlan::of_images(&images, None)?
        };
        let data = data::Data::open(&plan, input, context)?;
        Frame {
            transform: data.transform,
            label_names: data.class_names,
            patch: None,
            head_width: None,
            donor: None,
        }
    } else {
        let channels = settings.channels.unwrap_or(3);
        let (mean, std) = match channels {
            3 => (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]),
            _ => (vec![0.5; channels], vec![0.5; channels]),
        };
        let image_size = settings.image_size.unwrap_or(data::DEFAULT_SIDE);
        let transform = Transform::new(image_size, mean, std);
        let label_names = names(Vec::new(), settings.classes.unwrap_or(1000));
        Frame {
            transform,
            label_names,
            patch: None,
            head_width: None,
            donor: None,
        }
    };
    if let Some(classes) = settings.classes
        && classes != frame.label_names.len()
    {
        frame.label_names = names(Vec::new(), classes);
    }
    if let Some(image_size) = settings.image_size {
        frame.transform.image_size = image_size;
    }
    Ok(frame)
}

/// Input and classes of a template directory or a model.
fn frame_of(from: &str, context: &Context) -> Result<Frame> {
    let path = locate::locate(Path::new(from), context)?;
    let templates = path.is_dir() && wave_hub::directory_kind(&path)? == wave_hub::Kind::Templates;
    if templates {
        let templates = templates::read(&path)?;
        let shape = &templates.learngene.auxiliary;
        return Ok(Frame {
            label_names: names(templates.config.label_names.clone(), shape.classes),
            transform: templates.transform,
            patch: Some(shape.patch),
            head_width: Some(shape.head_width()),
            donor: None,
        });
    }
    if hypernetwork::is_model(&locate::config(&path, context)?) {
        let HyperModel {
            transform, about, ..
        } = HyperModel::read(&path, context)?;
        return Ok(Frame {
            transform,
            label_names: about.label_names,
            patch: Some(about.patch),
            head_width: Some(about.head_width),
            donor: None,
        });
    }
    let Model {
        network,
        weights,
        transform,
        label_names,
        ..
    } = Model::read(&path, context)?;
    let (patch, head_width) = match &network {
        Network::Vit(shape) => (shape.patch, Some(shape.head_width())),
        Network::ConvMixer(shape) => (shape.patch, None),
        Network::ConvNext(shape) => (shape.patch, None),
        other => {
            return Err(request(format!(
                "--from {from} is {}; give a plain transformer, a ConvMixer or an isotropic ConvNeXt",
                other.family()
            )));
        }
    };
    Ok(Frame {
        transform,
        label_names,
        patch: Some(patch),
        head_width,
        donor: Some((network, weights)),
    })
}

fn names(names: Vec<String>, classes: usize) -> Vec<String> {
    if names.len() == classes {
        names
    } else {
        (0..classes).map(|i| i.to_string()).collect()
    }
}
