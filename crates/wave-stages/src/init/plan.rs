//! The meaning of the settings of `wave init` for networks of images.

use super::methods::{self, MethodOptions};
use anyhow::Result;
use wave_init::filters::FilterChoices;
use wave_models::Activation;
use wave_run::data::DataPlan;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::recipe::means_nothing;
use wave_run::settings::{Images, Init, InitValues, MixerActivation};

/// A network to initialise. What is not said comes from the model of `--from`, or from defaults.
pub(super) struct InitPlan {
    pub(super) method: String,
    pub(super) arch: Architecture,
    pub(super) depth: usize,
    pub(super) activation: Activation,
    /// Blocks of each stage of a ConvNeXt that is not isotropic.
    pub(super) stages: Option<[usize; 4]>,
    pub(super) width: usize,
    pub(super) heads: Option<usize>,
    pub(super) patch: Option<usize>,
    pub(super) mlp_ratio: Option<f64>,
    pub(super) class_token: Option<bool>,
    pub(super) kernel: Option<usize>,
    pub(super) dilation: Option<String>,
    /// A model or template directory.
    pub(super) from: Option<String>,
    pub(super) data: Option<String>,
    pub(super) image_size: Option<usize>,
    pub(super) channels: Option<usize>,
    pub(super) classes: Option<usize>,
    /// Images to look at, for the method that does.
    pub(super) images: DataPlan,
    pub(super) options: MethodOptions,
    pub(super) filters: FilterChoices,
    pub(super) seed: u64,
}

/// A family of networks that classify images.
#[derive(Clone, Copy)]
pub(super) enum Architecture {
    Vit,
    ConvMixer,
    ConvNext,
}

impl Architecture {
    /// Every one, by name.
    pub(super) const NAMED: [(&'static str, Architecture); 3] = [
        ("vit", Architecture::Vit),
        ("convmixer", Architecture::ConvMixer),
        ("convnext", Architecture::ConvNext),
    ];

    fn parse(name: &str) -> Result<Architecture> {
        let named = Self::NAMED.iter().find(|(own, _)| *own == name);
        named.map(|(_, arch)| *arch).ok_or_else(|| {
            let known = Self::NAMED.map(|(name, _)| name);
            request(format!(
                "arch = {name}; expected one of {}{}",
                known.join(", "),
                did_you_mean(name, known)
            ))
        })
    }
}

impl InitPlan {
    /// The plan of these settings.
    ///
    /// # Errors
    /// If depth or width is missing, or a value is none of those that its setting takes.
    pub(super) fn new(method: &str, settings: &Init) -> Result<InitPlan> {
        let stages = stages(settings)?;
        let all = stages.map(|stages| stages.iter().sum());
        let (depth, width) = size(settings.depth.or(all), settings.width)?;
        let images = Images {
            data: settings.data.clone(),
            train_limit: settings.train_limit,
            ..Images::default()
        };
        let own = InitValues::from(settings.clone());
        Ok(InitPlan {
            images: DataPlan::of_images(&images, settings.seed)?,
            options: MethodOptions::new(method, settings)?,
            filters: methods::filters(&own)?,
            method: method.to_owned(),
            arch: Architecture::parse(&own.arch)?,
            depth,
            activation: match own.activation {
                Some(MixerActivation::Relu) => Activation::Relu,
                Some(MixerActivation::Gelu) | None => Activation::Gelu,
            },
            stages,
            width,
            heads: own.heads,
            patch: own.patch,
            mlp_ratio: own.mlp_ratio,
            class_token: own.class_token,
            kernel: own.kernel,
            dilation: own.dilation,
            from: own.from,
            data: own.data,
            image_size: own.image_size,
            channels: own.channels,
            classes: own.classes,
            seed: own.seed,
        })
    }
}

/// Blocks of each of four stages.
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

/// Depth and width, which every method needs.
fn size(depth: Option<usize>, width: Option<usize>) -> Result<(usize, usize)> {
    let given = |name: &str, value: Option<usize>| {
        value.ok_or_else(|| request(format!("no {name}; give --{name} N")))
    };
    Ok((given("depth", depth)?, given("width", width)?))
}
