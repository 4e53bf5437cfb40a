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
//! Each stage is a function, a subcommand and a table of a recipe, all with the same name; the only link
//! between stages is a directory. [`guide`] has commands and programs for each task, [`methods`] lists all
//! ways to initialise a model. [`cli`] is the command line, [`run`] runs the stages of a recipe in order,
//! [`inspect`] and [`predict`] examine the results, [`hub`] publishes and downloads them.
//!
//! ```
//! use std::path::Path;
//!
//! let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/fashion-mnist");
//! let templates = wave::templates::read(Path::new(dir))?;
//! for (depth, width) in [(2, 64), (6, 192)] {
//!     let model = templates.expand(depth, width)?; // no data, and no directory written
//!     assert_eq!(model.network.size(), (depth, width));
//! }
//! # Ok::<(), wave::Error>(())
//! ```

pub mod cli;
pub mod convert;
#[doc = include_str!("guide.md")]
pub mod guide {}
#[doc = include_str!("methods.md")]
pub mod methods {}
pub mod hub;
pub mod inspect;
pub mod predict;
pub mod run;
pub mod shipped;

pub use wave_artefacts::{classifier, delta, model, templates};
pub use wave_bench::bench;
pub use wave_run::error::{Error, ErrorKind};
pub use wave_run::{context, forecast, progress, recipe, settings, terminal};
pub use wave_stages::{adapt, condense, eval, expand, finetune, init};
