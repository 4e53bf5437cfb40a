//! Ways to fill a weight map: closed-form and transfer initialisation.
//!
//! # Brief overview
//!
//! [`initialise`] turns the sizes of a vision transformer ([`VitDims`]), a set of choices
//! ([`Options`]) and a seed into a complete weight map under timm's names. The pieces it is made of
//! stand on their own:
//!
//! - [`random`]: seeded tensors with the usual distributions;
//! - [`mimetic`]: attention weights whose products mimic those of a trained transformer;
//! - [`sinusoidal_positions`]: the position embedding that mimetic attention relies on;
//! - [`mlp`]: the rank-one mean shift of the first MLP matrix.
//!
//! Every tensor is `f32` on the CPU, and every tensor draws from a generator of its own, derived from
//! the seed and the tensor's place in the network: the result depends neither on the number of threads
//! nor on the depth, so layer 3 of a 6-layer network equals layer 3 of a 12-layer one.
//!
//! ```
//! use wave_init::{Method, Options, VitDims, initialise};
//!
//! let dims = VitDims {
//!     depth: 2,
//!     width: 32,
//!     heads: 2,
//!     hidden: 128,
//!     patch_dim: (1, 7),
//!     grid: 4,
//!     classes: 10,
//!     class_token: false,
//! };
//! let weights = initialise(&dims, &Options::new(Method::Mimetic), 0)?;
//! assert_eq!(weights["blocks.1.attn.qkv.weight"].dims(), [96, 32]);
//! # Ok::<(), wave_init::InitError>(())
//! ```

mod direct;
mod error;
pub mod mimetic;
pub mod mlp;
mod options;
mod positions;
pub mod random;

pub use direct::initialise;
pub use error::InitError;
pub use mimetic::VpLayout;
pub use mlp::MlpMean;
pub use options::{Base, Method, Options, Positions, VitDims};
pub use positions::sinusoidal_positions;
