//! End-to-end tests: the `wave` command as a user runs it, on tiny models and procedural images.

mod adapt;
mod adding;
mod ancestors;
mod bad_input;
mod bench;
mod bench_cells;
mod budget;
mod cache;
mod classes;
mod commands;
mod convolution;
mod data;
mod features;
mod formats;
mod label_free;
mod levels;
mod looks;
mod models;
mod muon;
mod out;
mod pipeline;
mod plan;
mod planned;
mod preprocessing;
#[cfg(feature = "mpi")]
mod ranks;
mod readers;
mod resume;
mod shipped;
mod stop;
mod support;
mod terminal;
mod tidy;
mod zero_shot;
