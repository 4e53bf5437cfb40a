//! Networks as pure functions of a weight map, with the names and shapes of every weight.
//!
//! Names are timm's, so that what is written loads there without a map; [`import`] brings other
//! projects' names to them. [`Network`] is all networks in one.

mod activation;
pub mod convmixer;
pub mod efficientnet;
mod fold;
mod frozen;
pub mod levit;
mod network;
mod shape;
#[cfg(test)]
mod testing;
pub mod transformers;
pub mod vit;

pub use activation::Activation;
pub use network::Network;
pub use shape::{ShapeError, check_weights};
pub use transformers::import;

use candle_core::{Result, Tensor};
use std::collections::BTreeMap;

/// Weights by name.
pub type Weights = BTreeMap<String, Tensor>;

/// Checks that images are (b, channels, size, size).
fn check_images(images: &Tensor, channels: usize, size: usize) -> Result<()> {
    match images.dims() {
        [_, c, h, w] if (*c, *h, *w) == (channels, size, size) => Ok(()),
        found => candle_core::bail!(
            "images of shape {found:?}, the model takes (b, {channels}, {size}, {size}); resize \
             them"
        ),
    }
}
