//! Papers other than WAVE, a folder for each; `wave` lists each in its table of families.
//!
//! 1. [`sequence`]: networks of token sequences (thesis, section 3.3): Mamba, Mamba-2, linear attention,
//!    transformers and hybrids, on synthetic tasks and on text.
//! 2. [`population`]: many small networks that are trained side by side, and what their weights have in
//!    common (thesis, section 3.4).
//! 3. [`meta`]: starts that are learned from training: distributions of weights (DIMAML), and graph
//!    hypernetworks (GHN-3).
//!
//! A folder holds the network, its initialisation, the settings, stages and artefacts of its paper; the
//! kernels are in wave-ops.
//!
//! ```
//! use wave_lab::sequence::SEQUENCES;
//! use wave_run::context::Context;
//!
//! let settings = "arch = 'mamba2'\ndepth = 2\nwidth = 32\ndata = 'copy:length=8'".parse()?;
//! let here = Context::default();
//! let plan = (SEQUENCES.describe_init)("mimetic", &settings, &here)?;
//! assert!(plan.ends_with("parameters\n"), "{plan}");
//!
//! let patch = "arch = 'mamba2'\ndepth = 2\nwidth = 32\ndata = 'copy'\npatch = 4".parse()?;
//! assert!((SEQUENCES.describe_init)("mimetic", &patch, &here).is_err()); // a sequence has no patches
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod meta;
pub mod population;
pub mod sequence;
#[cfg(test)]
#[path = "../../wave-ancestors/src/testing.rs"]
mod testing;
