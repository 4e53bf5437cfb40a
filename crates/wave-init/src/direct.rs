//! Methods in closed form: they know the shape of a model alone.

pub(crate) mod basic;
pub mod layer_scale;
pub mod mlp_mean;
pub mod t_fixup;
pub mod zero;
