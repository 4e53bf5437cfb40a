//! Closed-form initialisation of all weights.

use candle_core::{DType, Device, Tensor};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use wave_models::fold::Affine;
use wave_models::vit::VitShape;
use wave_models::{Weights, refuse};

use crate::choices::{Choices, DirectMethod, Positions};
use crate::error::{Result, finite};
use crate::mean_shift::shift_block;
use crate::mimetic::{query_key, value_projection};
use crate::random::{generator, normal, of_layer, truncated_normal, uniform};
use crate::sinusoidal::sinusoidal_positions;
use crate::start::Request;

/// timm's standard deviation for linear layers and position embeddings.
pub(crate) const TIMM_STD: f64 = 0.02;
/// timm's standard deviation for the class token.
const CLASS_TOKEN_STD: f64 = 1e-6;
/// Maximum number of parameters in a network: 32 GiB of `f32`.
const MAX_PARAMETERS: u128 = 1 << 33;

/// Fills every weight of a vision transformer.
///
/// Names and shapes are those of [`VitShape::parameters`]. With c channels and patches of p x p pixels:
///
/// | | block matrices | patch embedding |
/// |---|---|---|
/// | `He` | normal, sd sqrt(2 / inputs) | normal, sd sqrt(2 / (c p²)), bias 0 |
/// | `Timm` | normal, sd 0.02, truncated at ±2 | weight and bias uniform, ±1/sqrt(c p²) |
/// | `Xavier` | uniform, ±sqrt(6 / (inputs + outputs)) | as `Timm` |
/// | `Mimetic` | attention: [`mimetic`](crate::mimetic); MLP: as `Xavier` if that is [`rest`](crate::Choices::rest), otherwise as `Timm` | as `Timm` |
///
/// `qkv` counts as one matrix with 3d outputs, as in PyTorch's `xavier_uniform_` on the whole weight. timm
/// leaves the patch embedding, a convolution, at PyTorch's default, hence ±1/sqrt(inputs). With any method,
/// biases of linear layers are 0, norms are 1 and 0, the head is truncated normal with sd 0.02, and the class
/// token normal with sd 1e-6, all as in timm.
///
/// # Errors
/// If a size is 0 or the network has more than 2^33 parameters; if the heads do not divide the width, or 4
/// does not and positions are sinusoidal; if a choice in use is not a finite number, or `sigma` is negative;
/// or if a singular value decomposition does not converge.
pub fn initialise(
    shape: &VitShape,
    method: DirectMethod,
    choices: &Choices,
    seed: u64,
) -> Result<Weights> {
    let request = Request {
        shape,
        donor: None,
        images: None,
        choices,
        seed,
    };
    fill(&request, method)
}

/// The weights of the requested shape, as by [`initialise`].
pub(crate) fn fill(request: &Request, method: DirectMethod) -> Result<Weights> {
    check(request, method)?;
    let mut weights = around_blocks(request, method)?;
    let blocks: Vec<Weights> = (0..request.shape.depth)
        .into_par_iter()
        .map(|layer| block(request, method, layer))
        .collect::<Result<_, _>>()?;
    weights.extend(blocks.into_iter().flatten());
    Ok(weights)
}

/// The random streams: one per tensor, and one per head.
///
/// These numbers are part of a seed's meaning: changing one changes every seeded result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    ClassToken = 0,
    Positions = 1,
    PatchWeight = 2,
    PatchBias = 3,
    HeadWeight = 4,
    Qkv = 5,
    Proj = 6,
    Fc1 = 7,
    Fc2 = 8,
    MeanShift = 9,
    ValueProjection = 10,
    QkvBias = 11,
    ProjBias = 12,
    Fc1Bias = 13,
    Fc2Bias = 14,
    FirstHead = 16,
}

/// The generator for a part of a layer.
pub(crate) fn inner(seed: u64, layer: usize, part: Stream) -> ChaCha8Rng {
    of_layer(seed, layer, part as u64)
}

/// Refuses invalid sizes and choices before any work is done.
fn check(request: &Request, method: DirectMethod) -> Result<()> {
    request.shape.validate()?;
    if request.shape.distilled {
        refuse!(
            "the target has a distillation token, which no method initialises: use a shape without \
             one (distilled = false)"
        );
    }
    if request.shape.classes == 0 {
        refuse!("classes is 0: a vision transformer needs at least 1");
    }
    let values = |dims: Vec<usize>| dims.into_iter().map(|n| n as u128).product::<u128>();
    let parameters = request.shape.stacked_parameters().into_iter();
    let parameters: u128 = parameters.map(|(_, dims)| values(dims)).sum();
    if parameters > MAX_PARAMETERS {
        refuse!(
            "the network would have {parameters} parameters, more than the {MAX_PARAMETERS} allowed: use a smaller depth, \
             width, hidden width, patch, grid or number of classes"
        );
    }
    if method == DirectMethod::Mimetic {
        let [qk, vp] = request.choices.mixes();
        finite("qk alpha", qk.0)?;
        finite("qk beta", qk.1)?;
        finite("vp alpha", vp.0)?;
        finite("vp beta", vp.1)?;
    }
    Ok(())
}

/// The weights before the first block and after the last.
fn around_blocks(request: &Request, method: DirectMethod) -> Result<Weights> {
    let shape = request.shape;
    let (d, n, c, p) = (shape.width, shape.tokens(), shape.channels, shape.patch);
    let outer = |part: Stream| generator(request.seed, part as u64);
    let mut weights = Weights::new();

    if shape.class_token {
        let token = normal((1, 1, d), CLASS_TOKEN_STD, &mut outer(Stream::ClassToken))?;
        weights.insert("cls_token".into(), token);
    }
    let usual = match method {
        DirectMethod::Mimetic => Positions::Sinusoidal,
        _ => Positions::Learned,
    };
    let positions = match request.choices.positions.unwrap_or(usual) {
        Positions::Learned => truncated_normal((1, n, d), TIMM_STD, &mut outer(Stream::Positions))?,
        Positions::Sinusoidal => {
            let usual = if shape.image_size <= 64 { 2.0 } else { 1.0 };
            let scale = request.choices.position_scale.unwrap_or(usual);
            let p = sinusoidal_positions(shape.grid(), d, scale)?; // (1, grid², d)
            p.pad_with_zeros(1, usize::from(shape.class_token), 0)?
                .contiguous()?
        }
    };
    weights.insert("pos_embed".into(), positions); // (1, n, d)

    let inputs = (c * p * p) as f64;
    let (rng, bound) = (&mut outer(Stream::PatchWeight), 1.0 / inputs.sqrt());
    let patches = match method {
        DirectMethod::He => unbiased(normal((d, c, p, p), (2.0 / inputs).sqrt(), rng)?)?,
        _ => Affine {
            weight: uniform((d, c, p, p), bound, rng)?,
            bias: uniform(d, bound, &mut outer(Stream::PatchBias))?,
        },
    };
    patches.store(&mut weights, "patch_embed.proj");

    identity_norm(d)?.store(&mut weights, shape.final_norm());
    let rng = &mut outer(Stream::HeadWeight);
    let head = truncated_normal((shape.classes, d), TIMM_STD, rng)?;
    unbiased(head)?.store(&mut weights, "head");
    Ok(weights)
}

fn block(request: &Request, method: DirectMethod, layer: usize) -> Result<Weights> {
    let (d, m) = (request.shape.width, request.shape.hidden());
    let matrix = |part, dims| matrix(request, method, layer, part, dims);
    let mut qkv = matrix(Stream::Qkv, (3 * d, d))?;
    let mut proj = matrix(Stream::Proj, (d, d))?;
    if method == DirectMethod::Mimetic {
        (qkv, proj) = mimetic_attention(request, layer, qkv, proj)?;
    }
    let mut weights = Weights::new();
    for (name, weight) in [
        ("norm1", ones(d)?),
        ("attn.qkv", qkv),
        ("attn.proj", proj),
        ("norm2", ones(d)?),
        ("mlp.fc1", matrix(Stream::Fc1, (m, d))?),
        ("mlp.fc2", matrix(Stream::Fc2, (d, m))?),
    ] {
        unbiased(weight)?.store(&mut weights, &format!("blocks.{layer}.{name}"));
    }
    let shift = request.choices.mlp_mean.unwrap_or_default();
    let rng = &mut inner(request.seed, layer, Stream::MeanShift);
    shift_block(&mut weights, &format!("blocks.{layer}"), shift, rng)?;
    Ok(weights)
}

/// A matrix of shape (out, in) whose entries are sampled independently.
fn matrix(
    request: &Request,
    method: DirectMethod,
    layer: usize,
    part: Stream,
    (out, inp): (usize, usize),
) -> candle_core::Result<Tensor> {
    use DirectMethod::{He, Mimetic, Timm, Xavier};
    let rng = &mut inner(request.seed, layer, part);
    match (method, request.choices.rest) {
        (He, _) => normal((out, inp), (2.0 / inp as f64).sqrt(), rng),
        (Xavier, _) | (Mimetic, Xavier) => {
            uniform((out, inp), (6.0 / (out as f64 + inp as f64)).sqrt(), rng)
        }
        (Timm | Mimetic, _) => truncated_normal((out, inp), TIMM_STD, rng),
    }
}

/// Replaces the given qkv (3d, d) and proj (d, d) by mimetic ones, if the mixing factors are not 0.
fn mimetic_attention(
    request: &Request,
    layer: usize,
    qkv: Tensor,
    proj: Tensor,
) -> Result<(Tensor, Tensor)> {
    let [qk, vp] = request.choices.mixes();
    let (d, heads) = (request.shape.width, request.shape.heads);
    let attention = request.choices.attention;
    let mut rows = Vec::with_capacity(2 * heads + 1);
    if qk == (0.0, 0.0) {
        rows.push(qkv.narrow(0, 0, 2 * d)?); // (2d, d)
    } else {
        let of_head = |head: usize| {
            let stream = Stream::FirstHead as u64 + head as u64;
            let rng = &mut of_layer(request.seed, layer, stream);
            query_key(attention, d, d / heads, qk, rng)
        };
        let pairs = (0..heads).into_par_iter().map(of_head);
        let pairs: Vec<(Tensor, Tensor)> = pairs.collect::<Result<_>>()?;
        let (q, k): (Vec<_>, Vec<_>) = pairs.into_iter().unzip(); // heads of (d/heads, d)
        rows.extend(q);
        rows.extend(k);
    }
    let (v, proj) = if vp == (0.0, 0.0) {
        (qkv.narrow(0, 2 * d, d)?, proj)
    } else {
        let rng = &mut inner(request.seed, layer, Stream::ValueProjection);
        value_projection(attention, d, vp, rng)?
    }; // (d, d), (d, d)
    rows.push(v);
    Ok((Tensor::cat(&rows, 0)?, proj)) // (3d, d), (d, d)
}

/// A norm with weight 1 and bias 0.
pub(crate) fn identity_norm(width: usize) -> candle_core::Result<Affine> {
    unbiased(ones(width)?)
}

/// A map with bias 0.
fn unbiased(weight: Tensor) -> candle_core::Result<Affine> {
    let bias = Tensor::zeros(weight.dim(0)?, DType::F32, &Device::Cpu)?;
    Ok(Affine { weight, bias })
}

fn ones(n: usize) -> candle_core::Result<Tensor> {
    Tensor::ones(n, DType::F32, &Device::Cpu)
}

#[cfg(test)]
mod tests;
