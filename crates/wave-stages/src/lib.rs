//! The stages, and what they hand each other.

pub mod ancestor;
pub mod budget;
pub mod cache;
pub mod condense;
pub mod eval;
pub mod expand;
pub mod family;
pub mod finetune;
pub mod hypernetwork;
pub mod init;
pub mod layout;
pub mod lesson;
pub mod model;
pub mod origin;
pub mod speed;
pub mod templates;
