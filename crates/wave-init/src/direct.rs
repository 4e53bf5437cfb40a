//! Closed-form methods: they depend only on the shape of a model.

pub(crate) mod basic;
pub mod layer_scale;
pub mod mlp_mean;
pub mod t_fixup;
pub mod zero;
