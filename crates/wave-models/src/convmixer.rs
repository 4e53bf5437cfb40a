//! ConvMixer (Trockman and Kolter 2022, "Patches Are All You Need?"): depthwise and pointwise
//! convolutions over patches, with timm's weight names.
//!
//! ```text
//! z_0  = BN(gelu(Conv_{c -> h}(X)))     kernel = stride = patch
//! z'   = BN(gelu(DWConv_k(z))) + z      for each block
//! z+   = BN(gelu(Conv_1x1(z')))
//! out  = head(mean over pixels of z)
//! ```
//!
//! Activations are channels-last, (b, rows, columns, width). Letters in shape comments: `b` images,
//! `c` channels, `p` patch, `g` patches along a side, `h` width, `k` kernel.

use crate::check::{self, affine, batch_norm, check_weights, count, dims, sizes};
use crate::fold::{Affine, get};
use crate::initial::pytorch_default;
use crate::{Activation, Checked, Dilations, Weights, mean_over_pixels};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use wave_ops::{
    batch_norm_eval, batch_norm_train, dilated_depthwise_conv, gelu, gelu_batch_norm_train, linear,
    patchify,
};

/// Epsilon of the batch norms, PyTorch's and timm's default.
const EPS: f64 = 1e-5;

/// Weight of the newest batch in the running statistics, as in PyTorch.
const MOMENTUM: f64 = 0.1;

/// The sizes of a ConvMixer. All are at least 1; see [`ConvMixerShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvMixerShape {
    /// Side of the square images, in pixels. They are cropped at the bottom and the right to whole patches.
    pub image_size: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of the activations.
    pub width: usize,
    /// Side of the depthwise kernels, in patches. Even sizes pad more at the end.
    pub kernel: usize,
    /// Number of classes.
    pub classes: usize,
    /// The activation everywhere: GELU, or ReLU in timm's `convmixer_768_32`.
    #[serde(default)]
    pub activation: Activation,
    /// Dilations of the depthwise kernels: all 1 in timm's models.
    #[serde(default)]
    pub dilations: Dilations,
}

impl ConvMixerShape {
    /// Checks that no size is zero or absurdly large, and that the sizes fit each other.
    pub fn validate(&self) -> Checked<()> {
        sizes(&[
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("kernel", self.kernel),
            ("classes", self.classes),
        ])?;
        check::at_most("patch", self.patch, self.image_size)?;
        let (h, k, c) = (self.width, self.kernel, self.channels);
        let (p, side) = (self.patch, self.image_size);
        check::products(&[
            ("width x channels x patch^2", &[h, c, p, p]),
            ("width x kernel^2 x depth", &[h, k, k, self.depth]),
            ("width^2 x depth", &[h, h, self.depth]),
            ("width x classes", &[h, self.classes]),
            ("image_size^2 x channels", &[side, side, c]),
        ])?;
        let grid = self.image_size / self.patch;
        self.dilations.validate(self.depth, k, grid)?;
        let activations = [Activation::Gelu, Activation::Relu];
        self.activation.among(&activations, "gelu or relu")
    }

    /// Multiply-adds of a forward pass on one image: patch embedding, depthwise and pointwise convolutions, head.
    pub fn multiply_adds(&self) -> usize {
        let grid = self.image_size / self.patch.max(1);
        let (places, w) = (grid * grid, self.width);
        let patches = places * self.channels * self.patch * self.patch * w;
        let block = places * w * (self.kernel * self.kernel + w);
        patches + self.depth * block + w * self.classes
    }

    /// Infers the sizes from weights under timm's names, except image size and activation. Dilations are taken as 1.
    pub fn infer(
        weights: &Weights,
        image_size: usize,
        activation: Activation,
    ) -> Checked<ConvMixerShape> {
        let [width, channels, patch, _] = dims(weights, "stem.0.weight")?;
        let [_, _, kernel, _] = dims(weights, "blocks.0.0.fn.0.weight")?;
        let [classes, _] = dims(weights, "head.weight")?;
        let shape = ConvMixerShape {
            image_size,
            channels,
            patch,
            depth: count(weights, |i| format!("blocks.{i}.1.weight")),
            width,
            kernel,
            classes,
            activation,
            dilations: Dilations::default(),
        };
        shape.validate()?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }

    /// Name and shape of every weight, in timm's order. Running statistics ([`is_running_statistic`]) are not
    /// trained; without them there are `h (d (k^2 + h + 6) + c p^2 + classes + 3) + classes` values. timm's
    /// `num_batches_tracked` counters are not listed, and are ignored if present.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (h, k, p) = (self.width, self.kernel, self.patch);
        let mut out = Vec::new();
        out.extend(affine("stem.0", vec![h, self.channels, p, p]));
        out.extend(batch_norm("stem.2", h));
        for i in 0..self.depth {
            out.extend(affine(&format!("blocks.{i}.0.fn.0"), vec![h, 1, k, k]));
            out.extend(batch_norm(&format!("blocks.{i}.0.fn.2"), h));
            out.extend(affine(&format!("blocks.{i}.1"), vec![h, h, 1, 1]));
            out.extend(batch_norm(&format!("blocks.{i}.3"), h));
        }
        out.extend(affine("head", vec![self.classes, h]));
        out
    }

    /// Weights with PyTorch's default initialisation: convolutions and head uniform in `±1 / sqrt(fan_in)`; norms
    /// the identity, with running mean 0 and variance 1. The same seed gives the same weights.
    pub fn initialise(&self, seed: u64) -> Result<Weights> {
        self.validate()?;
        pytorch_default(self.parameters(), is_norm, seed)
    }
}

/// True if `name` is a running statistic of a batch norm: updated by [`logits_train`], not trained.
pub fn is_running_statistic(name: &str) -> bool {
    let ends = [".running_mean", ".running_var", ".num_batches_tracked"];
    ends.iter().any(|end| name.ends_with(end))
}

/// True if `name` belongs to a batch norm: `stem.2`, `blocks.{i}.0.fn.2` or `blocks.{i}.3`.
fn is_norm(name: &str) -> bool {
    let layer = name.rsplit_once('.').map_or(name, |(layer, _)| layer);
    layer == "stem.2" || layer.ends_with(".fn.2") || layer.ends_with(".3")
}

/// Logits (b, classes) of `images` (b, channels, h, w) in evaluation mode: batch norms use their running statistics.
pub fn logits(shape: &ConvMixerShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    forward(shape, weights, images, |x, name| {
        let [w, b, mean, var] = norm_of(weights, name)?;
        let x = match shape.activation {
            Activation::Relu => x.relu()?,
            _ => gelu(x)?,
        };
        batch_norm_eval(&x, w, b, mean, var, EPS)
    })
}

/// [`logits`] in training mode, and the new running statistics by name: batch norms use the batch's statistics,
/// and gradients flow through them. Running statistics move a tenth of the way towards the batch's (with the
/// unbiased variance) and carry no gradient.
///
/// # Errors
/// As [`logits`]; also when the batch has a single value per channel, whose variance is undefined.
pub fn logits_train(
    shape: &ConvMixerShape,
    weights: &Weights,
    images: &Tensor,
) -> Result<(Tensor, Weights)> {
    let mut running = Weights::new();
    let logits = forward(shape, weights, images, |x, name| {
        let [w, b, old_mean, old_var] = norm_of(weights, name)?;
        let n = x.elem_count() / shape.width;
        if n < 2 {
            candle_core::bail!(
                "{name}: training needs at least 2 values per channel, found {n}; \
                 use a larger batch or smaller patches"
            );
        }
        let (y, mean, var) = match shape.activation {
            Activation::Relu => batch_norm_train(&x.relu()?, w, b, EPS)?,
            _ => gelu_batch_norm_train(x, w, b, EPS)?,
        };
        let unbiased = n as f64 / (n - 1) as f64;
        let moved =
            |old: &Tensor, new: Tensor| (old.detach() * (1.0 - MOMENTUM))? + (new * MOMENTUM)?;
        running.insert(format!("{name}.running_mean"), moved(old_mean, mean)?);
        let var = moved(old_var, (var * unbiased)?)?;
        running.insert(format!("{name}.running_var"), var);
        Ok(y)
    })?;
    Ok((logits, running))
}

/// The forward pass; `norm(x, name)` applies the activation and then the batch norm `name`.
fn forward(
    shape: &ConvMixerShape,
    weights: &Weights,
    images: &Tensor,
    mut norm: impl FnMut(&Tensor, &str) -> Result<Tensor>,
) -> Result<Tensor> {
    shape.validate()?;
    check_weights(weights, &shape.parameters())?;
    let (h, k, p) = (shape.width, shape.kernel, shape.patch);
    let part = |name: &str| Affine::stored(weights, name);
    let stem = part("stem.0")?;
    let images = crate::checked_images(images, shape.channels, shape.image_size, &stem.weight)?;
    let g = shape.image_size / p;
    let patches = patchify(&images, p)?; // (b, g g, c p p)
    let patches = patches.reshape((images.dim(0)?, g, g, ()))?;
    let mut z = linear(&patches, &stem.weight.reshape((h, ()))?, &stem.bias)?; // (b, g, g, h)
    z = norm(&z, "stem.2")?;
    for i in 0..shape.depth {
        let kernels = part(&format!("blocks.{i}.0.fn.0"))?;
        let weight = kernels.weight.reshape((h, k, k))?;
        let spatial = dilated_depthwise_conv(&z, &weight, &kernels.bias, shape.dilations.at(i))?;
        z = (norm(&spatial, &format!("blocks.{i}.0.fn.2"))? + z)?;
        let map = part(&format!("blocks.{i}.1"))?;
        z = linear(&z, &map.weight.reshape((h, h))?, &map.bias)?;
        z = norm(&z, &format!("blocks.{i}.3"))?;
    }
    part("head")?.apply(&mean_over_pixels(&z)?)
}

/// Weight, bias, running mean and running variance of a batch norm.
fn norm_of<'a>(weights: &'a Weights, name: &str) -> Result<[&'a Tensor; 4]> {
    let get = |part: &str| get(weights, &format!("{name}.{part}"));
    let (mean, var) = (get("running_mean")?, get("running_var")?);
    Ok([get("weight")?, get("bias")?, mean, var])
}

#[cfg(test)]
#[path = "convmixer_tests.rs"]
mod tests;
