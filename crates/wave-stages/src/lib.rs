//! The stages: what each command does to models and templates.
//!
//! 1. [`condense`] distils an [`ancestor`] into weight templates; [`cache`] keeps the ancestor's outputs.
//! 2. [`expand`] makes a model of any size from templates; [`budget`] chooses a size within limits.
//!    [`adapt`] fits templates to other data for all sizes at once.
//! 3. [`init`] makes a model in closed form instead.
//! 4. [`finetune`] trains a model, [`eval`] measures it, [`speed`] times it.
//!
//! Each stage first turns its settings into a plan; the code below never sees settings.

pub mod adapt;
pub mod ancestor;
pub mod budget;
pub mod cache;
pub mod condense;
mod distill_targets;
mod elastic;
pub mod eval;
pub mod expand;
pub mod finetune;
pub mod init;
pub mod record;
pub mod score;
pub mod speed;
mod timing;
