//! What training will take before it begins: memory of a step, a batch that fits, sizes on disk, time.

use crate::device::device;
use crate::error::request;
use crate::ranks::ranks;
use crate::settings::{self, BatchSize, Training};
use anyhow::Result;
use std::fs;
use std::path::Path;
use wave_models::vit::VitShape;
use wave_ops::Mode;

/// Bytes of a number in f32.
const FLOAT: u64 = 4;
/// What the program takes beside its tensors.
const PROGRAM: u64 = 64 << 20;
/// Batches of images that the loader holds.
const BATCHES_AHEAD: u64 = 4;
/// The share of the memory at hand that a batch chosen for it may fill.
const FILL: f64 = 0.7;
/// The largest batch that is chosen.
const LARGEST: usize = 1024;

/// Bytes that training holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whatever the batch: values, gradients, moments, the program.
    pub fixed: u64,
    /// For each image that a step, or a part of it, computes at once.
    pub image: u64,
}

impl Memory {
    /// Of training a transformer's own weights.
    pub fn of_training(shape: &VitShape, mode: Mode) -> Memory {
        let values = shape.parameter_count() as u64;
        // A value, its gradient and two moments.
        Memory {
            fixed: PROGRAM + 4 * FLOAT * values,
            image: of_image(shape, mode),
        }
    }

    /// Of training `values` numbers that compose a transformer's weights.
    pub fn of_composed(shape: &VitShape, mode: Mode, values: usize) -> Memory {
        let composed = shape.parameter_count() as u64;
        // The composed weights have gradients, and no moments.
        Memory {
            fixed: PROGRAM + 4 * FLOAT * values as u64 + 2 * FLOAT * composed,
            image: of_image(shape, mode),
        }
    }

    /// For so many images at once.
    pub fn of_batch(self, images: usize) -> u64 {
        self.fixed + self.image * images as u64
    }

    /// The most images, a power of two, that `available` bytes have room for.
    fn fit(self, available: u64) -> usize {
        let room = (FILL * available as f64) as u64;
        let most = room.saturating_sub(self.fixed) / self.image.max(1);
        let most = usize::try_from(most).unwrap_or(LARGEST).min(LARGEST);
        most.checked_ilog2().map_or(0, |power| 1 << power)
    }
}

/// Of each image: itself in the batches that are made ahead, and what blocks keep for the backward pass,
/// inputs (d), q, k and v (3 d), attention's output (d), its sum with the input (d) and the MLP's
/// hidden values, for every token.
fn of_image(shape: &VitShape, mode: Mode) -> u64 {
    let pixels = shape.channels * shape.image_size * shape.image_size;
    let (n, d, hidden) = (shape.tokens(), shape.width, shape.hidden());
    let kept = match mode.recompute {
        true => shape.depth * d, // their inputs
        false => shape.depth * (6 * d + hidden),
    };
    FLOAT * ((BATCHES_AHEAD + 2) * pixels as u64 + (n * (kept + 2 * d)) as u64)
}

/// Bytes of a saved state: values and two moments, and averages if they are kept.
pub fn checkpoint(values: usize, averaged: bool) -> u64 {
    (if averaged { 4 } else { 3 }) * FLOAT * values as u64
}

/// Memory that is free for this process, in bytes, where the system says so: of the machine, and within
/// the limit of its control group.
pub fn available() -> Option<u64> {
    let file = |path: &str| fs::read_to_string(path).ok();
    let machine = file("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    });
    let number = |path: &str| file(path)?.trim().parse::<u64>().ok();
    let group = || {
        let limit = number("/sys/fs/cgroup/memory.max")?;
        Some(limit.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
    };
    match (machine, group()) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// The settings with a number in the place of `batch = "auto"`: what the run in `out` has, if its
/// settings are repeated, or what fits in memory.
///
/// # Errors
/// If nothing fits, or how much memory there is is unknown.
pub fn fit_batch(
    training: &Training,
    memory: impl FnOnce(Mode) -> Memory,
    out: &Path,
    repeats: bool,
) -> Result<Training> {
    let mut training = training.clone();
    if training.batch != Some(BatchSize::Auto) {
        return Ok(training);
    }
    let before = || {
        let text = wave_hub::read_text(&out.join("run/recipe.toml")).ok()?;
        let table: toml::Table = text.parse().ok()?;
        usize::try_from(table.get("batch")?.as_integer()?).ok()
    };
    let images = match repeats.then(before).flatten() {
        Some(images) => images,
        None => {
            let mode = settings::mode(training.precision.as_deref(), training.recompute)?;
            let at_hand = available().filter(|_| device().is_cpu()).ok_or_else(|| {
                request("batch = auto: how much memory is free is not known here; give a number")
            })?;
            let memory = memory(mode);
            let parts = training.accumulate.unwrap_or(1);
            match (memory.fit(at_hand) * parts).min(largest(&training)) {
                0 => {
                    return Err(request(format!(
                        "batch = auto: an image takes {} MiB beside {} MiB for the weights, and \
                         {} MiB are free; train a smaller model, or with --recompute true",
                        memory.image >> 20,
                        memory.fixed >> 20,
                        at_hand >> 20
                    )));
                }
                images => images,
            }
        }
    };
    let images = ranks().of_first(images as f64) as usize; // for all ranks
    training.batch = Some(BatchSize::Images(images));
    Ok(training)
}

/// The largest batch that is chosen: not more than there are images.
fn largest(training: &Training) -> usize {
    // Data that cannot be opened is refused where it is needed.
    let Ok(data) = crate::data::open(training) else {
        return LARGEST;
    };
    let images = data
        .train
        .len()
        .saturating_sub(training.hold_out.unwrap_or(0));
    let images = images.min(training.train_limit.unwrap_or(images));
    images
        .checked_ilog2()
        .map_or(0, |power| 1 << power)
        .min(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory {
        fixed: 100,
        image: 10,
    };

    #[test]
    fn the_batch_fills_most_of_the_memory_at_hand() {
        for (available, images) in [(0, 0), (150, 0), (160, 1), (600, 32), (u64::MAX, 1024)] {
            assert_eq!(MEMORY.fit(available), images, "{available}");
        }
        assert!(MEMORY.of_batch(MEMORY.fit(600)) <= 600);
    }

    #[test]
    fn recomputing_takes_less() {
        let shape = VitShape::default();
        let memory = |recompute| {
            let mode = Mode {
                recompute,
                ..Mode::default()
            };
            Memory::of_training(&shape, mode)
        };
        assert!(memory(true).image * 2 < memory(false).image);
        assert_eq!(memory(true).fixed, memory(false).fixed);
    }
}
