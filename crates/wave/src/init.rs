//! `wave init`: a model that has seen nothing, in closed form. (Not `git init`.)

use crate::error::request;
use crate::layout::Layout;
use crate::model::{Model, Network};
use crate::run_dir::{Opened, RunDir};
use crate::settings::{Init, Training};
use crate::{data, elastic};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_init::{Method, MlpMean, Options, Positions, VitDims};
use wave_models::convmixer::ConvMixerShape;
use wave_models::vit::VitShape;
use wave_models::{Activation, Weights};

/// What a new model has to fit: its input and its classes.
struct Frame {
    transform: Transform,
    label_names: Vec<String>,
    patch: Option<usize>,
    head_width: Option<usize>,
}

/// Initialises a model by `method` and writes it to `out`. Returns what `--json` prints.
pub fn init(method: &str, settings: &Init, out: &Path) -> Result<Value> {
    let model = new_model(method, settings)?;
    let layout = Layout::of(&settings.output, &model.network)?;
    let mut table = crate::recipe::to_table(settings)?;
    table.insert("method".into(), toml::Value::String(method.into()));
    let Opened::Run(run) = RunDir::open(out, &table, false)? else {
        anyhow::bail!("a run that does not resume is not complete");
    };
    model.write(
        out,
        layout,
        None,
        &format!("Initialised with wave, method {method}; not trained."),
    )?;
    let result = json!({ "out": out, "parameters": model.parameters(), "top1": null });
    run.complete(&result)?;
    Ok(result)
}

/// A model as the settings describe it.
pub fn new_model(method: &str, settings: &Init) -> Result<Model> {
    let frame = frame(settings)?;
    let seed = settings.seed.unwrap_or(0);
    let positive = |name: &str, value: Option<usize>| {
        value.ok_or_else(|| request(format!("no {name}; give --{name} N")))
    };
    let depth = positive("depth", settings.depth)?;
    let width = positive("width", settings.width)?;
    let classes = frame.label_names.len();
    let (image_size, channels) = (frame.transform.image_size, frame.transform.channels);
    let patch = settings.patch.or(frame.patch);
    let (network, weights) = match settings.arch.as_deref().unwrap_or("vit") {
        "vit" => {
            let head_width = frame.head_width.unwrap_or(64);
            let heads = settings.heads.unwrap_or((width / head_width).max(1));
            let shape = VitShape {
                image_size,
                channels,
                patch: patch.unwrap_or(16),
                depth,
                width,
                heads,
                mlp_ratio: settings.mlp_ratio.unwrap_or(4.0),
                classes,
                class_token: settings.class_token.unwrap_or(false),
                ..VitShape::default()
            };
            shape.validate()?;
            let weights = fill(&shape, &options(method, settings)?, seed)?;
            (Network::Vit(shape), weights)
        }
        "convmixer" => {
            if method != "default" {
                return Err(request(format!(
                    "method {method} is for transformers; a convmixer takes `default`"
                )));
            }
            let kernel = settings.kernel.unwrap_or(9);
            let patch = patch.unwrap_or(7);
            let shape = ConvMixerShape {
                image_size,
                channels,
                patch,
                depth,
                width,
                kernel,
                classes,
                activation: Activation::Gelu,
            };
            shape.validate()?;
            let weights = shape.initialise(seed)?;
            (Network::ConvMixer(shape), weights)
        }
        other => {
            return Err(request(format!(
                "arch = {other}; expected vit or convmixer"
            )));
        }
    };
    let provenance = json!({
        "stage": "init",
        "version": env!("CARGO_PKG_VERSION"),
        "method": method,
        "seed": seed,
    });
    let Frame {
        transform,
        label_names,
        ..
    } = frame;
    Ok(Model {
        network,
        weights,
        transform,
        label_names,
        provenance,
    })
}

/// The method's options, from the settings.
pub fn options(method: &str, settings: &Init) -> Result<Options> {
    let method: Method = method.parse()?;
    let mut options = Options::new(method);
    let scale = settings.position_scale.unwrap_or(1.0);
    match settings.positions.as_deref() {
        None => {
            if let (Positions::Sinusoidal { .. }, Some(scale)) =
                (&options.positions, settings.position_scale)
            {
                options.positions = Positions::Sinusoidal { scale };
            }
        }
        Some("learned") => options.positions = Positions::Learned,
        Some("sinusoidal") => options.positions = Positions::Sinusoidal { scale },
        Some(other) => {
            return Err(request(format!(
                "positions = {other}; expected learned or sinusoidal"
            )));
        }
    }
    if let Some(text) = &settings.mlp_mean {
        let wrong = || {
            request(format!(
                "mlp_mean = {text}; expected none, eq1=SIGMA or eq2=B"
            ))
        };
        options.mlp_mean = match text.split_once('=') {
            None if text == "none" => MlpMean::None,
            Some(("eq1", v)) => MlpMean::Eq1 {
                sigma: v.parse().map_err(|_| wrong())?,
            },
            Some(("eq2", v)) => MlpMean::Eq2 {
                b: v.parse().map_err(|_| wrong())?,
            },
            _ => return Err(wrong()),
        };
    }
    Ok(options)
}

/// Fresh weights, timm-named, for a transformer.
pub fn fill(shape: &VitShape, options: &Options, seed: u64) -> Result<Weights> {
    let dims = VitDims {
        depth: shape.depth,
        width: shape.width,
        heads: shape.heads,
        hidden: shape.hidden(),
        patch_dim: (shape.channels, shape.patch),
        grid: shape.grid(),
        classes: shape.classes,
        class_token: shape.class_token,
    };
    wave_init::initialise(&dims, options, seed).context("initialisation")
}

/// Input and classes: from another directory, from data, or from the settings.
fn frame(settings: &Init) -> Result<Frame> {
    let mut frame = if let Some(from) = &settings.from {
        let dir = Path::new(from);
        match wave_hub::directory_kind(dir)? {
            wave_hub::Kind::Templates => {
                let templates = elastic::read(dir)?;
                let shape = &templates.learngene.auxiliary;
                Frame {
                    label_names: names(templates.config.label_names.clone(), shape.classes),
                    transform: templates.transform,
                    patch: Some(shape.patch),
                    head_width: Some(shape.head_width()),
                }
            }
            wave_hub::Kind::Model | wave_hub::Kind::Transformers => {
                let model = Model::read(dir)?;
                let (patch, head_width) = match &model.network {
                    Network::Vit(shape) => (shape.patch, Some(shape.head_width())),
                    Network::ConvMixer(shape) => (shape.patch, None),
                    other => {
                        return Err(request(format!(
                            "--from {from} is {}; give a transformer or a ConvMixer",
                            other.family()
                        )));
                    }
                };
                let Model {
                    transform,
                    label_names,
                    ..
                } = model;
                Frame {
                    transform,
                    label_names,
                    patch: Some(patch),
                    head_width,
                }
            }
        }
    } else if settings.data.is_some() {
        let training = Training {
            data: settings.data.clone(),
            ..Training::default()
        };
        let dataset = data::open(&training)?;
        let native = data::native(&dataset);
        let image_size = settings
            .image_size
            .or(native.map(|(_, h, _)| h))
            .unwrap_or(224);
        let input = data::Input::Size {
            image_size,
            channels: match settings.channels {
                Some(channels) => data::Channels::Exactly(channels),
                None => data::Channels::Otherwise(3),
            },
        };
        let training = Training {
            batch: Some(1),
            ..training
        };
        let data = data::Data::open(&training, input)?;
        Frame {
            transform: data.transform,
            label_names: data.class_names,
            patch: None,
            head_width: None,
        }
    } else {
        let channels = settings.channels.unwrap_or(3);
        let (mean, std) = match channels {
            3 => (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]),
            _ => (vec![0.5; channels], vec![0.5; channels]),
        };
        let image_size = settings.image_size.unwrap_or(224);
        let transform = Transform {
            image_size,
            channels,
            mean,
            std,
            crop_pct: 1.0,
        };
        let label_names = names(Vec::new(), settings.classes.unwrap_or(1000));
        Frame {
            transform,
            label_names,
            patch: None,
            head_width: None,
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

fn names(names: Vec<String>, classes: usize) -> Vec<String> {
    if names.len() == classes {
        names
    } else {
        (0..classes).map(|i| i.to_string()).collect()
    }
}
