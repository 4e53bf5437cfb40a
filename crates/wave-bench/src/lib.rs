//! Ways to start models, side by side.

pub mod bench;
pub mod report;
