//! Vision transformers with positional attention, which the thesis compares with mimetic attention (section 3.2.5).
//!
//! ```text
//! gpsa                    A = (1 - s(g)) softmax(q kᵀ / sqrt(d/h)) + s(g) softmax(w · (Δx, Δy, Δx² + Δy²) + b)
//! convolution-inside      A = softmax(q kᵀ / sqrt(d/h) + γ C)                        equation 3.25
//! convolution-outside     A = softmax(q kᵀ / sqrt(d/h)) + γ C                        equation 3.26
//! convolution-positive    A = softmax(q kᵀ / sqrt(d/h)) + softmax(γ C)
//! ```
//!
//! GPSA is the gated attention of d'Ascoli et al. 2021 (ConViT): g is a gate for each head, s the logistic
//! function, and rows are normalised to sum to 1. Δ is the offset from the query's patch to the key's.
//!
//! C (n, n) is doubly block circulant: `C[a, b]` depends only on the offset from patch a to patch b, which
//! wraps around the grid's edges. It is the matrix of a circular convolution with k x k taps. Our
//! reading: the taps are trained, each head has its own, and a layer has one γ.
//!
//! Everything else is the transformer of [`wave_models::vit`] without a class token, in stock operators. GPSA uses
//! timm's names for ConViT. Letters in shape comments: `b` images, `n` patches, `g` patches along
//! a side, `d` width, `h` heads, `k` taps along a side.

use candle_core::{DType, Device, Result, Tensor};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use wave_models::fold::{Affine, get};
use wave_models::vit::VitShape;
use wave_models::{Weights, checked_images};
use wave_ops::{gelu, patchify, stock};

/// Taps of a convolution along a side.
pub const KERNEL: usize = 3;

/// The way in which positions enter the attention.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionalAttention {
    /// A second attention map, over offsets, added through a gate.
    #[default]
    Gpsa,
    /// A convolution inside the softmax.
    ConvolutionInside,
    /// A convolution outside the softmax.
    ConvolutionOutside,
    /// A convolution outside the softmax, made positive by its own softmax.
    ConvolutionPositive,
}

impl PositionalAttention {
    /// The name of a layer's positional weights.
    pub(super) fn own_name(self) -> &'static str {
        match self {
            PositionalAttention::Gpsa => "pos_proj",
            PositionalAttention::ConvolutionInside => "inside",
            PositionalAttention::ConvolutionOutside => "outside",
            PositionalAttention::ConvolutionPositive => "positive",
        }
    }
}

/// The sizes of such a transformer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PositionalShape {
    /// The transformer; without a class token, which has no position.
    pub vit: VitShape,
    pub attention: PositionalAttention,
}

/// Offsets (g² g², 3) from each patch (row, slow index) to each patch: Δx, Δy and the squared distance.
pub fn offsets(grid: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let n = grid * grid;
    let offset = |at: usize| {
        let (from, to) = (at / n, at % n);
        let x = (to % grid) as f64 - (from % grid) as f64;
        let y = (to / grid) as f64 - (from / grid) as f64;
        [x, y, x * x + y * y]
    };
    let values: Vec<f64> = (0..n * n).flat_map(offset).collect();
    Tensor::from_vec(values, (n * n, 3), device)?.to_dtype(dtype)
}

/// The doubly block circulant matrices (h, g², g²) of taps (h, k, k): `C[a, b] = taps[r + Δy, r + Δx]`, r = ⌊k/2⌋, if
/// the offset from patch a to patch b, wrapped around the grid, lies within the taps, and 0 elsewhere.
pub fn circulant(taps: &Tensor, grid: usize) -> Result<Tensor> {
    let (h, k, _) = taps.dims3()?;
    if k > grid {
        candle_core::bail!("{k} taps on a grid of {grid} patches; use at most {grid}");
    }
    let n = grid * grid;
    // Counted from the first tap, so that wrapped offsets are not negative.
    let tap = |from: usize, to: usize| (to + grid + k / 2 - from) % grid;
    let index = |at: usize| {
        let (from, to) = (at / n, at % n);
        let (x, y) = (tap(from % grid, to % grid), tap(from / grid, to / grid));
        let place = if x < k && y < k { y * k + x } else { k * k };
        place as u32
    };
    let index: Vec<u32> = (0..n * n).map(index).collect();
    let index = Tensor::from_vec(index, n * n, taps.device())?;
    let taps = taps.reshape((h, k * k))?;
    let none = Tensor::zeros((h, 1), taps.dtype(), taps.device())?;
    let taps = Tensor::cat(&[taps, none], 1)?; // (h, k² + 1)
    taps.index_select(&index, 1)?.reshape((h, n, n))
}

/// Logits (b, classes) of `images` (b, channels, height, width).
pub fn logits(shape: &PositionalShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let vit = &shape.vit;
    let linear = |x: &Tensor, name: &str| Affine::stored(weights, name)?.apply(x);
    let norm = |x: &Tensor, name: &str| Affine::stored(weights, name)?.norm(x, vit.norm_eps);
    let positions = get(weights, "pos_embed")?;
    let images = checked_images(images, vit.channels, vit.image_size, positions)?;
    let patches = patchify(&images, vit.patch)?; // (b, n, c p p)
    let embed = Affine::stored(weights, "patch_embed.proj")?;
    let w = embed.weight.flatten_from(1)?;
    let mut x = wave_ops::linear(&patches, &w, &embed.bias)?.broadcast_add(positions)?;
    for layer in 0..vit.depth {
        let at = |part: &str| format!("blocks.{layer}.{part}");
        let mixed = attention(shape, weights, &norm(&x, &at("norm1"))?, &at("attn"))?;
        x = (x + linear(&mixed, &at("attn.proj"))?)?;
        let inner = gelu(&linear(&norm(&x, &at("norm2"))?, &at("mlp.fc1"))?)?;
        x = (x + linear(&inner, &at("mlp.fc2"))?)?;
    }
    let pooled = norm(&x.mean(1)?, vit.final_norm())?; // (b, d)
    linear(&pooled, "head")
}

/// The attention output for (b, n, d), before the projection.
fn attention(shape: &PositionalShape, weights: &Weights, u: &Tensor, at: &str) -> Result<Tensor> {
    let (d, h) = (shape.vit.width, shape.vit.heads);
    let (b, n, _) = u.dims3()?;
    let map = |part: &str| Affine::stored(weights, &format!("{at}.{part}"))?.apply(u);
    let (qk, v) = match shape.attention {
        PositionalAttention::Gpsa => (map("qk")?, map("v")?),
        _ => {
            let qkv = map("qkv")?;
            (qkv.narrow(2, 0, 2 * d)?, qkv.narrow(2, 2 * d, d)?)
        }
    };
    let heads = |x: &Tensor| -> Result<Tensor> {
        let x = x.contiguous()?.reshape((b, n, h, d / h))?;
        x.transpose(1, 2)?.contiguous() // (b, h, n, d / h)
    };
    let (q, k) = (heads(&qk.narrow(2, 0, d)?)?, heads(&qk.narrow(2, d, d)?)?);
    let scale = 1.0 / ((d / h) as f64).sqrt();
    let scores = (q.matmul(&k.transpose(2, 3)?)? * scale)?; // (b, h, n, n)
    let mixed = with_positions(shape, weights, &scores, at)?.matmul(&heads(&v)?)?;
    mixed.transpose(1, 2)?.reshape((b, n, d))
}

/// The attention matrix (b, h, n, n), from the scores of queries and keys.
fn with_positions(
    shape: &PositionalShape,
    weights: &Weights,
    scores: &Tensor,
    at: &str,
) -> Result<Tensor> {
    let (grid, h) = (shape.vit.grid(), shape.vit.heads);
    let own = |part: &str| {
        let name = shape.attention.own_name();
        get(weights, &format!("{at}.{name}.{part}"))
    };
    let convolution = || circulant(own("weight")?, grid)?.broadcast_mul(own("gamma")?); // (h, n, n)
    match shape.attention {
        PositionalAttention::ConvolutionInside => {
            stock::softmax(&scores.broadcast_add(&convolution()?)?)
        }
        PositionalAttention::ConvolutionOutside => {
            stock::softmax(scores)?.broadcast_add(&convolution()?)
        }
        PositionalAttention::ConvolutionPositive => {
            stock::softmax(scores)?.broadcast_add(&stock::softmax(&convolution()?)?)
        }
        PositionalAttention::Gpsa => {
            let offsets = offsets(grid, scores.dtype(), scores.device())?;
            let local = wave_ops::linear(&offsets, own("weight")?, own("bias")?)?;
            let n = grid * grid;
            let local = local.t()?.contiguous()?.reshape((h, n, n))?;
            let gate = get(weights, &format!("{at}.gating_param"))?;
            let gate = (gate.neg()?.exp()? + 1.0)?.recip()?.reshape((h, 1, 1))?;
            let content = stock::softmax(scores)?.broadcast_mul(&(1.0 - &gate)?)?;
            let sum = content.broadcast_add(&stock::softmax(&local)?.broadcast_mul(&gate)?)?;
            sum.broadcast_div(&sum.sum_keepdim(candle_core::D::Minus1)?)
        }
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
