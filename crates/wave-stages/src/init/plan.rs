//! What the settings of `wave init` mean for networks of images.

use super::architectures;
use anyhow::Result;
use wave_init::choices::LayerScaleForm;
use wave_init::filters::{FilterChoices, Schedule};
use wave_init::mimetic::Attention;
use wave_init::{Base, Choices, MlpMean, Positions};
use wave_models::Activation;
use wave_run::data::DataPlan;
use wave_run::error::request;
use wave_run::hint::did_you_mean;
use wave_run::recipe::means_nothing;
use wave_run::settings::{Images, Init, InitValues, MixerActivation, PositionKind, Scaled};

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
    pub(super) frame: FrameSettings,
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
            let known = architectures();
            request(format!(
                "arch = {name}; expected one of {}{}",
                known.join(", "),
                did_you_mean(name, known.iter().copied())
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
        let own = InitValues::from(settings.clone());
        Ok(InitPlan {
            filters: filters(&own)?,
            seed: own.seed,
            method: method.to_owned(),
            arch: Architecture::parse(&own.arch)?,
            depth,
            activation: match settings.activation {
                Some(MixerActivation::Relu) => Activation::Relu,
                Some(MixerActivation::Gelu) | None => Activation::Gelu,
            },
            stages,
            width,
            heads: settings.heads,
            patch: settings.patch,
            mlp_ratio: settings.mlp_ratio,
            class_token: settings.class_token,
            kernel: settings.kernel,
            dilation: settings.dilation.clone(),
            frame: FrameSettings::from(settings),
            images: DataPlan::of_images(
                &Images {
                    data: settings.data.clone(),
                    train_limit: settings.train_limit,
                    ..Images::default()
                },
                settings.seed,
            )?,
            options: MethodOptions::new(method, settings)?,
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

/// The settings of a [`Frame`](super::Frame).
#[derive(Clone, Debug, Default)]
pub(super) struct FrameSettings {
    /// A model or template directory.
    pub(super) from: Option<String>,
    pub(super) data: Option<String>,
    pub(super) image_size: Option<usize>,
    pub(super) channels: Option<usize>,
    pub(super) classes: Option<usize>,
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

/// Options of a method for transformers.
#[derive(Clone, Debug, Default)]
pub struct MethodOptions {
    /// All but the positions.
    choices: Choices,
    positions: Option<PositionKind>,
}

impl MethodOptions {
    /// The options of `method` in the settings.
    ///
    /// # Errors
    /// If a value is none of those that its setting takes, or mimetic attention is asked for where the method
    /// cannot use it.
    pub fn new(method: &str, settings: &Init) -> Result<MethodOptions> {
        let mut choices = Choices {
            position_scale: settings.position_scale,
            ..Choices::default()
        };
        choices.mlp_mean = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
        if let Some(attention) = &settings.mimetic {
            choices.attention = attention.parse()?;
        }
        if let Some(layout) = &settings.vp_layout {
            choices.vp_layout = layout.parse()?;
        }
        if let Some(rest) = &settings.rest {
            choices.rest = rest.parse()?;
            // Mimetic attention takes two of them.
            match (method, rest.parse::<Base>()) {
                ("mimetic" | "layerscale", base) => choices.base = base?,
                (_, base) => choices.base = base.unwrap_or(choices.base),
            }
        }
        if let Some(scope) = &settings.zero {
            choices.zero = scope.parse()?;
        }
        choices.qk = mixture("qk", settings.qk.as_deref())?;
        choices.vp = mixture("vp", settings.vp.as_deref())?;
        for (name, mix) in [("qk", choices.qk), ("vp", choices.vp)] {
            let mixes = mix.is_some_and(|mix| mix != (0.0, 0.0));
            if mixes && choices.attention == Attention::Equal {
                return Err(request(format!(
                    "--{name} mixes products, and --mimetic equal has none to mix; leave it out, or give 0,0"
                )));
            }
        }
        if let Some(layers) = &settings.layers {
            choices.layers = layers.parse()?;
        }
        choices.blocks = settings.blocks;
        choices.similarity = settings.similarity.clone().unwrap_or_default();
        if let Some(gamma) = settings.gamma {
            choices.layer_scale.gamma = gamma;
        }
        choices.layer_scale.form = match settings.scaled {
            None | Some(Scaled::Branch) => LayerScaleForm::Branch,
            Some(Scaled::Skip) => LayerScaleForm::Skip,
        };
        Ok(MethodOptions {
            choices,
            positions: settings.positions,
        })
    }

    /// The options for images of this size.
    pub fn choices(&self, image_size: usize) -> Choices {
        let mut choices = self.choices.clone();
        let usual = || Positions::usual_scale(image_size);
        let scale = choices.position_scale.unwrap_or_else(usual);
        choices.positions = self.positions.map(|kind| match kind {
            PositionKind::Learned => Positions::Learned,
            PositionKind::Sinusoidal => Positions::Sinusoidal { scale },
        });
        choices
    }
}

/// Options of the methods for depthwise filters.
fn filters(settings: &InitValues) -> Result<FilterChoices> {
    let shift = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    let mut choices = FilterChoices {
        sawtooth: settings.sawtooth.unwrap_or(false),
        factored: settings.factored,
        mlp_mean: shift.unwrap_or(MlpMean::None),
        ..FilterChoices::default()
    };
    if let Some(negative) = &settings.negative {
        choices.negative = negative.parse()?;
    }
    if let Some(variance) = &settings.filter_variance {
        let [start, velocity, acceleration] = variance[..] else {
            return Err(request(format!(
                "filter_variance = {variance:?}; give three numbers: start, velocity, acceleration"
            )));
        };
        choices.schedule = Schedule {
            start,
            velocity,
            acceleration,
        };
    }
    Ok(choices)
}

/// Parses alpha and beta.
fn mixture(name: &str, values: Option<&[f64]>) -> Result<Option<(f64, f64)>> {
    match values {
        None => Ok(None),
        Some(&[alpha, beta]) => Ok(Some((alpha, beta))),
        Some(other) => Err(request(format!(
            "{name} = {other:?}; give two numbers, alpha and beta, such as 0.7,0.7"
        ))),
    }
}

/// Parses `none`, `eq1=SIGMA`, `eq2=B`, `bias=B` or `half`.
fn mlp_mean(text: &str) -> Result<MlpMean> {
    let wrong = || {
        request(format!(
            "mlp_mean = {text}; expected none, eq1=SIGMA, eq2=B, bias=B or half"
        ))
    };
    let number = |v: &str| v.parse::<f64>().map_err(|_| wrong());
    match text.split_once('=') {
        None if text == "none" => Ok(MlpMean::None),
        None if text == "half" => Ok(MlpMean::Half),
        Some(("bias", v)) => Ok(MlpMean::Bias { b: number(v)? }),
        Some(("eq1", v)) => Ok(MlpMean::Eq1 { sigma: number(v)? }),
        Some(("eq2", v)) => Ok(MlpMean::Eq2 { b: number(v)? }),
        _ => Err(wrong()),
    }
}
