//! What any stage has around it.

pub mod checkpoint;
pub mod data;
pub mod device;
pub mod error;
pub mod forecast;
pub mod hint;
pub mod html;
pub mod inputs;
pub mod interrupt;
pub mod locate;
pub mod lock;
pub mod log;
pub mod paths;
pub mod plot;
pub mod progress;
pub mod ranks;
pub mod recipe;
pub mod run_dir;
pub mod settings;
pub mod terminal;
pub mod train;
