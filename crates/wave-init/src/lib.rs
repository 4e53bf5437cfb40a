//! Ways to fill a weight map: closed-form and transfer initialisation.
//!
//! # Brief overview
//!
//! [`METHODS`] lists every starting point of a vision transformer, and [`find`] finds one by name.
//! All have one seam: a [`Request`] of a shape, the [`Donor`]s the method asks for, [`Choices`] and a
//! seed goes in, a [`Start`] of a complete weight map under timm's names and its [`Cost`] comes out.
//!
//! - [`direct`] starts know only the shape: [`initialise`] and the pieces it is made of
//!   ([`random`], [`mimetic`], [`sinusoidal_positions`], [`mlp`]), and the methods built on it;
//! - [`transfer`] starts take weights from a trained model; [`transfer::ligo`] is also a
//!   differentiable function of its operator, for those who train that;
//! - [`graph`] is a hypernetwork that predicts weights, and was trained to do so;
//! - [`learned`] are distributions whose parameters are trained, and what they are compared with;
//! - [`filters`] are the starts of a ConvMixer and an isotropic ConvNeXt, [`positional`] those of transformers
//!   with positional attention, [`state_space`] those of sequence networks, [`population`] those of many small
//!   networks at once, with the statistics that are taken over them;
//! - [`ledger`] counts what a start carries over, as papers' tables do.
//!
//! Every tensor is `f32` on the CPU, and every tensor draws from a generator of its own, derived from
//! the seed and the tensor's place in the network: the result depends neither on the number of threads
//! nor on the depth, so layer 3 of a 6-layer network equals layer 3 of a 12-layer one.
//!
//! ```
//! use wave_init::{Choices, Donor, Request, find};
//! use wave_models::vit::VitShape;
//!
//! let shape = VitShape {
//!     image_size: 28,
//!     channels: 1,
//!     patch: 7,
//!     classes: 10,
//!     ..VitShape::default().with_size(2, 64)
//! };
//! let choices = Choices::default();
//! let request = |shape, donors| Request { shape, donors, choices: &choices, seed: 0 };
//! let trained = find("mimetic")?.start(&request(&shape, &[]))?; // as if it were
//!
//! let deeper = shape.with_size(3, 64);
//! let donors = [Donor::new(shape.clone(), trained.weights)?];
//! let start = find("share")?.start(&request(&deeper, &donors))?;
//! assert_eq!(start.weights["blocks.2.attn.qkv.weight"].dims(), [192, 64]);
//! assert!(start.cost.transferred < donors[0].shape().parameter_count());
//! # Ok::<(), wave_init::InitError>(())
//! ```

pub mod choices;
pub mod direct;
mod error;
pub mod filters;
pub mod graph;
pub mod learned;
pub mod ledger;
pub mod mimetic;
pub mod mlp;
mod options;
pub mod population;
pub mod positional;
mod positions;
pub mod random;
mod registry;
mod start;
pub mod state_space;
#[cfg(test)]
mod testing;
pub mod transfer;

pub use choices::Choices;
pub use direct::initialise;
pub use error::InitError;
pub use ledger::{Cost, Ledger};
pub use mimetic::VpLayout;
pub use mlp::MlpMean;
pub use options::{Base, Method, Options, Positions, VitDims};
pub use positions::sinusoidal_positions;
pub use registry::{METHODS, find};
pub use start::{Donor, Request, Spent, Start, StartMethod};
