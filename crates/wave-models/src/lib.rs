//! Networks as pure functions of a weight map, with the names and shapes of every weight.
//!
//! Names are timm's, so that what is written loads there without a map; [`import`] brings other
//! projects' names to them. [`Network`] is all networks of images in one; those of token sequences are
//! in [`sequence`].

mod activation;
pub mod convmixer;
pub mod efficientnet;
mod fold;
mod frozen;
pub mod levit;
mod network;
pub mod positional;
pub mod sequence;
mod shape;
#[cfg(test)]
mod testing;
pub mod transformers;
pub mod vit;

pub use activation::Activation;
pub use network::Network;
pub use sequence::{Mixer, SequenceShape};
pub use shape::{ShapeError, check_weights};
pub use transformers::import;

use candle_core::{Result, Tensor};
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
    match images.dims() {
        [_, c, h, w] if (*c, *h, *w) == (channels, size, size) => images.to_device(weight.device()),
        found => candle_core::bail!(
            "images of shape {found:?}, the model takes (b, {channels}, {size}, {size}); resize \
             them"
        ),
    }
}
