//! A population: many small networks of one shape that run and train as one (thesis, section 3.4.1:
//! "covariances calculated over populations of networks").
//!
//! Every network is an isotropic ConvNeXt of a few thousand weights, or a transformer (ViT):
//!
//! ```text
//! x   = Conv_{c -> h}(image)                              kernel = stride = patch
//! x   = x + positions                                     of a transformer
//! for each block:
//!     x = x + W2 gelu(W1 LN(DWConv_k(x)) + b1) + b2       of a ConvNeXt
//!     x = x + attention(LN(x))                            of a transformer
//!     x = x + W2 gelu(W1 LN(x) + b1) + b2
//! out = head(LN(mean over pixels of x))
//! ```
//!
//! Weights are stacked over the networks, their leading dimension. In an activation the channels of all
//! networks are adjacent. A depthwise convolution treats them as one wide image. The other maps are
//! [`wave_ops::linear_each`]. No network depends on another's weights or images.
//!
//! Letters in shape comments: `b` images of each network, `n` networks, `g` patches along a side,
//! `h` width, `m` hidden channels, `k` kernel.

use candle_core::{Result, Tensor};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use wave_models::check::{self, sizes};
use wave_models::fold::{Affine, get};
use wave_models::{ShapeError, Weights, checked_images, mean_over_pixels};
use wave_ops::{depthwise_conv, gelu, layer_norm, linear_each, patchify, stock};

/// Added to variances in layer norms, as in ConvNeXt.
const EPS: f64 = 1e-6;

/// Side of a ConvNeXt's kernels, in patches.
pub const KERNEL: usize = 3;

/// Attention heads of a transformer.
const HEADS: usize = 2;

/// The kinds of small networks.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// Isotropic ConvNeXts.
    #[default]
    Convnext,
    /// Transformers.
    Vit,
}

/// The sizes of a population. All are at least 1; see [`PopulationShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PopulationShape {
    pub networks: usize,
    pub arch: Arch,
    /// Side of the square images, in pixels. They are cropped at the bottom and right to a whole number of patches.
    pub image_size: usize,
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    pub depth: usize,
    /// Channels of each network's activations.
    pub width: usize,
    pub classes: usize,
}

impl PopulationShape {
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        sizes(&[
            ("networks", self.networks),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
        ])?;
        check::at_most("patch", self.patch, self.image_size)?;
        match self.arch {
            Arch::Convnext => Ok(()),
            Arch::Vit => check::divides("heads", HEADS, "width", self.width),
        }
    }

    /// Hidden channels of an MLP.
    pub fn hidden(&self) -> usize {
        2 * self.width
    }

    /// Patches along a side.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch
    }

    /// Name and shape of every weight; the leading dimension is the number of networks.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (n, h) = (self.networks, self.width);
        let inputs = self.channels * self.patch * self.patch;
        let mut out = Vec::from(affine("stem", vec![n, h, inputs]));
        if self.arch == Arch::Vit {
            out.push(("pos_embed".into(), vec![n, self.grid() * self.grid(), h]));
        }
        for layer in 0..self.depth {
            let maps = self.of_layer().into_iter();
            let both = |(map, dims)| affine(&format!("blocks.{layer}.{map}"), dims);
            out.extend(maps.flat_map(both));
        }
        out.extend(affine("norm", vec![n, h]));
        out.extend(affine("head", vec![n, self.classes, h]));
        out
    }

    /// Norms and maps of a layer, and the shapes of their weights.
    fn of_layer(&self) -> Vec<(&'static str, Vec<usize>)> {
        let (n, h, m) = (self.networks, self.width, self.hidden());
        let mut out = match self.arch {
            Arch::Convnext => vec![
                ("conv_dw", vec![n, h, KERNEL, KERNEL]),
                ("norm", vec![n, h]),
            ],
            Arch::Vit => vec![
                ("norm1", vec![n, h]),
                ("attn.qkv", vec![n, 3 * h, h]),
                ("attn.proj", vec![n, h, h]),
                ("norm2", vec![n, h]),
            ],
        };
        out.extend([("mlp.fc1", vec![n, m, h]), ("mlp.fc2", vec![n, h, m])]);
        out
    }
}

/// Names and shapes of a weight (n, out, ..) and its bias (n, out).
fn affine(name: &str, dims: Vec<usize>) -> [(String, Vec<usize>); 2] {
    let bias = dims[..2].to_vec();
    [
        (format!("{name}.weight"), dims),
        (format!("{name}.bias"), bias),
    ]
}

/// Logits (b n, classes) of `images` (b n, channels, height, width); row i n + j is for network j.
pub fn logits(shape: &PopulationShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let (n, h, g) = (shape.networks, shape.width, shape.grid());
    let of = WeightsOf { shape, weights };
    let stem = get(weights, "stem.weight")?;
    let images = checked_images(images, shape.channels, shape.image_size, stem)?;
    let b = images.dim(0)? / n;
    let patches = patchify(&images, shape.patch)?; // (b n, g g, inputs)
    let patches = patches.reshape((b, n, g * g, ()))?.transpose(1, 2)?;
    let x = of.mapped(&patches.flatten_to(1)?, "stem")?;
    let mut x = x.reshape((b, g * g, n, h))?;
    if shape.arch == Arch::Vit {
        x = x.broadcast_add(&get(weights, "pos_embed")?.transpose(0, 1)?)?;
    }
    for layer in 0..shape.depth {
        let block = |part: &str| format!("blocks.{layer}.{part}");
        let (mixed, norm) = match shape.arch {
            Arch::Convnext => (of.convolution(&block("conv_dw"), &x)?, "norm"),
            Arch::Vit => {
                x = (&x + of.attention(&block(""), &x)?)?;
                (x.clone(), "norm2")
            }
        };
        let hidden = gelu(&of.normed(&mixed, &block(norm), &block("mlp.fc1"))?)?; // (b g g, n, m)
        x = (&x + of.mapped(&hidden, &block("mlp.fc2"))?.reshape(x.dims())?)?;
    }
    let pooled = mean_over_pixels(&x.reshape((b, g, g, n * h))?)?;
    of.normed(&pooled, "norm", "head")?.flatten_to(1) // (b n, classes)
}

struct WeightsOf<'a> {
    shape: &'a PopulationShape,
    weights: &'a Weights,
}

impl WeightsOf<'_> {
    /// Each network's own linear map: (places, n, in) to (places, n, out).
    fn mapped(&self, x: &Tensor, map: &str) -> Result<Tensor> {
        let Affine { weight, bias } = Affine::stored(self.weights, map)?;
        linear_each(x, &weight, &bias)
    }

    /// A linear map after a norm of each network's channels, (.., n h) or (.., n, h) to (places, n, out). The norm's
    /// scale and shift differ between networks, and are folded into the map:
    /// `W (s x + t) + b = (W s) x + (W t + b)`.
    fn normed(&self, x: &Tensor, norm: &str, map: &str) -> Result<Tensor> {
        let (n, h) = (self.shape.networks, self.shape.width);
        let unit = Tensor::ones(h, x.dtype(), x.device())?;
        let x = layer_norm(&x.reshape(((), n, h))?, &unit, &unit.zeros_like()?, EPS)?;
        let Affine { weight, bias } = Affine::stored(self.weights, map)?; // (n, out, h), (n, out)
        let scale = get(self.weights, &format!("{norm}.weight"))?.unsqueeze(1)?; // (n, 1, h)
        let shift = get(self.weights, &format!("{norm}.bias"))?.unsqueeze(2)?; // (n, h, 1)
        let bias = (bias + weight.matmul(&shift)?.squeeze(2)?)?;
        linear_each(&x, &weight.broadcast_mul(&scale)?, &bias)
    }

    /// A depthwise convolution, (b, g g, n, h) to the same.
    fn convolution(&self, name: &str, x: &Tensor) -> Result<Tensor> {
        let (n, h, g) = (self.shape.networks, self.shape.width, self.shape.grid());
        let Affine { weight, bias } = Affine::stored(self.weights, name)?;
        let kernels = weight.reshape((n * h, KERNEL, KERNEL))?;
        let pixels = x.reshape(((), g, g, n * h))?;
        depthwise_conv(&pixels, &kernels, &bias.flatten_all()?)?.reshape(x.dims())
    }

    /// The attention of a block, after its norm, (b, g g, n, h) to the same.
    fn attention(&self, block: &str, x: &Tensor) -> Result<Tensor> {
        let (b, t, n, h) = x.dims4()?;
        let qkv = self.normed(x, &format!("{block}norm1"), &format!("{block}attn.qkv"))?;
        let qkv = qkv.reshape((b, t, n, 3 * h))?;
        let qkv = qkv.transpose(1, 2)?.flatten_to(1)?; // (b n, t, 3 h)
        let mixed = stock::attention(&qkv.contiguous()?, HEADS)?.reshape((b, n, t, h))?;
        let mixed = mixed.transpose(1, 2)?.flatten_to(1)?.contiguous()?; // (b t, n, h)
        self.mapped(&mixed, &format!("{block}attn.proj"))?
            .reshape(x.dims())
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
