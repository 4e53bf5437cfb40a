//! Convolutional networks by the methods for depthwise filters.

use super::Frame;
use super::plan::InitPlan;
use crate::model::Network;
use anyhow::Result;
use wave_init::{Cost, filters};
use wave_models::convmixer::ConvMixerShape;
use wave_models::convnext::ConvNextShape;
use wave_models::{Dilations, Weights};
use wave_run::error::request;
use wave_run::forecast;

/// A ConvMixer by one of the methods.
pub(super) fn convmixer(plan: &InitPlan, frame: &Frame) -> Result<(Network, Weights, Cost)> {
    let dilation = plan.given.dilation.as_deref().unwrap_or("1");
    let shape = ConvMixerShape {
        image_size: frame.transform.image_size,
        channels: frame.transform.channels,
        patch: frame.patch(plan, 7),
        depth: plan.depth,
        width: plan.width,
        kernel: kernel(plan, frame)?.unwrap_or(9),
        classes: frame.label_names.len(),
        activation: plan.activation,
        dilations: Dilations::parse(dilation, plan.depth)?,
    };
    shape.validate()?;
    start(plan, frame, Network::ConvMixer(shape))
}

/// A ConvNeXt by one of the methods.
pub(super) fn convnext(plan: &InitPlan, frame: &Frame) -> Result<(Network, Weights, Cost)> {
    if let Some(dilation) = &plan.given.dilation {
        return Err(request(format!(
            "dilation = {dilation}: a ConvNeXt has none; leave it out, or give --arch convmixer"
        )));
    }
    let ratio = match donor(plan, frame)? {
        Some((Network::ConvNext(shape), _)) => Some(shape.mlp_ratio),
        _ => None,
    };
    let shape = ConvNextShape {
        image_size: frame.transform.image_size,
        channels: frame.transform.channels,
        patch: frame.patch(plan, if plan.stages.is_some() { 4 } else { 7 }),
        depth: plan.depth,
        stages: plan.stages,
        width: plan.width,
        kernel: kernel(plan, frame)?.unwrap_or(7),
        mlp_ratio: plan.given.mlp_ratio.or(ratio).unwrap_or(4.0),
        classes: frame.label_names.len(),
    };
    shape.validate()?;
    start(plan, frame, Network::ConvNext(shape))
}

/// The network of `--from`, if the method takes filters from it.
fn donor<'a>(plan: &InitPlan, frame: &'a Frame) -> Result<Option<(&'a Network, &'a Weights)>> {
    let needed = filters::find(&plan.method)?.donor;
    Ok(match &frame.donor {
        Some((network @ (Network::ConvMixer(_) | Network::ConvNext(_)), weights)) if needed => {
            Some((network, weights))
        }
        _ => None,
    })
}

/// Side of a kernel: as given, or the donor's.
fn kernel(plan: &InitPlan, frame: &Frame) -> Result<Option<usize>> {
    Ok(plan.given.kernel.or(match donor(plan, frame)? {
        Some((Network::ConvMixer(shape), _)) => Some(shape.kernel),
        Some((Network::ConvNext(shape), _)) => Some(shape.kernel),
        _ => None,
    }))
}

fn start(plan: &InitPlan, frame: &Frame, network: Network) -> Result<(Network, Weights, Cost)> {
    forecast::check_network(&network)?;
    let donor = donor(plan, frame)?;
    let (method, seed) = (&plan.method, plan.given.seed);
    let (weights, cost) = filters::start(method, &network, donor, &plan.filters, seed)?;
    Ok((network, weights, cost))
}
