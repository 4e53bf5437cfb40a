//! Sequence networks: `wave init --arch mamba2`, and `finetune`, `eval` and `inspect` of its output.
//!
//! They share commands, settings, training loop and run directories with networks of images. The
//! differences: the data are tokens of a task, and the model is stored as transformers' own Mamba or
//! Mamba-2.

mod finetune;
mod init;
mod maps;
mod memory;
mod model;
pub mod network;
mod settings;
pub mod start;

pub use model::SequenceModel;
pub use network::SequenceShape;
pub use settings::Flags;

use wave_stages::family::{Commands, Family};
use wave_stages::init::method_line;

use start::METHODS;

/// Name in messages.
const WHAT: &str = "a sequence network";

/// Networks of token sequences.
pub const SEQUENCES: Family = Family {
    architectures: init::architectures,
    method: None,
    help: || {
        let names = init::architectures().join(", ");
        let lines = METHODS.map(|method| method_line(method.name, method.description));
        format!("For the sequence networks {names}:\n{}", lines.concat())
    },
    init: init::init,
    describe_init: init::describe,
    commands: Some(Commands {
        holds: SequenceShape::describes,
        has_layouts: false,
        finetune: finetune::finetune,
        describe_finetune: finetune::describe,
        eval: finetune::eval,
        inspect: maps::inspect,
    }),
};
