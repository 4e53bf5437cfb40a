//! Sequence networks from start to test: `wave init --arch mamba2`, and `finetune`, `eval` and `inspect`
//! of what it makes.
//!
//! They share the stages' commands, settings, training loop and run directories with networks of images;
//! what differs is what is read (tokens of a task instead of images) and how the model is kept: as
//! transformers' own Mamba and Mamba-2.

mod finetune;
mod init;
mod maps;
mod model;

mod settings;

pub use model::SequenceModel;
pub use settings::Flags;

use wave_init::state_space::METHODS;
use wave_models::SequenceShape;
use wave_stages::family::{Commands, Family};
use wave_stages::init::method_line;

/// What messages call one.
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
