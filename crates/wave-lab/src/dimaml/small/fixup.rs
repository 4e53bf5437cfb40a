//! A residual network without norms, in the form that Fixup initialises (Zhang et al. 2019, figure 1).
//!
//! ```text
//! stem    x = relu(conv(x) + b)                            3 x 3, stride 2
//! block   x = relu(r(x + b1) + s conv2(relu(conv1(x + b1) + b2) + b3) + b4)     3 x 3, once for each block
//!         r(x + b1): x, or a convolution of x + b1 by 1 x 1, stride 2, in the first block of a further stage
//! head    logits = W (mean over pixels + b) + c
//! ```
//!
//! Each stage after the first begins by halving the resolution and doubling the channels: 4 stages with 2
//! blocks each are a ResNet-18. `b`, `b1` to `b4` and `s` are scalars. The default initialisation is Fixup's
//! (Kaiming's, scaled by B^(-1/2) in the first convolution of the B blocks, and zero in the second and in
//! the head), so that every residual branch is 0.

use super::{Parameter, Parameters, Usual};
use candle_core::{Result, Tensor};
use serde::Serialize;
use wave_models::check::{refuse_value, sizes};
use wave_models::fold::get;
use wave_models::{ShapeError, Weights};
use wave_ops::stock;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FixupShape {
    pub image_size: usize,
    pub channels: usize,
    /// Channels of the first stage's convolutions.
    pub width: usize,
    /// Number of residual blocks, a multiple of the stages.
    pub blocks: usize,
    pub stages: usize,
    pub classes: usize,
}

impl FixupShape {
    /// Channels into and out of block `l`, which differ where a stage begins that halves the resolution.
    fn channels_of(&self, l: usize) -> (usize, usize) {
        let of_stage = self.blocks / self.stages;
        let width = |block: usize| self.width << (block / of_stage);
        (width(l.saturating_sub(1)), width(l))
    }

    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        if !(1..=8).contains(&self.stages) || !self.blocks.is_multiple_of(self.stages) {
            let found = format!("{} of {} blocks", self.stages, self.blocks);
            return refuse_value("stages", found, "1 to 8, a divisor of the number of blocks");
        }
        sizes(&[("width", self.width), ("blocks", self.blocks)])
    }

    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = Parameters::default();
        let b = self.blocks as f64;
        // By fan-out, as in the paper.
        let kaiming = |out: usize, pixels: usize| (2.0 / (out * pixels) as f64).sqrt();
        let zero = Usual::Constant(0.0);
        let mut w = self.width;
        let stem = Usual::Normal(kaiming(w, 9));
        all.add("stem.weight", &[w, self.channels, 3, 3], stem);
        all.add("stem.bias", &[1], zero);
        for l in 0..self.blocks {
            let at = |name: &str| format!("blocks.{l}.{name}");
            let before = w;
            w = self.channels_of(l).1;
            let first = Usual::Normal(kaiming(w, 9) / b.sqrt());
            all.add(at("bias1"), &[1], zero);
            if before != w {
                let shortcut = Usual::Normal(kaiming(w, 1));
                all.add(at("shortcut.weight"), &[w, before, 1, 1], shortcut);
            }
            all.add(at("conv1.weight"), &[w, before, 3, 3], first);
            all.add(at("bias2"), &[1], zero);
            all.add(at("bias3"), &[1], zero);
            all.add(at("conv2.weight"), &[w, w, 3, 3], zero);
            all.add(at("scale"), &[1], Usual::Constant(1.0));
            all.add(at("bias4"), &[1], zero);
        }
        all.add("head.shift", &[1], zero);
        all.add("head.weight", &[self.classes, w], zero);
        all.add("head.bias", &[self.classes], zero);
        all.0
    }
}

/// Logits (b, classes) of `images` (b, c, h, w).
pub fn logits(shape: &FixupShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let w = |name: &str| get(weights, name);
    let (c, size) = (shape.channels, shape.image_size);
    let x = wave_models::checked_images(images, c, size, w("stem.weight")?)?;
    let shifted = |x: &Tensor, name: &str| x.broadcast_add(w(name)?);
    let x = x.conv2d(w("stem.weight")?, 1, 2, 1, 1)?;
    let mut x = shifted(&x, "stem.bias")?.relu()?;
    for l in 0..shape.blocks {
        let (before, after) = shape.channels_of(l);
        let branch = branch(weights, l, &x, before != after)?;
        if before != after {
            let w = |name: &str| get(weights, &format!("blocks.{l}.{name}"));
            let shifted = every_second(&x.broadcast_add(w("bias1")?)?)?;
            x = shifted.conv2d(w("shortcut.weight")?, 0, 1, 1, 1)?;
        }
        x = (x + branch)?.relu()?;
    }
    let x = shifted(&x.mean((2, 3))?, "head.shift")?; // (b, width)
    stock::linear(&x, w("head.weight")?, w("head.bias")?)
}

/// The residual branch of block `l`, which halves the resolution if `halves`.
pub fn branch(weights: &Weights, l: usize, x: &Tensor, halves: bool) -> Result<Tensor> {
    let w = |name: &str| get(weights, &format!("blocks.{l}.{name}"));
    let shifted = |x: &Tensor, name: &str| x.broadcast_add(w(name)?);
    let mut x = shifted(x, "bias1")?.conv2d(w("conv1.weight")?, 1, 1, 1, 1)?;
    if halves {
        x = every_second(&x)?; // a stride of 2, of operators with second derivatives
    }
    let x = shifted(&x, "bias2")?.relu()?;
    let x = shifted(&x, "bias3")?.conv2d(w("conv2.weight")?, 1, 1, 1, 1)?;
    shifted(&x.broadcast_mul(w("scale")?)?, "bias4")
}

/// Every second row and column, from the first on: (b, c, h, w) gives (b, c, ⌈h / 2⌉, ⌈w / 2⌉).
pub(super) fn every_second(x: &Tensor) -> Result<Tensor> {
    let (b, c, h, w) = x.dims4()?;
    let x = x.pad_with_zeros(2, 0, h % 2)?.pad_with_zeros(3, 0, w % 2)?;
    let (h, w) = (h.div_ceil(2), w.div_ceil(2));
    let x = x.reshape(&[b, c, h, 2, w, 2])?;
    let x = x.narrow(3, 0, 1)?.narrow(5, 0, 1)?;
    x.contiguous()?.reshape((b, c, h, w))
}
