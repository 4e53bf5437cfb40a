//! The method: weight templates, scalers, and the weights of any vision transformer from them.
//!
//! WAVE writes the weights of one part of layer `l` as a sum of Kronecker products (equation 3):
//!
//! ```text
//! W_l = sum_i  S_{l,i} (x) T_i        T_i: (t, t) shared by all layers
//!                                     S_{l,i}: (r, c), the scalers of layer l
//! ```
//!
//! 1. A [`Part`] is one of the four composed weights of a transformer block. A [`Plan`] says which set
//!    of templates composes which part, and how many templates a set holds.
//! 2. Scalers start as [`ramp_scalers`], [`random_scalers`], [`telg_scalers`] or [`share_scalers`].
//! 3. A [`Learngene`] consists of templates, a *scaler bank* and inherited weights. The bank holds
//!    scalers at a few depth anchors and one width.
//! 4. [`Sizes`] samples the shapes of each step of a condensation. [`Objective`] is its loss.
//! 5. [`Learngene::scalers`] reads the bank at any depth and width, [`Learngene::inherited`] the other weights.
//! 6. [`compose()`] turns templates and scalers into the weights of all layers, differentiably.
//! 7. [`Learngene::with_delta`] adapts the learngene, and so models of all sizes, to other data.
//! 8. [`Learngene::nearer`] is the reverse: it moves templates and scalers towards given weights.
//!
//! This crate has no data, training loop, files or random generator: the caller passes sampling functions.
//!
//! A transformer of five layers of width 128, from two anchors of width 64:
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use wave_learngene::{DepthRule, Learngene, Plan, random_scalers};
//! use wave_models::vit::VitShape;
//!
//! let auxiliary = VitShape {
//!     image_size: 28,
//!     channels: 1,
//!     patch: 7,
//!     classes: 10,
//!     ..VitShape::default().with_size(2, 64)
//! };
//! let plan = Plan::default_budget(64, 32);
//! let zeros = |dims: &[usize]| Tensor::zeros(dims, DType::F32, &Device::Cpu);
//! let mut drawn = (0..).map(|i| (i as f32).sin()); // in place of a random generator
//!
//! let ones = |n: usize| Tensor::ones((n, 32, 32), DType::F32, &Device::Cpu);
//! let templates = plan.counts.iter().map(|(set, n)| Ok((set.clone(), ones(*n)?)));
//! let templates = templates.collect::<candle_core::Result<_>>()?;
//! let normal = &mut || drawn.next().unwrap_or(0.0);
//! let bank = random_scalers(&plan, &templates, &auxiliary, 2, 0.02, normal)?;
//! let inherited = auxiliary.stacked_parameters().into_iter();
//! let inherited = inherited
//!     .filter(|(name, _)| !plan.composes(name))
//!     .map(|(name, dims)| Ok((name, zeros(&dims)?)))
//!     .collect::<candle_core::Result<_>>()?;
//! let depth_rule = DepthRule::LastIsOne;
//! let learngene = Learngene { plan, templates, bank, inherited, auxiliary, depth_rule, smaller: vec![] };
//!
//! let descendant = learngene.shape(5, 128, None)?;
//! let weights = learngene.weights(&descendant)?;
//! assert_eq!(weights["blocks.4.attn.qkv.weight"].dims(), [384, 128]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bank;
mod compose;
mod delta;
mod draw;
mod first_scalers;
mod learngene;
mod levels;
mod nearest;
mod objective;
mod part;
mod plan;
mod repeat;
#[cfg(test)]
mod testing;

pub use bank::DepthRule;
pub use compose::{Scalers, Templates, compose};
pub use draw::{Sizes, Variants};
pub use first_scalers::{
    ramp_scalers, random_scalers, seed_templates, share_scalers, telg_scalers,
};
pub use learngene::Learngene;
pub use levels::{Level, Reach};
pub use nearest::factorised;
pub use objective::{Objective, Standard, divergence, feature_distance, unit};
pub use part::Part;
pub use plan::Plan;
pub use wave_ops::Kronecker;
