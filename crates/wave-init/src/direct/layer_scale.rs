//! LayerScale as an initialisation: small residual branches instead of mimetic V and projection.
//!
//! ```text
//! branch    x' = x + gamma SA(LN x)             (Touvron et al. 2021)
//! skip      x' = gamma x + SA(LN x)             (the thesis' section 3.2.5)
//! ```
//!
//! Q and K start mimetically, V and the projection at random: this is the thesis' baseline for mimetic V and
//! projection. It tries ten values of gamma between 0 and 1, and scales only the attention.
//!
//! The networks here have no parameters for gamma, so it is folded into the last matrix of the branch (our
//! interpretation). The function is the same at initialisation, but training differs, as gamma is not a
//! separate variable. The branch form is exact: the projection is multiplied by gamma. For the skip form,
//! layer norms are invariant to the scale of their input (up to epsilon), so x may be divided by the product
//! of all gammas so far. Skips are then unscaled, and each branch is divided by the product of the gammas up
//! to and including its own. The logits are the same.

use crate::choices::{Choices, DirectMethod};
use crate::error::Result;
use crate::fill::fill;
use crate::start::{Request, Start, StartMethod};
use wave_models::refuse;

/// The largest factor on a branch: beyond it, `f32` rounds the skip away.
const LARGEST: f64 = 1e6;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "layerscale",
    description: "mimetic queries and keys, and residual branches scaled by gamma (Touvron et al. \
                  2021; thesis, section 3.2.5)",
    donor: false,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start> {
    let choices = Choices {
        vp: Some((0.0, 0.0)),
        ..request.choices.clone()
    };
    let plain = Request {
        choices: &choices,
        ..*request
    };
    let mut weights = fill(&plain, DirectMethod::Mimetic)?;
    let factors = factors(&choices, request.shape.depth)?;
    for (layer, (attention, mlp)) in factors.into_iter().enumerate() {
        for (matrix, factor) in [("attn.proj", attention), ("mlp.fc2", mlp)] {
            for kind in ["weight", "bias"] {
                let name = format!("blocks.{layer}.{matrix}.{kind}");
                if let Some(tensor) = weights.get_mut(&name) {
                    *tensor = (&*tensor * factor)?;
                }
            }
        }
    }
    Ok(Start::untrained(weights))
}

/// The factors on the attention branch and the MLP branch of each layer.
fn factors(choices: &Choices, depth: usize) -> Result<Vec<(f64, f64)>> {
    let gamma = choices.gamma.unwrap_or(0.1);
    if !(0.0..=1.0).contains(&gamma) {
        refuse!("gamma is {gamma}: use a number from 0 to 1");
    }
    if !choices.scaled_skip {
        return Ok(vec![(gamma, 1.0); depth]);
    }
    let smallest = LARGEST.powf(-1.0 / depth as f64);
    if gamma < smallest {
        refuse!(
            "gamma is {gamma}: use a number from {:.3} to 1, the range for {depth} scaled skips",
            (smallest * 1e3).ceil() / 1e3
        );
    }
    let mut product = 1.0;
    let next = |_| {
        product *= gamma;
        (1.0 / product, 1.0 / product)
    };
    Ok((0..depth).map(next).collect())
}

#[cfg(test)]
#[path = "layer_scale_tests.rs"]
mod tests;
