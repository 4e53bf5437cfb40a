//! Convolutional networks by the methods for depthwise filters.

use super::{Frame, mlp_mean, size};
use crate::model::Network;
use anyhow::Result;
use wave_init::{Cost, MlpMean, filters};
use wave_models::convmixer::ConvMixerShape;
use wave_models::convnext::ConvNextShape;
use wave_models::{Activation, Dilations, Weights};
use wave_run::error::request;
use wave_run::forecast;
use wave_run::settings::Init;

/// A `convmixer` or `convnext` by one of the methods.
pub(super) fn start(
    arch: &str,
    method: &str,
    settings: &Init,
    frame: &Frame,
    seed: u64,
) -> Result<(Network, Weights, Cost)> {
    let needs_donor = filters::find(method)?.donor;
    let donor = match &frame.donor {
        Some((network @ (Network::ConvMixer(_) | Network::ConvNext(_)), weights))
            if needs_donor =>
        {
            Some((network, weights))
        }
        _ => None,
    };
    // A donor's kernel, unless the settings give one.
    let (kernel, ratio) = match donor {
        Some((Network::ConvMixer(shape), _)) => (Some(shape.kernel), None),
        Some((Network::ConvNext(shape), _)) => (Some(shape.kernel), Some(shape.mlp_ratio)),
        _ => (None, None),
    };
    let (depth, width) = size(settings.depth, settings.width)?;
    let (image_size, channels) = (frame.transform.image_size, frame.transform.channels);
    let patch = frame.patch(settings, 7);
    let classes = frame.label_names.len();
    let network = match arch {
        "convnext" => {
            if let Some(dilation) = &settings.dilation {
                return Err(request(format!(
                    "dilation = {dilation}: a ConvNeXt has none; leave it out, or give --arch \
                     convmixer"
                )));
            }
            let shape = ConvNextShape {
                image_size,
                channels,
                patch,
                depth,
                width,
                kernel: settings.kernel.or(kernel).unwrap_or(7),
                mlp_ratio: settings.mlp_ratio.or(ratio).unwrap_or(4.0),
                classes,
            };
            shape.validate()?;
            Network::ConvNext(shape)
        }
        _ => {
            let dilation = settings.dilation.as_deref().unwrap_or("1");
            let shape = ConvMixerShape {
                image_size,
                channels,
                patch,
                depth,
                width,
                kernel: settings.kernel.or(kernel).unwrap_or(9),
                classes,
                activation: Activation::Gelu,
                dilations: Dilations::parse(dilation, depth)?,
            };
            shape.validate()?;
            Network::ConvMixer(shape)
        }
    };
    forecast::check_network(&network)?;
    let (weights, cost) = filters::start(method, &network, donor, &choices(settings)?, seed)?;
    Ok((network, weights, cost))
}

/// Options of the methods for filters, from the settings.
fn choices(settings: &Init) -> Result<filters::FilterChoices> {
    let shift = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    let mut choices = filters::FilterChoices {
        factored: settings.factored.unwrap_or(false),
        mlp_mean: shift.unwrap_or(MlpMean::None),
        ..filters::FilterChoices::default()
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
        choices.schedule = filters::Schedule {
            start,
            velocity,
            acceleration,
        };
    }
    Ok(choices)
}
