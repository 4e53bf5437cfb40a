//! The runtime of every stage: settings, a run directory and one training loop.
//!
//! 1. [`settings`] declares every key once, as flag and as recipe key. [`recipe`] merges a file, overrides
//!    and flags into the settings of a stage.
//! 2. [`data::DataPlan`] and [`train::TrainingPlan`] resolve the settings. [`data`] opens images,
//!    [`forecast`] estimates the memory of a step.
//! 3. [`inputs`] knows artefacts by their content, [`locate`] finds them here or on a hub.
//! 4. [`run_dir::fill`] fills a directory once: [`lock`], [`log`], [`checkpoint`]s, result.
//! 5. [`train::train`] trains a [`train::Trainable`] there; it tests, logs and saves on the way.
//! 6. [`context::Context`] is handed down from the command: the [`device`], the [`ranks`] that train
//!    together, and [`interrupt`]ion by Ctrl-C.
//! 7. [`terminal`] writes to stderr and stdout, [`progress`] reports progress there, [`error`] classifies
//!    failures; [`plot`] draws.
//!
//! ```
//! use wave_run::recipe::Recipe;
//! use wave_run::settings::{Duration, Finetune};
//! use wave_run::train::{Defaults, TrainingPlan};
//!
//! let overrides = ["finetune.epochs=3".to_string(), "seed=7".to_string()];
//! let settings: Finetune =
//!     Recipe::empty("mine", &overrides)?.stage("finetune", None)?;
//! let defaults = Defaults { duration: Duration::Steps(100), lr: 1e-3, weight_decay: 0.05 };
//! let plan = TrainingPlan::new(&settings.training, defaults)?;
//! assert_eq!((plan.duration, plan.lr, plan.seed), (Duration::Epochs(3.0), 1e-3, 7));
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod checkpoint;
pub mod context;
pub mod data;
pub mod device;
pub mod error;
pub mod forecast;
pub mod hint;
pub mod inputs;
pub mod interrupt;
pub mod locate;
pub mod lock;
pub mod log;
pub mod out_dir;
pub mod paths;
pub mod plot;
pub mod progress;
pub mod ranks;
pub mod recipe;
pub mod run_dir;
pub mod settings;
pub mod terminal;
pub mod threads;
pub mod train;
