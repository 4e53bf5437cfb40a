//! Initialisation of all weights of a network: closed-form and transfer methods.
//!
//! 1. [`find`] finds a method by name in [`METHODS`], the initialisations of a vision transformer.
//! 2. A [`Request`] is a shape, a [`Donor`] (trained model) if the method needs one, [`Choices`] and a seed.
//! 3. [`StartMethod::start`] returns a [`Start`]: all weights under timm's names, and their [`Cost`].
//! 4. [`direct`] methods depend only on the shape; [`transfer`] methods take weights from a donor.
//! 5. [`filters`] initialises ConvMixer and ConvNeXt.
//!
//! Every tensor is `f32` on the CPU, and has its own generator, derived from the seed and the tensor's place
//! in the network. So neither threads nor depth change it: layer 3 of 6 equals layer 3 of 12.
//!
//! With mimetic initialisation the product of value and projection is close to -0.4 times the identity:
//!
//! ```
//! use wave_init::{Choices, Request, find};
//! use wave_models::vit::VitShape;
//!
//! let shape = VitShape::default().with_size(2, 64);
//! let choices = Choices::default();
//! let request = Request { shape: &shape, donor: None, images: None, choices: &choices, seed: 0 };
//! let weights = find("mimetic")?.start(&request)?.weights;
//!
//! let value = weights["blocks.0.attn.qkv.weight"].narrow(0, 128, 64)?;
//! let product = weights["blocks.0.attn.proj.weight"].matmul(&value)?.to_vec2::<f32>()?;
//! let diagonal = (0..64).map(|i| product[i][i]).sum::<f32>() / 64.0;
//! assert!((diagonal + 0.4).abs() < 0.05, "{diagonal}");
//! # Ok::<(), wave_models::NetworkError>(())
//! ```

pub mod choices;
pub mod direct;
pub mod error;
mod fill;
pub mod filters;
pub mod indices;
pub mod mean_shift;
pub mod mimetic;
pub mod random;
mod registry;
mod sinusoidal;
mod start;
#[cfg(test)]
mod testing;
pub mod transfer;

pub use choices::{Choices, DirectMethod, Positions};
pub use error::Result;
pub use fill::initialise;
pub use mean_shift::MlpMean;
pub use registry::{METHODS, find};
pub use sinusoidal::sinusoidal_positions;
pub use start::{Cost, Donor, Request, Start, StartMethod};
