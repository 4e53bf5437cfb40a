//! `wave init`: a model in closed form, from its size alone or from a trained one. (Not `git init`.)

pub mod flags;
mod positional;

use crate::hypernetwork::{self, HyperModel};
use crate::layout::Layout;
use crate::model::{Model, Network};
use crate::{origin, templates};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_init::direct::layer_scale::Form;
use wave_init::transfer::auto_lg::Rule;
use wave_init::{
    Base, Choices, Cost, Donor, METHODS, MlpMean, Options, Positions, Request, Start, VitDims,
    filters, find,
};
use wave_models::Weights;
use wave_models::positional::PositionalAttention;
use wave_models::vit::VitShape;
use wave_run::error::request;
use wave_run::forecast;
use wave_run::inputs::Inputs;
use wave_run::paths;
use wave_run::ranks;
use wave_run::run_dir::{self, Opened, RunDir};
use wave_run::settings::{BatchSize, Init, Training};
use wave_run::{data, locate};

mod convolution;

/// What a new model has to fit: its input and its classes.
pub struct Frame {
    /// How images become input.
    pub transform: Transform,
    /// A name for each class.
    pub label_names: Vec<String>,
    patch: Option<usize>,
    head_width: Option<usize>,
    /// The model of `--from`.
    donor: Option<(Network, Weights)>,
}

impl Frame {
    /// The side of a patch: as the settings or the model of `--from` have it, or one that fits the images,
    /// `usual` if that does.
    fn patch(&self, settings: &Init, usual: usize) -> usize {
        let given = settings.patch.or(self.patch);
        given.unwrap_or_else(|| wave_models::default_patch(self.transform.image_size, usual))
    }
}

/// The architectures of networks that classify images.
pub fn architectures() -> Vec<&'static str> {
    let positional = PositionalAttention::ALL.map(|(name, _)| name);
    [&["vit", "convmixer", "convnext"][..], &positional].concat()
}

/// What `wave init --help` says of the methods.
pub fn help() -> String {
    let mut text = String::from("Methods, for a vit:\n");
    for method in METHODS {
        text += &format!("  {:20} {}\n", method.name, method.description);
    }
    text += "Those from weight-selection to nested take weights from the model of --from; ghn3 predicts \
             them by the hypernetwork there.\n\n";
    text += "For a convmixer or a convnext:\n";
    for method in filters::METHODS {
        text += &format!("  {:20} {}\n", method.name, method.description);
    }
    text += "The last two take them from the model of --from.\n\n";
    text += &positional::help();
    text
}

/// Initialises a model by `method` and writes it to `out`. Returns what `--json` prints.
pub fn init(method: &str, settings: &Init, out: &Path, options: run_dir::Options) -> Result<Value> {
    let (model, cost) = new_model_and_cost(method, settings)?;
    let layout = Layout::of(&settings.output, &model.network)?;
    let taken = match cost.transferred {
        0 => String::new(),
        n => format!(" {n} values are those of a trained model."),
    };
    let summary = format!("Initialised with wave, method {method}; not trained.{taken}");
    let n = model.parameters();
    let inputs = Inputs::default().frame(&model.transform, &model.label_names);
    write_start(method, settings, out, options, inputs, n, cost, || {
        model.write(out, layout, None, &summary)
    })
}

/// Lets `write` write a start of so many `parameters`, made of `inputs` and those that the settings name, to
/// `out`, beside its run. Returns what `--json` prints.
///
/// # Errors
/// If `out` is not free, or the work fails.
pub fn write_start(
    method: &str,
    settings: &Init,
    out: &Path,
    options: run_dir::Options,
    inputs: Inputs,
    parameters: usize,
    cost: Cost,
    write: impl FnOnce() -> Result<()>,
) -> Result<Value> {
    let mut table = wave_run::recipe::to_table(settings)?;
    table.insert("method".into(), toml::Value::String(method.into()));
    let inputs = inputs
        .artefact_if_any("start", settings.from.as_deref())?
        .place(settings.data.as_deref());
    let mut run = match RunDir::open(out, &table, &inputs, options)? {
        Opened::Complete(result) => return Ok(result),
        Opened::Run(run) => run,
    };
    let result = json!({
        "out": paths::text(out),
        "parameters": parameters,
        "top1": null,
        "transferred_parameters": cost.transferred,
        "stored_parameters": cost.stored,
    });
    ranks::on_first(|| run.complete(&result, write))?;
    Ok(result)
}

/// A model as the settings describe it.
pub fn new_model(method: &str, settings: &Init) -> Result<Model> {
    Ok(new_model_and_cost(method, settings)?.0)
}

fn new_model_and_cost(method: &str, settings: &Init) -> Result<(Model, Cost)> {
    let frame = frame(settings)?;
    let seed = settings.seed.unwrap_or(0);
    let (network, weights, cost) = match settings.arch.as_deref().unwrap_or("vit") {
        "vit" => vit(method, settings, &frame, seed)?,
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
        (1.., Some(from)) => origin_of(from)?,
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

/// Whose model weights are taken from.
fn origin_of(from: &str) -> Result<Value> {
    let from = Path::new(from);
    let provenance = locate::config(from)?["wave"].clone();
    Ok(origin::of(from, &provenance))
}

/// A vision transformer by one of the methods.
fn vit(
    method: &str,
    settings: &Init,
    frame: &Frame,
    seed: u64,
) -> Result<(Network, Weights, Cost)> {
    let needs_donor = find(method)?.donors > 0;
    let (depth, width) = size(settings)?;
    // Only methods that take weights over take the donor's other sizes too.
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
    let start = start(method, &shape, &donors, settings, seed)?;
    Ok((Network::Vit(shape), start.weights, start.cost))
}

/// Depth and width, which every method needs.
pub fn size(settings: &Init) -> Result<(usize, usize)> {
    let given = |name: &str, value: Option<usize>| {
        value.ok_or_else(|| request(format!("no {name}; give --{name} N")))
    };
    Ok((
        given("depth", settings.depth)?,
        given("width", settings.width)?,
    ))
}

/// Weights of a shape by a method of this name, from as many donors as it takes.
pub fn start(
    method: &str,
    shape: &VitShape,
    donors: &[Donor],
    settings: &Init,
    seed: u64,
) -> Result<Start> {
    let mut choices = choices_of(method, settings, shape.image_size)?;
    if let (hypernetwork::METHOD, Some(from)) = (method, &settings.from) {
        choices.hypernetwork = Some(HyperModel::read(Path::new(from))?.hypernetwork);
    }
    let request = Request {
        shape,
        donors,
        choices: &choices,
        seed,
    };
    Ok(find(method)?.start(&request)?)
}

/// What a method leaves open, from the settings.
///
/// # Errors
/// As [`choices`]; also if mimetic attention is to stand among what it does not know.
fn choices_of(method: &str, settings: &Init, image_size: usize) -> Result<Choices> {
    if let (Some(rest), "mimetic" | "layerscale") = (&settings.rest, method) {
        rest.parse::<Base>()?;
    }
    choices(settings, image_size)
}

/// What methods leave open, from the settings, for images of this size.
pub fn choices(settings: &Init, image_size: usize) -> Result<Choices> {
    let mut choices = Choices {
        position_scale: settings.position_scale,
        ..Choices::default()
    };
    let usual = || Positions::usual_scale(image_size);
    let scale = settings.position_scale.unwrap_or_else(usual);
    choices.positions = match settings.positions.as_deref() {
        None => None,
        Some("learned") => Some(Positions::Learned),
        Some("sinusoidal") => Some(Positions::Sinusoidal { scale }),
        Some(other) => {
            return Err(request(format!(
                "positions = {other}; expected learned or sinusoidal"
            )));
        }
    };
    choices.mlp_mean = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    if let Some(layout) = &settings.vp_layout {
        choices.vp_layout = layout.parse()?;
    }
    if let Some(rest) = &settings.rest {
        choices.rest = rest.parse()?;
        // Mimetic attention knows two of them; `choices_of` refuses the others.
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
        choices.auto_lg.rule = Rule::Most(blocks);
    }
    if let Some(similarity) = &settings.similarity {
        choices.auto_lg.similarity.clone_from(similarity);
    }
    if let Some(gamma) = settings.gamma {
        choices.layer_scale.gamma = gamma;
    }
    choices.layer_scale.form = match settings.scaled.as_deref() {
        None | Some("branch") => Form::Branch,
        Some("skip") => Form::Skip,
        Some(other) => {
            return Err(request(format!(
                "scaled = {other}; expected branch or skip"
            )));
        }
    };
    Ok(choices)
}

/// Reads alpha and beta.
pub fn mixture(name: &str, values: Option<&[f64]>) -> Result<Option<(f64, f64)>> {
    match values {
        None => Ok(None),
        Some(&[alpha, beta]) => Ok(Some((alpha, beta))),
        Some(other) => Err(request(format!(
            "{name} = {other:?}; give two numbers, alpha and beta, such as 0.7,0.7"
        ))),
    }
}

/// Reads `none`, `eq1=SIGMA` or `eq2=B`.
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

/// Fresh weights, timm-named, for a transformer.
pub fn fill(shape: &VitShape, options: &Options, seed: u64) -> Result<Weights> {
    let dims = VitDims::of(shape)?;
    wave_init::initialise(&dims, options, seed).context("initialisation")
}

/// Input and classes: from another directory, from data, or from the settings.
pub fn frame(settings: &Init) -> Result<Frame> {
    let mut frame = if let Some(from) = &settings.from {
        frame_of(from)?
    } else if settings.data.is_some() {
        let training = Training {
            data: settings.data.clone(),
            ..Training::default()
        };
        let dataset = data::open(&training)?;
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
        let training = Training {
            batch: Some(BatchSize::Images(1)),
            ..training
        };
        let data = data::Data::open(&training, input)?;
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
fn frame_of(from: &str) -> Result<Frame> {
    let path = locate::locate(Path::new(from))?;
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
    if hypernetwork::is_model(&locate::config(&path)?) {
        let HyperModel {
            transform, about, ..
        } = HyperModel::read(&path)?;
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
    } = Model::read(&path)?;
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
