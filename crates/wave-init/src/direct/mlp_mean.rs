//! The mean shift of the MLP's first matrix as an initialisation on its own.
//!
//! The papers add it to PyTorch's default: weights and biases of linear layers uniform in ±1/sqrt(inputs).
//! Here that applies to all four linear layers of a block (our interpretation; the papers mention only the
//! MLP), or to the MLP's two where the rest is mimetic attention (figure 2 of the MLP paper). Their results
//! are for equation 2 (section 3.4.2), without a value for its offset: half the standard deviation of the
//! weights is our choice, from the middle of the useful range. Other shifts can be set by
//! [`Choices::mlp_mean`](crate::Choices::mlp_mean).

use crate::choices::DirectMethod;
use crate::error::Result;
use crate::fill::{Stream, fill, inner};
use crate::mean_shift::{MlpMean, shift_block};
use crate::random::uniform;
use crate::start::{Request, Start, StartMethod};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "mlp-mean",
    description: "PyTorch's default with a mean shift of the MLP's first matrix: equation 1 or 2 \
                  of the thesis, section 3.4 (--mlp-mean; the thesis reports results for 2). With --rest mimetic \
                  the attention is mimetic",
    donor: false,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start> {
    let (d, m, seed) = (request.shape.width, request.shape.hidden(), request.seed);
    let shift = request.choices.mlp_mean.unwrap_or(MlpMean::Eq2 { b: 0.5 });
    let rest = request.choices.rest;
    let mut weights = fill(request, rest)?;
    let layers = [
        ("mlp.fc1", Stream::Fc1, Stream::Fc1Bias, (m, d)),
        ("mlp.fc2", Stream::Fc2, Stream::Fc2Bias, (d, m)),
        ("attn.qkv", Stream::Qkv, Stream::QkvBias, (3 * d, d)),
        ("attn.proj", Stream::Proj, Stream::ProjBias, (d, d)),
    ];
    let default = match rest {
        DirectMethod::Mimetic => &layers[..2],
        _ => &layers[..],
    };
    for layer in 0..request.shape.depth {
        for &(name, weight, bias, (out, inp)) in default {
            let bound = 1.0 / (inp as f64).sqrt();
            let matrix = uniform((out, inp), bound, &mut inner(seed, layer, weight))?;
            let vector = uniform(out, bound, &mut inner(seed, layer, bias))?;
            weights.insert(format!("blocks.{layer}.{name}.weight"), matrix);
            weights.insert(format!("blocks.{layer}.{name}.bias"), vector);
        }
        let rng = &mut inner(seed, layer, Stream::MeanShift);
        shift_block(&mut weights, &format!("blocks.{layer}"), shift, rng)?;
    }
    Ok(Start::untrained(weights))
}

#[cfg(test)]
#[path = "mlp_mean_tests.rs"]
mod tests;
