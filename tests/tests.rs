//! End-to-end tests: the `wave` command as a user runs it, on tiny models and procedural images.

mod bad_input;
mod commands;
mod compare;
mod formats;
mod looks;
mod pipeline;
mod resume;
mod support;
mod tidy;
