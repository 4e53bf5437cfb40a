//! The convolutional autoencoder of DIMAML (section 3.1; Ghosh et al. 2020), with any number of layers.
//!
//! ```text
//! encoder   x = relu(norm(conv(x)))            5 x 5, stride 2, padding 1, once for each width
//!           z = W x + b                        (latent)
//! decoder   x = W z + b, relu(norm(deconv(x))) back through the same sizes; the last without norm, relu
//! loss      mean (x - image)²
//! ```
//!
//! Norms are batch norms with the statistics of the current batch, in training and in validation. There
//! are no running statistics.

use super::{Parameter, Parameters, Usual};
use candle_core::{Result, Tensor};
use serde::Serialize;
use wave_models::check::{refuse_value, sizes};
use wave_models::fold::get;
use wave_models::{ShapeError, Weights};
use wave_ops::stock;

/// Side, stride and padding of every kernel.
const KERNEL: usize = 5;
const STRIDE: usize = 2;
const PADDING: usize = 1;

/// Added to the variance in norms.
const EPS: f64 = 1e-5;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AutoencoderShape {
    pub image_size: usize,
    pub channels: usize,
    /// Channels after each convolution.
    pub widths: Vec<usize>,
    /// Size of the latent vector.
    pub latent: usize,
}

impl AutoencoderShape {
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        let narrowest = self.widths.iter().min().copied().unwrap_or(0);
        sizes(&[("widths", narrowest), ("latent", self.latent)])?;
        let before_last = self.sides()[self.widths.len() - 1];
        if before_last + 2 * PADDING < KERNEL {
            let found = format!("{} layers on {} pixels", self.widths.len(), self.image_size);
            let expected =
                "fewer widths: each layer halves the image, and kernels are 5 pixels wide";
            return refuse_value("widths", found, expected);
        }
        Ok(())
    }

    /// Side of the image before the first convolution and after each.
    fn sides(&self) -> Vec<usize> {
        let mut sides = vec![self.image_size];
        for _ in &self.widths {
            let side = sides[sides.len() - 1] + 2 * PADDING;
            sides.push(side.saturating_sub(KERNEL) / STRIDE + 1);
        }
        sides
    }

    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = Parameters::default();
        let sides = self.sides();
        let channels = [&[self.channels], &self.widths[..]].concat(); // before the first layer and after each
        let (layers, taps) = (self.widths.len(), KERNEL * KERNEL);
        let (side, width) = (sides[layers], channels[layers]);
        let features = width * side * side;
        for l in 0..layers {
            let (at, from, to) = (format!("encoder.{l}"), channels[l], channels[l + 1]);
            let usual = Usual::of_inputs(from * taps);
            all.add(format!("{at}.weight"), &[to, from, KERNEL, KERNEL], usual);
            norm(&mut all, &at, to);
        }
        all.map("encoder.latent", self.latent, features);
        all.map("decoder.latent", features, self.latent);
        for l in (0..layers).rev() {
            let (at, from, to) = (format!("decoder.{l}"), channels[l + 1], channels[l]);
            // Here too, PyTorch takes the second dimension as the fan-in.
            let usual = Usual::of_inputs(to * taps);
            all.add(format!("{at}.weight"), &[from, to, KERNEL, KERNEL], usual);
            match l {
                0 => all.add(format!("{at}.bias"), &[to], usual),
                _ => norm(&mut all, &at, to),
            }
        }
        all.0
    }
}

/// The parameters of a batch norm.
fn norm(all: &mut Parameters, at: &str, channels: usize) {
    for (part, value) in [("weight", 1.0), ("bias", 0.0)] {
        let usual = Usual::Constant(value);
        all.add(format!("{at}.norm.{part}"), &[channels], usual);
    }
}

/// Mean squared error of the reconstruction of `images` (b, c, h, w).
pub fn loss(shape: &AutoencoderShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let errors = (reconstruct(shape, weights, images)? - images)?;
    errors.sqr()?.mean_all()
}

/// The reconstruction of `images`, of the same shape.
pub fn reconstruct(shape: &AutoencoderShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let w = |name: &str| get(weights, name);
    let (sides, layers, b) = (shape.sides(), shape.widths.len(), images.dim(0)?);
    let (c, size) = (shape.channels, shape.image_size);
    let mut x = wave_models::checked_images(images, c, size, w("encoder.0.weight")?)?;
    let norm = |x: Tensor, at: &str| -> Result<Tensor> {
        let scale = |name: &str| w(&format!("{at}.norm.{name}"))?.reshape((1, (), 1, 1));
        batch_norm(&x)?
            .broadcast_mul(&scale("weight")?)?
            .broadcast_add(&scale("bias")?)?
            .relu()
    };
    for l in 0..layers {
        let at = format!("encoder.{l}");
        x = x.conv2d(w(&format!("{at}.weight"))?, PADDING, STRIDE, 1, 1)?;
        x = norm(x, &at)?;
    }
    let inner = x.dims().to_vec();
    let linear = |x: &Tensor, at: &str| {
        stock::linear(x, w(&format!("{at}.weight"))?, w(&format!("{at}.bias"))?)
    };
    let z = linear(&x.reshape((b, ()))?, "encoder.latent")?; // (b, latent)
    x = linear(&z, "decoder.latent")?.reshape(inner)?;
    for l in (0..layers).rev() {
        let at = format!("decoder.{l}");
        let missing = sides[l] + 2 * PADDING - KERNEL - STRIDE * (sides[l + 1] - 1);
        let kernel = w(&format!("{at}.weight"))?;
        x = x.conv_transpose2d(kernel, PADDING, missing, STRIDE, 1)?;
        x = match l {
            0 => x.broadcast_add(&w(&format!("{at}.bias"))?.reshape((1, (), 1, 1))?)?,
            _ => norm(x, &at)?,
        };
    }
    Ok(x)
}

/// `x` (b, c, h, w) normalised to mean 0 and variance 1 in each channel.
fn batch_norm(x: &Tensor) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim((0, 2, 3))?)?;
    let var = centred.sqr()?.mean_keepdim((0, 2, 3))?;
    centred.broadcast_div(&(var + EPS)?.sqrt()?)
}
