//! Weight templates, scalers and their composition.
//!
//! # Overview
//!
//! WAVE writes the weights of one part of layer `l` as a sum of Kronecker products (equation 3):
//!
//! ```text
//! W_l = sum_i  S_{l,i} (x) T_i        T_i: (t, t) shared by all layers
//!                                     S_{l,i}: (r, c), the scalers of layer l
//! ```
//!
//! - [`Part`] names the four covered weights of a transformer block, [`BlockShape`] their sizes;
//! - [`Plan`] says which set of templates composes which part and how many templates it holds;
//! - [`compose()`] turns templates and scalers into the weights of all layers, differentiably;
//! - the *scaler bank* holds scalers at a few anchors of depth and at one width.
//!   [`interpolate_depth`] reads it at any depth, [`resize_scalers`] at any width, and
//!   [`gather_width`] does the same for the weights that templates do not cover;
//! - [`factorise()`] goes back: from weights to the nearest templates and scalers, in closed form;
//! - [`ramp_scalers`], [`random_scalers`], [`telg_scalers`] and [`share_scalers`] are places to
//!   start from.
//!
//! No data, no loop, no files, and no random generator: where noise is wanted, the caller passes a
//! function that draws it.

mod bank;
mod compose;
mod factorise;
mod part;
mod plan;
mod start;
#[cfg(test)]
mod testing;

pub use bank::{
    DepthRule, depth_matrix, gather_blocks, gather_width, interpolate_depth, resize_scalers,
};
pub use compose::{Scalers, Templates, compose, kronecker_sum};
pub use factorise::{Factorised, factorise};
pub use part::{BlockShape, Part};
pub use plan::{Kronecker, Plan, PlanError};
pub use start::{ramp_scalers, random_scalers, seed_templates, share_scalers, telg_scalers};
