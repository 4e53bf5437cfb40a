//! The settings of `wave init` for image networks, interpreted.

use super::methods::{self, MethodOptions};
use crate::budget::needed;
use anyhow::Result;
use wave_init::filters::FilterChoices;
use wave_models::Activation;
use wave_run::data::DataPlan;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::recipe::means_nothing;
use wave_run::settings::{Images, Init, InitValues, MixerActivation};

/// A network to initialise. Settings that are not given come from the model of `--from`, or from defaults.
pub(super) struct InitPlan {
    pub(super) method: String,
    pub(super) arch: Architecture,
    pub(super) depth: usize,
    pub(super) width: usize,
    /// Number of blocks in each stage of a ConvNeXt that is not isotropic.
    pub(super) stages: Option<[usize; 4]>,
    pub(super) activation: Activation,
    /// Images for a method that uses some.
    pub(super) images: DataPlan,
    pub(super) options: MethodOptions,
    pub(super) filters: FilterChoices,
    /// All other settings.
    pub(super) given: InitValues,
}

#[derive(Clone, Copy)]
pub(super) enum Architecture {
    Vit,
    ConvMixer,
    ConvNext,
}

impl Architecture {
    fn parse(name: &str) -> Result<Architecture> {
        let known = ["vit", "convmixer", "convnext"];
        match name {
            "vit" => Ok(Architecture::Vit),
            "convmixer" => Ok(Architecture::ConvMixer),
            "convnext" => Ok(Architecture::ConvNext),
            _ => Err(request(format!(
                "arch = {name}; expected one of {}{}",
                known.join(", "),
                did_you_mean(name, known)
            ))),
        }
    }
}

impl InitPlan {
    pub(super) fn new(method: &str, settings: &Init) -> Result<InitPlan> {
        let stages = stages(settings)?;
        let all = stages.map(|stages| stages.iter().sum());
        let (depth, width) = needed(settings.depth.or(all), settings.width)?;
        let images = Images {
            data: settings.data.clone(),
            train_limit: settings.train_limit,
            ..Images::default()
        };
        let given = InitValues::from(settings.clone());
        Ok(InitPlan {
            images: DataPlan::of_images(&images, settings.seed)?,
            options: MethodOptions::new(method, settings)?,
            filters: methods::filters(&given)?,
            method: method.to_owned(),
            arch: Architecture::parse(&given.arch)?,
            depth,
            activation: match given.activation {
                Some(MixerActivation::Relu) => Activation::Relu,
                Some(MixerActivation::Gelu) | None => Activation::Gelu,
            },
            stages,
            width,
            given,
        })
    }
}

fn stages(settings: &Init) -> Result<Option<[usize; 4]>> {
    let Some(given) = &settings.stages else {
        if settings.sawtooth.is_some() {
            return Err(means_nothing("sawtooth", "a ConvNeXt without --stages"));
        }
        return Ok(None);
    };
    let four = <[usize; 4]>::try_from(given.as_slice());
    four.map(Some).map_err(|_| {
        request(format!(
            "stages = {given:?}; give four numbers, such as 2,2,6,2"
        ))
    })
}
