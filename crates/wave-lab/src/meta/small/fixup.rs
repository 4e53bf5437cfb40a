//! A residual network without norms, in the form that Fixup starts (Zhang et al. 2019, figure 1).
//!
//! ```text
//! stem    x = relu(conv(x) + b)                            3 x 3, stride 2
//! block   x = relu(x + s conv2(relu(conv1(x + b1) + b2) + b3) + b4)     3 x 3, once for each block
//! head    logits = W (mean over pixels + b) + c
//! ```
//!
//! `b`, `b1` to `b4` and `s` are single numbers. The usual start of this network is Fixup's
//! (Kaiming's, B^(-1/2) of it in the first convolution of the B blocks, and zero in the second and in
//! the head), so that every residual branch is 0.

use super::{Parameter, Usual, weight};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use wave_models::check::sizes;
use wave_models::{ShapeError, Weights};
use wave_ops::stock;

/// Sizes of a residual network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixupShape {
    /// Height and width of an image.
    pub image_size: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Channels of every convolution.
    pub width: usize,
    /// Number of residual blocks.
    pub blocks: usize,
    /// Number of classes.
    pub classes: usize,
}

impl FixupShape {
    /// Checks that the sizes are possible.
    ///
    /// # Errors
    /// Names the size that is not.
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        sizes(&[
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("width", self.width),
            ("blocks", self.blocks),
            ("classes", self.classes),
        ])
    }

    /// All weights, in the order of the network.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = Vec::new();
        let mut add = |name: String, dims: &[usize], usual: Usual| {
            all.push(Parameter::new(name, dims, usual));
        };
        let (w, b) = (self.width, self.blocks as f64);
        // Kaiming's by the outputs, which is what the paper takes.
        let kaiming = (2.0 / (w * 9) as f64).sqrt();
        let zero = Usual::Constant(0.0);
        add(
            "stem.weight".into(),
            &[w, self.channels, 3, 3],
            Usual::Normal(kaiming),
        );
        add("stem.bias".into(), &[1], zero);
        for l in 0..self.blocks {
            let at = |name: &str| format!("blocks.{l}.{name}");
            let first = Usual::Normal(kaiming / b.sqrt());
            add(at("bias1"), &[1], zero);
            add(at("conv1.weight"), &[w, w, 3, 3], first);
            add(at("bias2"), &[1], zero);
            add(at("bias3"), &[1], zero);
            add(at("conv2.weight"), &[w, w, 3, 3], zero);
            add(at("scale"), &[1], Usual::Constant(1.0));
            add(at("bias4"), &[1], zero);
        }
        add("head.shift".into(), &[1], zero);
        add("head.weight".into(), &[self.classes, w], zero);
        add("head.bias".into(), &[self.classes], zero);
        all
    }
}

/// Class scores (b, classes) of `images` (b, c, h, w).
///
/// # Errors
/// If a weight is missing, or sizes contradict `shape`.
pub fn logits(shape: &FixupShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let w = |name: &str| weight(weights, name);
    let (c, size) = (shape.channels, shape.image_size);
    let x = wave_models::checked_images(images, c, size, w("stem.weight")?)?;
    let shifted = |x: &Tensor, name: &str| x.broadcast_add(w(name)?);
    let x = x.conv2d(w("stem.weight")?, 1, 2, 1, 1)?;
    let mut x = shifted(&x, "stem.bias")?.relu()?;
    for l in 0..shape.blocks {
        x = (&x + branch(weights, l, &x)?)?.relu()?;
    }
    let x = shifted(&x.mean((2, 3))?, "head.shift")?; // (b, width)
    stock::linear(&x, w("head.weight")?, w("head.bias")?)
}

/// The residual branch of block `l`.
///
/// # Errors
/// If a weight is missing, or sizes contradict each other.
pub fn branch(weights: &Weights, l: usize, x: &Tensor) -> Result<Tensor> {
    let w = |name: &str| weight(weights, &format!("blocks.{l}.{name}"));
    let shifted = |x: &Tensor, name: &str| x.broadcast_add(w(name)?);
    let x = shifted(x, "bias1")?.conv2d(w("conv1.weight")?, 1, 1, 1, 1)?;
    let x = shifted(&x, "bias2")?.relu()?;
    let x = shifted(&x, "bias3")?.conv2d(w("conv2.weight")?, 1, 1, 1, 1)?;
    shifted(&x.broadcast_mul(w("scale")?)?, "bias4")
}
