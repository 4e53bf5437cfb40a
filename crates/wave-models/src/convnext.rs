//! The isotropic ConvNeXt (Liu et al. 2022, "A ConvNet for the 2020s", section 3.3): one width and
//! one resolution throughout, as in a vision transformer, without layer scale.
//!
//! ```text
//! z    = Conv_{c -> h}(X)                                    kernel = stride = patch
//! z+   = z + W_2 gelu(W_1 LN(DWConv_k(z)))                   for each block
//! out  = head(LN(mean over pixels of z))
//! ```
//!
//! Activations are channels-last, (b, rows, columns, width). Letters in shape comments: `b` images,
//! `c` channels, `p` patch, `g` patches along a side, `h` width, `k` kernel. Within a block, weights
//! have the names of timm's `ConvNeXtBlock`; timm itself has no isotropic ConvNeXt.

use crate::check::{self, check_weights, count, dims, sizes};
use crate::initial::pytorch_default;
use crate::{Checked, ShapeError, Weights, mean_over_pixels};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use wave_ops::{depthwise_conv, gelu, layer_norm, linear, patchify};

/// Added to variances, as in timm's ConvNeXt.
const EPS: f64 = 1e-6;

/// The sizes of an isotropic ConvNeXt. All are at least 1; see [`ConvNextShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvNextShape {
    /// Height and width of the square images, in pixels. What exceeds a whole number of patches
    /// is cropped at the bottom and the right.
    pub image_size: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of the activations.
    pub width: usize,
    /// Side of the depthwise kernels, in patches; odd.
    pub kernel: usize,
    /// Hidden channels of the MLP over the width.
    pub mlp_ratio: f64,
    /// Number of classes.
    pub classes: usize,
}

impl ConvNextShape {
    /// Hidden channels of the MLP: the nearest whole number.
    pub fn hidden(&self) -> usize {
        (self.width as f64 * self.mlp_ratio).round() as usize
    }

    /// Checks that a network of this shape exists.
    ///
    /// # Errors
    /// When a size is zero or absurdly large, the kernel even, or a patch larger than the images.
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        sizes(&[
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("kernel", self.kernel),
            ("mlp_ratio x width", self.hidden()),
            ("classes", self.classes),
        ])?;
        check::patch_fits(self.patch, self.image_size)?;
        if self.kernel.is_multiple_of(2) {
            return Err(ShapeError::Choice {
                name: "kernel",
                found: self.kernel.to_string(),
                expected: "an odd size",
            });
        }
        let (h, k, side) = (self.width, self.kernel, self.image_size);
        check::products(&[
            (
                "width x channels x patch^2",
                &[h, self.channels, self.patch, self.patch],
            ),
            ("width x kernel^2 x depth", &[h, k, k, self.depth]),
            (
                "width x mlp_ratio x width x depth",
                &[h, self.hidden(), self.depth],
            ),
            ("width x classes", &[h, self.classes]),
            ("image_size^2 x channels", &[side, side, self.channels]),
        ])
    }

    /// Multiply-adds of a forward pass of one image: patches, kernels, MLPs and head.
    pub fn multiply_adds(&self) -> usize {
        let grid = self.image_size / self.patch.max(1);
        let (places, w) = (grid * grid, self.width);
        let patches = places * self.channels * self.patch * self.patch * w;
        let block = places * w * (self.kernel * self.kernel + 2 * self.hidden());
        patches + self.depth * block + w * self.classes
    }

    /// Reads the sizes off weights. The images' size leaves no trace in them.
    ///
    /// # Errors
    /// If the weights are not those of an isotropic ConvNeXt, named with what is missing or
    /// misshapen.
    pub fn infer(
        weights: &Weights,
        image_size: usize,
    ) -> std::result::Result<ConvNextShape, ShapeError> {
        let [width, channels, patch, _] = dims(weights, "stem.weight")?;
        let [_, _, kernel, _] = dims(weights, "blocks.0.conv_dw.weight")?;
        let [hidden, _] = dims(weights, "blocks.0.mlp.fc1.weight")?;
        let [classes, _] = dims(weights, "head.weight")?;
        let shape = ConvNextShape {
            image_size,
            channels,
            patch,
            depth: count(weights, |i| format!("blocks.{i}.conv_dw.weight")),
            width,
            kernel,
            mlp_ratio: hidden as f64 / width.max(1) as f64,
            classes,
        };
        shape.validate()?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }

    /// Name and shape of every weight, in the order of the forward pass; all are trained.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (h, k, p, m) = (self.width, self.kernel, self.patch, self.hidden());
        let mut out = Vec::new();
        let mut layer = |name: &str, shape: Vec<usize>| {
            let bias = vec![shape[0]];
            out.push((format!("{name}.weight"), shape));
            out.push((format!("{name}.bias"), bias));
        };
        layer("stem", vec![h, self.channels, p, p]);
        for i in 0..self.depth {
            layer(&format!("blocks.{i}.conv_dw"), vec![h, 1, k, k]);
            layer(&format!("blocks.{i}.norm"), vec![h]);
            layer(&format!("blocks.{i}.mlp.fc1"), vec![m, h]);
            layer(&format!("blocks.{i}.mlp.fc2"), vec![h, m]);
        }
        layer("norm", vec![h]);
        layer("head", vec![self.classes, h]);
        out
    }

    /// Weights as PyTorch draws them: convolutions and linear layers, weight and bias alike, uniform
    /// within `1 / sqrt(fan_in)` of zero; norms the identity. (ConvNeXt's own start is a normal
    /// distribution of 0.02; the papers that start here replace it by this one.) The same seed gives
    /// the same weights.
    ///
    /// # Errors
    /// When the shape is not valid.
    pub fn initialise(&self, seed: u64) -> Result<Weights> {
        self.validate().map_err(candle_core::Error::wrap)?;
        pytorch_default(self.parameters(), |name| name.contains("norm."), seed)
    }
}

/// Class scores, in training and in evaluation.
///
/// # Shapes
/// `images` (b, channels, height, width) gives (b, classes).
///
/// # Errors
/// When the shape is not valid, a weight is missing, or a size disagrees with the shape.
pub fn logits(shape: &ConvNextShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    shape.validate().map_err(candle_core::Error::wrap)?;
    let weights = Checked::new("convnext", weights);
    let (h, k, p, m) = (shape.width, shape.kernel, shape.patch, shape.hidden());
    let pair = |name: &str, dims: &[usize]| -> Result<(&Tensor, &Tensor)> {
        let weight = weights.get(&format!("{name}.weight"), dims)?;
        Ok((weight, weights.get(&format!("{name}.bias"), &dims[..1])?))
    };
    let (w, b) = pair("stem", &[h, shape.channels, p, p])?;
    let images = crate::checked_images(images, shape.channels, shape.image_size, w)?;
    let g = shape.image_size / p;
    let patches = patchify(&images, p)?.reshape((images.dim(0)?, g, g, ()))?; // (b, g, g, c p p)
    let mut z = linear(&patches, &w.reshape((h, ()))?, b)?; // (b, g, g, h)
    for i in 0..shape.depth {
        let (w, b) = pair(&format!("blocks.{i}.conv_dw"), &[h, 1, k, k])?;
        let x = depthwise_conv(&z, &w.reshape((h, k, k))?, b)?;
        let (w, b) = pair(&format!("blocks.{i}.norm"), &[h])?;
        let x = layer_norm(&x, w, b, EPS)?;
        let (w, b) = pair(&format!("blocks.{i}.mlp.fc1"), &[m, h])?;
        let x = gelu(&linear(&x, w, b)?)?; // (b, g, g, m)
        let (w, b) = pair(&format!("blocks.{i}.mlp.fc2"), &[h, m])?;
        z = (z + linear(&x, w, b)?)?;
    }
    let (w, b) = pair("norm", &[h])?;
    let pooled = layer_norm(&mean_over_pixels(&z)?, w, b, EPS)?; // (b, h)
    let (w, b) = pair("head", &[shape.classes, h])?;
    linear(&pooled, w, b)
}

#[cfg(test)]
#[path = "convnext_tests.rs"]
mod tests;
