//! The papers beside WAVE, each whole in one folder.

pub mod meta;
pub mod population;
pub mod sequence;
