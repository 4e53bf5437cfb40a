//! Transformers with positional attention: `wave init --arch gpsa` and others.

use super::plan::InitPlan;
use super::{Frame, method_line};
use crate::model::Network;
use anyhow::Result;
use wave_init::Cost;
use wave_init::positional::{METHODS, start};
use wave_models::Weights;
use wave_models::positional::{PositionalAttention, PositionalShape};
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::forecast;

/// The names of these architectures, for a sentence.
pub(super) fn architectures() -> String {
    PositionalAttention::ALL.map(|(name, _)| name).join(", ")
}

/// Text on their methods in `wave init --help`.
pub(super) fn help() -> String {
    let mut text = format!("For the transformers {}:\n", architectures());
    for method in METHODS {
        text += &method_line(method.name, method.description);
    }
    text + "\n"
}

/// A transformer with positional attention by one of the methods.
pub(super) fn network(
    plan: &InitPlan,
    attention: PositionalAttention,
    frame: &Frame,
    context: &Context,
) -> Result<(Network, Weights, Cost)> {
    let (depth, width) = (plan.depth, plan.width);
    let head_width = frame.head_width.unwrap_or(64);
    let shape = PositionalShape {
        vit: VitShape {
            image_size: frame.transform.image_size,
            channels: frame.transform.channels,
            patch: frame.patch(plan, 16),
            depth,
            width,
            heads: plan.heads.unwrap_or((width / head_width).max(1)),
            mlp_ratio: plan.mlp_ratio.unwrap_or(4.0),
            classes: frame.label_names.len(),
            class_token: plan.class_token.unwrap_or(false),
            ..VitShape::default()
        },
        attention,
        kernel: match attention {
            PositionalAttention::Gpsa => 0,
            _ => plan.kernel.unwrap_or(3),
        },
    };
    let choices = plan.options.choices(shape.vit.image_size, context)?;
    shape.vit.validate()?;
    let network = Network::Positional(shape.clone());
    forecast::check_network(&network)?;
    let weights = start(&plan.method, &shape, &choices, plan.seed)?;
    Ok((network, weights, Cost::default()))
}
