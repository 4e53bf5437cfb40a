//! Options of the methods of `wave init`.

use anyhow::Result;
use std::str::FromStr;
use wave_init::filters::{FilterChoices, Schedule};
use wave_init::mimetic::Attention;
use wave_init::{Base, Choices, MlpMean, Positions};
use wave_run::error::request;
use wave_run::settings::{Init, InitValues, PositionKind, Scaled};

/// Options of a method for transformers.
#[derive(Clone, Debug, Default)]
pub struct MethodOptions {
    /// All options except the positions.
    choices: Choices,
    positions: Option<PositionKind>,
}

impl MethodOptions {
    /// The options of `method` in the settings.
    ///
    /// # Errors
    /// If a setting has an unknown value, or mimetic attention is requested where the method cannot use it.
    pub fn new(method: &str, settings: &Init) -> Result<MethodOptions> {
        let mut choices = Choices {
            position_scale: settings.position_scale,
            ..Choices::default()
        };
        choices.mlp_mean = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
        set(&mut choices.attention, &settings.mimetic)?;
        set(&mut choices.zero, &settings.zero)?;
        set(&mut choices.layers, &settings.layers)?;
        if let Some(rest) = &settings.rest {
            choices.rest = rest.parse()?;
            // Mimetic attention takes two of these options.
            match (method, rest.parse::<Base>()) {
                ("mimetic" | "layerscale", base) => choices.base = base?,
                (_, base) => choices.base = base.unwrap_or(choices.base),
            }
        }
        choices.qk = mixture("qk", settings.qk.as_deref())?;
        choices.vp = mixture("vp", settings.vp.as_deref())?;
        for (name, mix) in [("qk", choices.qk), ("vp", choices.vp)] {
            let mixes = mix.is_some_and(|mix| mix != (0.0, 0.0));
            if mixes && choices.attention == Attention::Equal {
                return Err(request(format!(
                    "--{name} mixes products, but --mimetic equal has none to mix; drop it, or \
                     give 0,0"
                )));
            }
        }
        choices.blocks = settings.blocks;
        choices.similarity = settings.similarity.clone().unwrap_or_default();
        choices.gamma = settings.gamma;
        choices.scaled_skip = settings.scaled == Some(Scaled::Skip);
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

pub(super) fn filters(settings: &InitValues) -> Result<FilterChoices> {
    let shift = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    let mut choices = FilterChoices {
        sawtooth: settings.sawtooth.unwrap_or(false),
        factored: settings.factored,
        mlp_mean: shift.unwrap_or(MlpMean::None),
        ..FilterChoices::default()
    };
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

/// Parses a choice, if it is given.
fn set<T: FromStr>(choice: &mut T, given: &Option<String>) -> Result<()>
where
    anyhow::Error: From<T::Err>,
{
    if let Some(given) = given {
        *choice = given.parse()?;
    }
    Ok(())
}

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
