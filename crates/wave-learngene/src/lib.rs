//! The method: weight templates, scalers, and the weights of any vision transformer from them.
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
//! - [`Part`] names the four composed weights of a transformer block; a [`Plan`] says which set of
//!   templates composes which, and how many templates it holds;
//! - [`compose()`] turns templates and scalers into the weights of all layers, differentiably;
//! - a [`Learngene`] is templates, *scaler bank* and inherited weights together: the bank holds
//!   scalers at a few anchors of depth and at one width, which [`interpolate_depth`] reads at any
//!   depth and [`resize_scalers`] at any width ([`gather_width`] does so for inherited weights);
//! - [`Sizes`] says which depth and width each step of a condensation draws, [`Objective`] what it
//!   minimises;
//! - [`ramp_scalers`], [`random_scalers`], [`telg_scalers`] and [`share_scalers`] are first scalers;
//! - [`factorise()`] goes back: from weights to the nearest templates and scalers, in closed form.
//!
//! No data, no loop, no files, and no random generator of its own: where something is drawn, the
//! caller passes what draws it.

mod bank;
mod compose;
mod draw;
mod factorise;
mod learngene;
mod objective;
mod part;
mod plan;
mod start;
#[cfg(test)]
mod testing;

pub use bank::{
    DepthRule, depth_matrix, gather_blocks, gather_width, interpolate_depth, resize_scalers,
};
pub use compose::{Scalers, Templates, compose};
pub use draw::Sizes;
pub use factorise::{Factorised, factorise};
pub use learngene::Learngene;
pub use objective::{Objective, divergence};
pub use part::Part;
pub use plan::{Plan, PlanError};
pub use start::{ramp_scalers, random_scalers, seed_templates, share_scalers, telg_scalers};
pub use wave_ops::Kronecker;
