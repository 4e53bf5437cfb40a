//! Networks as pure functions of a weight map, with the names and shapes of every weight.
//!
//! Names are timm's, so that what is written loads there without a map; [`import`] brings other
//! projects' names to them. [`Network`] is all networks of images in one, and [`Frozen`] the way of all
//! that are not trained; those of token sequences are in [`sequence`], and many small networks side by side
//! in [`population`].

mod activation;
pub mod ancestors;
pub mod convmixer;
pub mod convnext;
mod dilation;
pub mod efficientnet;
mod fold;
mod frozen;
mod heads;
mod initial;
pub mod levit;
mod network;
pub mod population;
pub mod positional;
pub mod resample;
pub mod sequence;
mod shape;
pub mod small;
#[cfg(test)]
mod testing;
pub mod transformer;
pub mod transformers;
mod unsupported;
pub mod vit;

pub use activation::Activation;
pub use ancestors::{About, Frozen, FrozenNetwork};
pub use dilation::Dilations;
pub use heads::known_heads;
pub use network::Network;
pub use population::PopulationShape;
pub use sequence::{Mixer, SequenceShape};
pub use shape::{ShapeError, check_weights, default_patch};
pub use transformers::import;

use candle_core::{Device, Result, Tensor};
use std::collections::BTreeMap;

/// Weights by name.
pub type Weights = BTreeMap<String, Tensor>;

/// Images that are (b, channels, size, size), on the device of a weight.
fn checked_images(
    images: &Tensor,
    channels: usize,
    size: usize,
    weight: &Tensor,
) -> Result<Tensor> {
    images_on(weight.device(), images, channels, size)
}

/// Images that are (b, channels, size, size), on this device.
fn images_on(device: &Device, images: &Tensor, channels: usize, size: usize) -> Result<Tensor> {
    match images.dims() {
        [_, c, h, w] if (*c, *h, *w) == (channels, size, size) => images.to_device(device),
        found => candle_core::bail!(
            "images of shape {found:?}, the model takes (b, {channels}, {size}, {size}); resize \
             them"
        ),
    }
}

/// The mean of `z` (b, g, g, h) over its pixels, (b, h): as a matrix product, which is many times
/// faster on the CPU than a reduction over a middle dimension.
fn mean_over_pixels(z: &Tensor) -> Result<Tensor> {
    let z = z.flatten(1, 2)?; // (b, n, h)
    let (b, n, _) = z.dims3()?;
    let share = Tensor::full(1.0 / n as f64, (b, 1, n), z.device())?.to_dtype(z.dtype())?;
    share.matmul(&z)?.squeeze(1)
}

/// Checked access to the weight map of a network of this name.
#[derive(Clone, Copy)]
struct Checked<'a> {
    network: &'static str,
    weights: &'a Weights,
}

impl<'a> Checked<'a> {
    fn new(network: &'static str, weights: &'a Weights) -> Checked<'a> {
        Checked { network, weights }
    }

    fn get(self, name: &str, dims: &[usize]) -> Result<&'a Tensor> {
        let network = self.network;
        match self.weights.get(name) {
            Some(t) if t.dims() == dims => Ok(t),
            Some(t) => candle_core::bail!(
                "{network}: weight {name} has shape {:?}, expected {dims:?}; \
                 check that the shape is that of these weights",
                t.dims()
            ),
            None => candle_core::bail!(
                "{network}: weight {name} of shape {dims:?} is missing; \
                 check the depth and that the names are timm's"
            ),
        }
    }
}
