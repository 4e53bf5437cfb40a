//! Networks as pure functions of a weight map, with the names and shapes of every weight.
//!
//! 1. A file's tensors may have any project's names. [`import`] converts them to timm's.
//! 2. [`Network::recognise`] identifies the network by its weights, and infers its sizes.
//! 3. A shape, such as [`vit::VitShape`], lists the name and dimensions of every weight.
//!    [`check_weights`] compares a map with that list.
//! 4. [`vit::stack`] stacks the layers of a transformer in memory, and [`vit::unstack`] separates them.
//! 5. [`vit::logits`], and the same function in the other modules, computes logits from images. Gradients
//!    flow to the weights, except in inference-only networks. Each fails if a weight is missing or misshapen.
//!
//! [`Network`] combines all of them in one enum; [`Frozen`] is the interface of networks that are not trained.
//!
//! A transformer whose weights are all zero outputs the bias of its classifier:
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use wave_models::{Weights, vit};
//!
//! let shape = vit::VitShape {
//!     image_size: 28,
//!     channels: 1,
//!     patch: 7,
//!     classes: 2,
//!     ..vit::VitShape::default().with_size(3, 64)
//! };
//! let mut weights = Weights::new();
//! for (name, dims) in shape.stacked_parameters() {
//!     weights.insert(name, Tensor::zeros(dims, DType::F32, &Device::Cpu)?);
//! }
//! weights.insert("head.bias".into(), Tensor::new(&[1f32, -1.], &Device::Cpu)?);
//!
//! let images = Tensor::ones((5, 1, 28, 28), DType::F32, &Device::Cpu)?;
//! let logits = vit::logits(&shape, &weights, &images, None)?;
//! assert_eq!(logits.to_vec2::<f32>()?, [[1., -1.]; 5]);
//! # Ok::<(), candle_core::Error>(())
//! ```

#[cfg(test)]
mod ancestors_tests;
pub mod convmixer;
pub mod convnext;
mod dilation;
mod heads;
mod initial;
mod network;
pub mod resample;
#[cfg(test)]
#[path = "../../wave-ancestors/src/testing.rs"]
mod testing;
pub mod transformer;
pub mod transformers;
mod unsupported;
pub mod vit;
pub mod zero_shot;

pub use dilation::Dilations;
pub use heads::known_heads;
pub use network::Network;
pub use transformers::import;
pub use wave_ancestors::{
    About, Activation, Checked, Frozen, FrozenNetwork, NetworkError, Refusal, ShapeError, Weights,
    check_weights, checked_images, default_patch, efficientnet, levit, mean_over_pixels, refuse,
};
pub use zero_shot::{DualEncoder, ZeroShotShape};

use wave_ancestors::frozen;
pub use wave_ancestors::{check, fold};
