//! Convolutional networks initialised by the methods for depthwise filters.

use super::Frame;
use super::plan::{Architecture, InitPlan};
use anyhow::Result;
use wave_artefacts::model::Network;
use wave_init::{Cost, filters};
use wave_models::convmixer::ConvMixerShape;
use wave_models::convnext::ConvNextShape;
use wave_models::{Dilations, Weights};
use wave_run::error::request;
use wave_run::forecast;

/// A ConvMixer or a ConvNeXt by one of the methods.
pub(super) fn convolution(plan: &InitPlan, frame: &Frame) -> Result<(Network, Weights, Cost)> {
    if let (Architecture::ConvNext, Some(dilation)) = (plan.arch, &plan.given.dilation) {
        return Err(request(format!(
            "dilation = {dilation}: a ConvNeXt has no dilation; remove it, or give --arch \
             convmixer"
        )));
    }
    // The network of `--from`, if the method copies filters from it.
    let needed = filters::find(&plan.method)?.donor;
    let donor = frame.donor.as_ref().filter(|_| needed);
    let (kernel, ratio) = match donor {
        Some((Network::ConvMixer(shape), _)) => (Some(shape.kernel), None),
        Some((Network::ConvNext(shape), _)) => (Some(shape.kernel), Some(shape.mlp_ratio)),
        _ => (None, None),
    };
    let donor = donor.filter(|_| kernel.is_some());
    let kernel = plan.given.kernel.or(kernel);
    let (image_size, channels) = (frame.transform.image_size, frame.transform.channels);
    let classes = frame.label_names.len();
    let network = match plan.arch {
        Architecture::ConvNext => {
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
            Network::ConvNext(shape)
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
                activation: plan.activation,
                dilations: Dilations::parse(dilation, plan.depth)?,
            };
            shape.validate()?;
            Network::ConvMixer(shape)
        }
    };
    forecast::check_network(&network)?;
    let donor = donor.map(|(network, weights)| (network, weights));
    let (method, seed) = (&plan.method, plan.given.seed);
    let (weights, cost) = filters::start(method, &network, donor, &plan.filters, seed)?;
    Ok((network, weights, cost))
}
