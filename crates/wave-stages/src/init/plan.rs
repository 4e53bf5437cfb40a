//! The settings of `wave init` for image networks, interpreted; then input and classes of the new model.

use super::methods;
use crate::budget::needed;
use anyhow::Result;
use std::path::Path;
use wave_artefacts::model::{Model, Network};
use wave_data::Transform;
use wave_init::{Choices, filters, find};
use wave_models::check::sizes;
use wave_models::{Weights, refuse};
use wave_run::context::Context;
use wave_run::data::{self, DataPlan};
use wave_run::recipe::{means_nothing, to_table};
use wave_run::settings::{Architecture, Images, Init, InitValues};

/// A network to initialise. Settings that are not given come from the model of `--from`, or from defaults.
pub(super) struct InitPlan {
    pub(super) method: String,
    pub(super) depth: usize,
    pub(super) width: usize,
    /// Number of blocks in each stage of a ConvNeXt that is not isotropic.
    pub(super) stages: Option<[usize; 4]>,
    /// True if the method uses images.
    pub(super) takes_images: bool,
    /// Images for such a method.
    pub(super) images: DataPlan,
    pub(super) choices: Choices,
    /// All other settings.
    pub(super) given: InitValues,
}

impl InitPlan {
    pub(super) fn new(method: &str, settings: &Init) -> Result<InitPlan> {
        methods::check(method, &to_table(settings)?)?;
        let choices = methods::choices(method, settings)?;
        methods::check_together(method, settings, &choices)?;
        let stages = stages(settings)?;
        let all = stages.map(|stages| stages.iter().sum());
        let (depth, width) = needed(settings.depth.or(all), settings.width)?;
        let images = Images {
            data: settings.data.clone(),
            train_limit: settings.train_limit,
            ..Images::default()
        };
        Ok(InitPlan {
            takes_images: find(method).is_ok_and(|method| method.images),
            images: DataPlan::of_images(&images, settings.seed)?,
            choices,
            method: method.to_owned(),
            depth,
            stages,
            width,
            given: settings.clone().into(),
        })
    }
}

fn stages(settings: &Init) -> Result<Option<[usize; 4]>> {
    match settings.stages.as_deref() {
        None if settings.sawtooth.is_none() => Ok(None),
        None => Err(means_nothing("sawtooth", "a ConvNeXt without --stages")),
        Some(&[a, b, c, d]) => Ok(Some([a, b, c, d])),
        Some(other) => refuse!("stages = {other:?}; give four numbers, such as 2,2,6,2"),
    }
}

/// Input and classes of a new model.
pub(super) struct Frame {
    pub(super) transform: Transform,
    pub(super) label_names: Vec<String>,
    pub(super) patch: Option<usize>,
    pub(super) head_width: Option<usize>,
    /// The model of `--from`, if the method takes values from it.
    pub(super) donor: Option<(Network, Weights)>,
}

impl Frame {
    fn new(transform: Transform, label_names: Vec<String>) -> Frame {
        Frame {
            transform,
            label_names,
            patch: None,
            head_width: None,
            donor: None,
        }
    }

    /// Side of a patch: from the settings or the model of `--from`, else `usual` or another one that
    /// divides the image size.
    pub(super) fn patch(&self, plan: &InitPlan, usual: usize) -> usize {
        let given = plan.given.patch.or(self.patch);
        given.unwrap_or_else(|| wave_models::default_patch(self.transform.image_size, usual))
    }
}

/// Input and classes: from another directory, from data, or from the settings.
pub(super) fn frame(plan: &InitPlan, context: &Context) -> Result<Frame> {
    // Names of classes, values of channels and dilations of layers are listed before a shape is checked.
    sizes(&[
        ("depth", plan.depth),
        ("channels", plan.given.channels.unwrap_or(1)),
        ("classes", plan.given.classes.unwrap_or(1)),
    ])?;
    let mut frame = match (&plan.given.from, &plan.given.data) {
        (Some(_), _) if plan.given.channels.is_some() => {
            refuse!("--channels does not apply beside --from, whose model has its own; remove it")
        }
        (Some(_), Some(_)) if !plan.takes_images => {
            refuse!("--data does not apply beside --from; remove one")
        }
        (Some(from), _) => frame_of(from, context)?,
        (None, Some(_)) => frame_of_data(plan, context)?,
        (None, None) => {
            let channels = plan.given.channels.unwrap_or(3);
            let (mean, std) = match channels {
                3 => (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]),
                _ => (vec![0.5; channels], vec![0.5; channels]),
            };
            let transform = Transform::new(data::DEFAULT_SIDE, mean, std);
            Frame::new(transform, numbers(plan.given.classes.unwrap_or(1000)))
        }
    };
    if let Some(classes) = plan.given.classes.filter(|n| *n != frame.label_names.len()) {
        frame.label_names = numbers(classes);
    }
    frame.transform.image_size = plan.given.image_size.unwrap_or(frame.transform.image_size);
    frame.donor = donor(plan, frame.donor)?;
    Ok(frame)
}

/// The model of `--from` if the method takes values from it. Only methods that do also take its other sizes.
fn donor(plan: &InitPlan, from: Option<(Network, Weights)>) -> Result<Option<(Network, Weights)>> {
    let name = &plan.method;
    if plan.given.arch != Architecture::Vit {
        return match &from {
            _ if !filters::find(name)?.donor => Ok(None),
            None | Some((Network::ConvMixer(_) | Network::ConvNext(_), _)) => Ok(from),
            Some((other, _)) => refuse!(
                "method {name} takes filters, but the model of --from is {}; give a ConvMixer or a \
                 ConvNeXt",
                other.family()
            ),
        };
    }
    let method = match find(name) {
        Err(_) if filters::find(name).is_ok() => {
            refuse!("method {name} initialises filters; give --arch convmixer or --arch convnext")
        }
        found => found?,
    };
    match &from {
        _ if !method.donor => Ok(None),
        Some((Network::Vit(_), _)) => Ok(from),
        _ => {
            let found = match &plan.given.from {
                Some(from) => format!("--from {from} is not one"),
                None => "--from is missing".into(),
            };
            refuse!(
                "method {name} takes weights from a trained transformer, but {found}; give --from DIR, \
                 a model directory (`wave expand` makes one from templates)"
            )
        }
    }
}

fn frame_of_data(plan: &InitPlan, context: &Context) -> Result<Frame> {
    let given = &plan.given;
    let dataset = data::open(given.data.as_deref(), context)?;
    let side = given.image_size.or_else(|| data::image_side(&dataset));
    let input = data::Input::Size {
        image_size: side.unwrap_or(data::DEFAULT_SIDE),
        channels: given.channels,
    };
    let images = Images {
        data: given.data.clone(),
        ..Images::default()
    };
    let images = DataPlan::of_images(&images, None)?;
    let data = data::Data::open(&images, input, context)?;
    Ok(Frame::new(data.transform, data.class_names))
}

/// Input and classes of a model.
fn frame_of(from: &str, context: &Context) -> Result<Frame> {
    let model = Model::read(Path::new(from), context)?;
    let (patch, head_width) = match &model.network {
        Network::Vit(shape) => (shape.patch, Some(shape.head_width())),
        Network::ConvMixer(shape) => (shape.patch, None),
        Network::ConvNext(shape) => (shape.patch, None),
        other => refuse!(
            "--from {from} is {}; give a plain transformer, a ConvMixer or a ConvNeXt",
            other.family()
        ),
    };
    Ok(Frame {
        patch: Some(patch),
        head_width,
        donor: Some((model.network, model.weights)),
        ..Frame::new(model.transform, model.label_names)
    })
}

/// Numbers as names for classes without names.
fn numbers(classes: usize) -> Vec<String> {
    (0..classes).map(|i| i.to_string()).collect()
}
