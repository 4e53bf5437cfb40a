//! Populations: `wave init --arch population`, and `finetune`, `eval` and `inspect` of its output.
//!
//! They share commands, settings, data, training loop and run directories with single networks. The
//! differences: each network has its own images in a step, and `inspect` shows statistics over the
//! networks' weights.

mod finetune;
mod init;
mod inspect;
mod memory;
mod model;
pub mod network;
mod settings;
pub mod start;
pub mod statistics;

pub use model::PopulationModel;
pub use settings::Flags;

use wave_stages::family::{Commands, Family};
use wave_stages::init::method_line;

use start::METHODS;

/// The name of the architecture of ConvNeXts.
pub const ARCHITECTURE: &str = "population";

/// The name of the architecture of transformers.
pub const TRANSFORMERS: &str = "vit-population";

/// Name in messages.
const WHAT: &str = "a population";

/// Many small networks side by side.
pub const POPULATIONS: Family = Family {
    architectures: || vec![ARCHITECTURE, TRANSFORMERS],
    method: None,
    help: || {
        let lines = METHODS.map(|method| method_line(method.name, method.description));
        format!(
            "For a population, many small isotropic ConvNeXts side by side, or a vit-population of transformers:\n{}",
            lines.concat()
        )
    },
    init: init::init,
    describe_init: init::describe,
    commands: Some(Commands {
        holds: model::is_model,
        has_layouts: false,
        finetune: finetune::finetune,
        describe_finetune: finetune::describe,
        eval: finetune::eval,
        inspect: inspect::inspect,
    }),
};
