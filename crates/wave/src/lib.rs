//! Start vision transformers of any size from one distillation.
//!
//! A pretrained *ancestor* is distilled once, through an *auxiliary* vision transformer, into a
//! few *weight templates* ([`condense`]). From then on a transformer of any depth and width is
//! *expanded* from the templates by a few thousand *scalers* ([`expand`]), and fine-tuned like
//! any other ([`finetune`]):
//!
//! ```text
//! W_l = sum_i  S_{l,i} (x) T_i          T_i: (t, t) shared by all layers, S_{l,i}: (rows/t, cols/t)
//! ```
//!
//! Each stage is a function, a subcommand and a table of a recipe of the same name, and hands the
//! next one nothing but a directory. [`guide`] has commands and programs for each task,
//! [`methods`] everything that a model can be started from.

pub mod ancestor;
pub mod bench;
pub mod budget;
pub mod cache;
mod checkpoint;
pub mod cli;
pub mod condense;
pub mod convert;
pub mod data;
pub mod device;
pub mod error;
pub mod eval;
pub mod expand;
pub mod finetune;
pub mod forecast;
#[doc = include_str!("guide.md")]
pub mod guide {}
#[doc = include_str!("methods.md")]
pub mod methods {}
mod hint;
pub mod hub;
pub mod hypernetwork;
pub mod init;
pub mod inputs;
pub mod inspect;
pub mod interrupt;
pub mod layout;
pub mod lesson;
pub mod locate;
pub mod lock;
pub mod log;
pub mod manual;
pub mod meta;
pub mod model;
mod origin;
pub mod paths;
pub mod plot;
pub mod population;
pub mod predict;
pub mod progress;
pub mod ranks;
pub mod recipe;
pub mod report;
pub mod run;
pub mod run_dir;
pub mod sequence;
pub mod settings;
pub mod speed;
pub mod templates;
pub mod terminal;
pub mod train;
