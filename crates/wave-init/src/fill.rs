//! Closed-form initialisation of all weights.

use candle_core::{DType, Device, Tensor};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use wave_models::fold::Affine;
use wave_models::vit::VitShape;
use wave_models::{NetworkError, Weights, refuse};

use crate::error::finite;
use crate::mean_shift::first_layer;
use crate::mimetic::{
    Attention, equal_query_key, equal_value_projection, query_key, value_projection,
};
use crate::options::{Base, DirectMethod, DirectOptions, Positions};
use crate::random::{generator, normal, of_layer, truncated_normal, uniform, xavier_uniform};
use crate::sinusoidal::sinusoidal_positions;

/// timm's standard deviation for linear layers and position embeddings.
pub(crate) const TIMM_STD: f64 = 0.02;
/// timm's standard deviation for the class token.
const CLASS_TOKEN_STD: f64 = 1e-6;
/// Maximum number of parameters in a network: 32 GiB of `f32`.
const MAX_PARAMETERS: u128 = 1 << 33;

/// Fills every weight of a vision transformer.
///
/// # Shapes
/// With d the width, m the hidden width, c channels, patches of p x p pixels and n = grid² tokens, plus one
/// with a class token:
///
/// | name | shape |
/// |---|---|
/// | `cls_token` (with a class token) | (1, 1, d) |
/// | `pos_embed` | (1, n, d) |
/// | `patch_embed.proj.{weight,bias}` | (d, c, p, p), (d) |
/// | `blocks.N.{norm1,norm2}.{weight,bias}` | (d), (d) |
/// | `blocks.N.attn.qkv.{weight,bias}` | (3d, d), (3d) |
/// | `blocks.N.attn.proj.{weight,bias}` | (d, d), (d) |
/// | `blocks.N.mlp.fc1.{weight,bias}` | (m, d), (m) |
/// | `blocks.N.mlp.fc2.{weight,bias}` | (d, m), (d) |
/// | `norm.{weight,bias}`, or `fc_norm` without a class token | (d), (d) |
/// | `head.{weight,bias}` | (classes, d), (classes) |
///
/// # Methods
/// | | block matrices | patch embedding |
/// |---|---|---|
/// | `He` | normal, sd sqrt(2 / inputs) | normal, sd sqrt(2 / (c p²)), bias 0 |
/// | `Timm` | normal, sd 0.02, truncated at ±2 | weight and bias uniform, ±1/sqrt(c p²) |
/// | `Xavier` | uniform, ±sqrt(6 / (inputs + outputs)) | as `Timm` |
/// | `Mimetic` | attention: [`mimetic`](crate::mimetic); MLP: as [`Base`] | as `Timm` |
///
/// `qkv` counts as one matrix with 3d outputs, as in PyTorch's `xavier_uniform_` on the whole weight. timm
/// leaves the patch embedding, a convolution, at PyTorch's default, hence ±1/sqrt(inputs). With any method,
/// biases of linear layers are 0, norms are 1 and 0, the head is truncated normal with sd 0.02, and the class
/// token normal with sd 1e-6, all as in timm.
///
/// # Errors
/// If a size is 0 or the network has more than 2^33 parameters; if the heads do not divide the width, or 4
/// does not and positions are sinusoidal; if an option in use is not a finite number, or `sigma` is negative;
/// or if a singular value decomposition does not converge.
pub fn initialise(
    shape: &VitShape,
    options: &DirectOptions,
    seed: u64,
) -> Result<Weights, NetworkError> {
    check(shape, options)?;
    let mut weights = around_blocks(shape, options, seed)?;
    let blocks: Vec<Weights> = (0..shape.depth)
        .into_par_iter()
        .map(|layer| block(shape, options, seed, layer))
        .collect::<Result<_, _>>()?;
    weights.extend(blocks.into_iter().flatten());
    Ok(weights)
}

/// The distribution of a matrix whose entries are sampled independently.
#[derive(Clone, Copy)]
enum Fill {
    He,
    Timm,
    Xavier,
}

impl Fill {
    fn of(options: &DirectOptions) -> Self {
        match (options.method, options.base) {
            (DirectMethod::He, _) => Fill::He,
            (DirectMethod::Timm, _) | (DirectMethod::Mimetic, Base::Timm) => Fill::Timm,
            (DirectMethod::Xavier, _) | (DirectMethod::Mimetic, Base::Xavier) => Fill::Xavier,
        }
    }

    /// A matrix of shape (out, in).
    fn matrix(self, out: usize, inp: usize, rng: &mut ChaCha8Rng) -> candle_core::Result<Tensor> {
        match self {
            Fill::He => normal((out, inp), (2.0 / inp as f64).sqrt(), rng),
            Fill::Timm => truncated_normal((out, inp), TIMM_STD, rng),
            Fill::Xavier => xavier_uniform((out, inp), rng),
        }
    }
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

/// The generator for a part outside the blocks.
fn outer(seed: u64, part: Stream) -> ChaCha8Rng {
    generator(seed, part as u64)
}

/// The generator for a part of a layer; `head` is 0 except for [`Stream::FirstHead`].
pub(crate) fn inner(seed: u64, layer: usize, part: Stream, head: usize) -> ChaCha8Rng {
    of_layer(seed, layer, part as u64 + head as u64)
}

/// The weights before the first block and after the last.
fn around_blocks(
    shape: &VitShape,
    options: &DirectOptions,
    seed: u64,
) -> Result<Weights, NetworkError> {
    let (d, n, c, p) = (shape.width, shape.tokens(), shape.channels, shape.patch);
    let mut weights = Weights::new();

    if shape.class_token {
        let rng = &mut outer(seed, Stream::ClassToken);
        weights.insert("cls_token".into(), normal((1, 1, d), CLASS_TOKEN_STD, rng)?);
    }
    let positions = match options.positions {
        Positions::Learned => {
            truncated_normal((1, n, d), TIMM_STD, &mut outer(seed, Stream::Positions))?
        }
        Positions::Sinusoidal { scale } => {
            let p = sinusoidal_positions(shape.grid(), d, scale)?; // (1, grid², d)
            p.pad_with_zeros(1, usize::from(shape.class_token), 0)?
                .contiguous()?
        }
    };
    weights.insert("pos_embed".into(), positions); // (1, n, d)

    let inputs = (c * p * p) as f64;
    let rng = &mut outer(seed, Stream::PatchWeight);
    let (weight, bias) = match Fill::of(options) {
        Fill::He => (normal((d, c, p, p), (2.0 / inputs).sqrt(), rng)?, zeros(d)?),
        Fill::Timm | Fill::Xavier => {
            let bound = 1.0 / inputs.sqrt();
            let weight = uniform((d, c, p, p), bound, rng)?;
            (
                weight,
                uniform(d, bound, &mut outer(seed, Stream::PatchBias))?,
            )
        }
    };
    insert_layer(&mut weights, "patch_embed.proj", weight, bias);

    insert_layer(&mut weights, shape.final_norm(), ones(d)?, zeros(d)?);
    let rng = &mut outer(seed, Stream::HeadWeight);
    let head = truncated_normal((shape.classes, d), TIMM_STD, rng)?;
    insert_layer(&mut weights, "head", head, zeros(shape.classes)?);
    Ok(weights)
}

/// The weights of one block.
fn block(
    shape: &VitShape,
    options: &DirectOptions,
    seed: u64,
    layer: usize,
) -> Result<Weights, NetworkError> {
    let (d, m, fill) = (shape.width, shape.hidden(), Fill::of(options));
    let matrix = |part, out, inp| fill.matrix(out, inp, &mut inner(seed, layer, part, 0));

    let mut qkv = matrix(Stream::Qkv, 3 * d, d)?;
    let mut proj = matrix(Stream::Proj, d, d)?;
    if options.method == DirectMethod::Mimetic {
        (qkv, proj) = mimetic_attention(shape, options, seed, layer, qkv, proj)?;
    }
    let fc2 = matrix(Stream::Fc2, d, m)?;
    let (fc1, fc1_bias) = first_layer(
        &matrix(Stream::Fc1, m, d)?,
        &zeros(m)?,
        &fc2,
        options.mlp_mean,
        &mut inner(seed, layer, Stream::MeanShift, 0),
    )?;

    let mut weights = Weights::new();
    for (name, weight, bias) in [
        ("norm1", ones(d)?, zeros(d)?),
        ("attn.qkv", qkv, zeros(3 * d)?),
        ("attn.proj", proj, zeros(d)?),
        ("norm2", ones(d)?, zeros(d)?),
        ("mlp.fc1", fc1, fc1_bias),
        ("mlp.fc2", fc2, zeros(d)?),
    ] {
        insert_layer(
            &mut weights,
            &format!("blocks.{layer}.{name}"),
            weight,
            bias,
        );
    }
    Ok(weights)
}

/// Replaces the given qkv (3d, d) and proj (d, d) by mimetic ones, if the options ask for it.
fn mimetic_attention(
    shape: &VitShape,
    options: &DirectOptions,
    seed: u64,
    layer: usize,
    qkv: Tensor,
    proj: Tensor,
) -> Result<(Tensor, Tensor), NetworkError> {
    let (d, heads) = (shape.width, shape.heads);
    let mut rows = Vec::with_capacity(2 * heads + 1);
    if options.qk == (0.0, 0.0) {
        rows.push(qkv.narrow(0, 0, 2 * d)?); // (2d, d)
    } else {
        let pairs: Vec<(Tensor, Tensor)> = (0..heads)
            .into_par_iter()
            .map(|head| {
                let rng = &mut inner(seed, layer, Stream::FirstHead, head);
                match options.attention {
                    Attention::Products => query_key(d, d / heads, options.qk, rng),
                    Attention::Equal => equal_query_key(d, d / heads, rng),
                }
            })
            .collect::<Result<_, _>>()?;
        let (q, k): (Vec<_>, Vec<_>) = pairs.into_iter().unzip(); // heads of (d/heads, d)
        rows.extend(q);
        rows.extend(k);
    }
    if options.vp == (0.0, 0.0) {
        rows.push(qkv.narrow(0, 2 * d, d)?); // (d, d)
        return Ok((Tensor::cat(&rows, 0)?, proj));
    }
    let rng = &mut inner(seed, layer, Stream::ValueProjection, 0);
    let (v, proj) = match options.attention {
        Attention::Products => value_projection(d, options.vp, options.vp_layout, rng)?,
        Attention::Equal => equal_value_projection(d, options.vp_layout, rng)?,
    }; // (d, d), (d, d)
    rows.push(v);
    Ok((Tensor::cat(&rows, 0)?, proj)) // (3d, d), (d, d)
}

/// Refuses invalid sizes and options before any work is done.
fn check(shape: &VitShape, options: &DirectOptions) -> Result<(), NetworkError> {
    shape.validate()?;
    if shape.distilled {
        refuse!(
            "the target has a distillation token, which no method initialises: use a shape without \
             one (distilled = false)"
        );
    }
    if shape.classes == 0 {
        refuse!("classes is 0: a vision transformer needs at least 1");
    }
    let parameters = shape.stacked_parameters().into_iter();
    let values = |(_, dims): (_, Vec<usize>)| dims.iter().map(|n| *n as u128).product::<u128>();
    let parameters: u128 = parameters.map(values).sum();
    if parameters > MAX_PARAMETERS {
        refuse!(
            "the network would have {parameters} parameters, more than the {MAX_PARAMETERS} allowed: use a smaller depth, \
             width, hidden width, patch, grid or number of classes"
        );
    }
    if options.method == DirectMethod::Mimetic {
        for (name, value) in [
            ("qk alpha", options.qk.0),
            ("qk beta", options.qk.1),
            ("vp alpha", options.vp.0),
            ("vp beta", options.vp.1),
        ] {
            finite(name, value)?;
        }
    }
    Ok(())
}

pub(crate) fn insert_layer(weights: &mut Weights, name: &str, weight: Tensor, bias: Tensor) {
    Affine { weight, bias }.store(weights, name);
}

pub(crate) fn zeros(n: usize) -> candle_core::Result<Tensor> {
    Tensor::zeros(n, DType::F32, &Device::Cpu)
}

pub(crate) fn ones(n: usize) -> candle_core::Result<Tensor> {
    Tensor::ones(n, DType::F32, &Device::Cpu)
}

#[cfg(test)]
mod tests;
