//! Forecasts before work begins: memory of a step, and sizes on disk.

use crate::context::Context;
use crate::train::{Resolved, TrainingData};
use anyhow::Result;
use wave_models::vit::VitShape;
use wave_models::{Network, refuse};
use wave_ops::Mode;
use wave_train::Batches;

mod free;
mod network;

pub use free::{available, on_disk, peak};
pub use network::of_forward;

/// Bytes of a number in f32.
const FLOAT: u64 = 4;
/// Memory of the program apart from its tensors.
const PROGRAM: u64 = 64 << 20;
/// Copies of trained values: as read, prepared, the variables, gradients, two moments, a checkpoint in progress, and
/// values that the optimiser is about to replace. Measured: 9.2 to 9.8.
const COPIES: u64 = 10;
/// Copies of weights composed in each step, with their gradients. Measured: 2.5 to 3.6.
const COMPOSED: u64 = 4;
/// Copies of weights that are made and written without training. Measured: 1.7 to 2.
const MADE: u64 = 2;
/// Batches held by the loader.
const BATCHES_AHEAD: u64 = 6;
/// Images per test batch.
const TEST_BATCH: usize = 250;
/// Memory for the images of a forward pass.
const RUN_BYTES: u64 = 2 << 30;

/// Peak memory of training, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Independent of the batch: values, gradients, moments, the program.
    pub fixed: u64,
    /// For each image of a batch in the loader.
    pub loaded: u64,
    /// For each image computed at once in a step or a part of it.
    pub image: u64,
    /// For each image that is tested, or that an ancestor sees, at once.
    pub tested: u64,
}

impl Memory {
    /// Memory to train a network's own weights.
    pub fn of_network(network: &Network, mode: Mode) -> Memory {
        let (channels, side) = network.input();
        let pixels = channels.saturating_mul(side).saturating_mul(side);
        Memory {
            fixed: floats(COPIES, values(network)).saturating_add(PROGRAM),
            loaded: floats(BATCHES_AHEAD, pixels),
            image: network::of_step(network, mode),
            tested: of_forward(network),
        }
    }

    /// Memory to train `values` numbers that compose a transformer's weights.
    pub fn of_composed(shape: &VitShape, mode: Mode, values: usize) -> Memory {
        let composed = floats(COMPOSED, shape.parameter_count()).saturating_add(PROGRAM);
        Memory {
            fixed: floats(COPIES, values).saturating_add(composed),
            ..Memory::of_network(&Network::Vit(shape.clone()), mode)
        }
    }

    /// Memory to make a network and run it on whole batches.
    pub fn of_passes(network: &Network) -> Memory {
        Memory {
            fixed: floats(MADE, values(network)).saturating_add(PROGRAM),
            loaded: 0,
            image: of_forward(network),
            tested: 0,
        }
    }

    /// Adds a frozen network that sees the images of each step.
    pub fn beside(self, ancestor: &Network) -> Memory {
        let shown = of_forward(ancestor);
        Memory {
            image: self.image.saturating_add(shown),
            tested: self.tested.max(shown),
            ..self
        }
    }

    /// Bytes of a step of `images`, computed `at_once` at a time.
    pub fn of_step(self, images: usize, at_once: usize) -> u64 {
        let step = self.image.saturating_mul(at_once as u64);
        let tests = self.tested.saturating_mul(test_batch(self.tested) as u64);
        let loaded = self.loaded.saturating_mul(images as u64);
        self.fixed
            .saturating_add(loaded)
            .saturating_add(step.max(tests))
    }
}

/// Bytes of some copies of `n` numbers.
fn floats(copies: u64, n: usize) -> u64 {
    (copies * FLOAT).saturating_mul(n as u64)
}

fn values(network: &Network) -> usize {
    match network {
        Network::Vit(shape) => shape.parameter_count(),
        other => {
            let sizes = other.parameters().into_iter();
            sizes.map(|(_, dims)| dims.iter().product::<usize>()).sum()
        }
    }
}

/// Images of a test batch, given the bytes of each.
pub fn test_batch(bytes: u64) -> usize {
    at_once(bytes, TEST_BATCH)
}

/// Images per forward pass, given the bytes of each: the usual number, or fewer if they are large.
pub fn at_once(bytes: u64, usual: usize) -> usize {
    (RUN_BYTES / bytes.max(1)).clamp(1, usual as u64) as usize
}

/// The properties of a training step that determine its memory.
#[derive(Clone, Debug)]
pub struct Step {
    memory: Memory,
    /// Examples of a batch on this process.
    examples: usize,
    /// The batch of the settings, over all processes and networks.
    batch: usize,
    /// Micro-batches of a step.
    parts: usize,
    /// True if each part holds an even number of examples.
    in_pairs: bool,
    /// The context that has to hold it.
    context: Context,
}

impl Step {
    /// A step of `data`.
    pub fn new(memory: Memory, data: &impl TrainingData, resolved: &Resolved) -> Result<Step> {
        let context = data.context();
        let ranks = context.ranks();
        let share = data.batches().share(ranks.rank(), ranks.size())?;
        // Without steps, nothing is kept for gradients.
        let examples = match resolved.steps {
            0 => 0,
            _ => share.rows().len(),
        };
        Ok(Step {
            batch: data.batches().batch_size(),
            in_pairs: data.in_pairs(),
            ..Step::of_images(memory, examples, resolved.optimisation.accumulate, context)
        })
    }

    /// A step of `images` images, computed in `parts`.
    pub fn of_images(memory: Memory, images: usize, parts: usize, context: &Context) -> Step {
        Step {
            memory,
            examples: images,
            batch: images,
            parts,
            in_pairs: false,
            context: context.clone(),
        }
    }

    /// Bytes of the step.
    pub fn bytes(&self) -> u64 {
        self.of(self.batch, self.parts)
    }

    /// Bytes of a step with another batch and other parts.
    fn of(&self, batch: usize, parts: usize) -> u64 {
        let examples = (self.examples * batch).div_ceil(self.batch.max(1));
        self.memory
            .of_step(examples, examples.div_ceil(parts.max(1)))
    }

    /// If the step takes more than `free` bytes: the problem, and the sizes that would fit.
    pub fn beyond(&self, free: u64) -> Option<String> {
        let fits = |batch, parts| self.of(batch, parts) <= free;
        if fits(self.batch, self.parts) {
            return None;
        }
        let (needed, left) = (bytes(self.bytes() as f64), bytes(free as f64));
        let batch = self.batch;
        let found = format!("a step with batch = {batch} needs about {needed}, but {left} is free");
        // Examples of a micro-batch, in powers of two.
        let least = self.parts * (1 + usize::from(self.in_pairs));
        let powers = (0..self.batch.ilog2() + 1).rev();
        let mut smaller = powers.map(|power| least << power);
        let smaller = smaller.find(|batch| *batch < self.batch && fits(*batch, self.parts));
        let parted = |parts: &usize| {
            self.examples.is_multiple_of(*parts)
                && !(self.in_pairs && (self.examples / parts) % 2 == 1)
        };
        let mut parts = self.parts + 1..=self.examples;
        let parts = parts.find(|parts| parted(parts) && fits(self.batch, *parts));
        let smaller = smaller.map(|batch| format!("--batch {batch}"));
        let parts =
            parts.map(|parts| format!("--accumulate {parts}, the same step in micro-batches"));
        let remedies: Vec<String> = smaller.into_iter().chain(parts).collect();
        Some(match remedies.is_empty() {
            true => format!(
                "{found}: not even one image fits; use a smaller model or smaller images, or \
                 --recompute true for a transformer"
            ),
            false => format!("{found}; give {}", remedies.join(", or ")),
        })
    }

    /// Refuses a step that needs more memory than is free, naming the sizes that would fit.
    pub fn check(&self) -> Result<()> {
        let wrong = free(&self.context).and_then(|free| self.beyond(free));
        match (self.context.ranks().any(wrong.is_some()), wrong) {
            (false, _) => Ok(()),
            (true, Some(wrong)) => refuse!("{wrong}"),
            (true, None) => refuse!("another rank has too little memory for a step"),
        }
    }

    /// Memory of the step, in words, for a plan that may be for another machine.
    pub fn words(&self) -> String {
        let mut text = format!("memory per step: about {}\n", bytes(self.bytes() as f64));
        if let Some(wrong) = free(&self.context).and_then(|free| self.beyond(free)) {
            text += &format!("DOES NOT FIT HERE: {wrong}\n");
        }
        text
    }

    /// True if this many images fit in memory at once, so that they can be timed.
    pub fn can_time(&self, images: usize) -> bool {
        free(&self.context).is_none_or(|free| self.memory.of_step(images, images) <= free)
    }
}

/// Memory free on the device that computes, if known.
fn free(context: &Context) -> Option<u64> {
    available().filter(|_| context.device().is_cpu())
}

/// Refuses to create a network whose weights need more memory than is free, naming both sizes.
pub fn check_network(network: &Network) -> Result<()> {
    let values = values(network);
    let needed = Memory::of_passes(network).fixed;
    let (depth, width) = network.size();
    let work = format!("{depth} layers of width {width} have {values} weights, which");
    refuse_beyond(&work, needed, |_| "choose smaller sizes".to_owned())
}

/// Refuses `work` that needs more bytes than are free, with a remedy that may depend on these.
fn refuse_beyond(work: &str, needed: u64, remedy: impl FnOnce(u64) -> String) -> Result<()> {
    let Some(free) = available().filter(|free| needed > *free) else {
        return Ok(());
    };
    let (needed, left, remedy) = (bytes(needed as f64), bytes(free as f64), remedy(free));
    refuse!("{work} need about {needed}, but {left} is free; {remedy}")
}

/// Refuses to process more images at once than fit in memory, naming how many do. Counts their tokens at six points of
/// a transformer. Measured for 500 images of 224 pixels in a DeiT-Ti: 0.84 GB, where 0.82 were expected.
pub fn check_images(shape: &VitShape, images: usize) -> Result<()> {
    let pixels = shape.channels * shape.image_size * shape.image_size;
    let tokens = shape.tokens() * shape.width;
    let each = FLOAT * (2 * pixels).max(pixels + 6 * tokens) as u64;
    let needed = each.saturating_mul(images as u64).saturating_add(PROGRAM);
    refuse_beyond(&format!("{images} images at once"), needed, |free| {
        let most = (free.saturating_sub(PROGRAM) / each).max(1);
        format!("give --train-limit {most}")
    })
}

/// A number of bytes, to three digits.
pub fn bytes(n: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = ((n.max(1.0).log10() / 3.0) as usize).min(units.len() - 1);
    let value = n / 1e3f64.powi(power as i32);
    let digits = 2usize.saturating_sub(value.max(1.0).log10() as usize);
    format!("{value:.digits$} {}", units[power])
}

/// A line on the disk space of saved states, each of the values, two moments, and averages if kept.
pub fn checkpoint(values: usize, averaged: bool) -> String {
    let state = (if averaged { 4 } else { 3 }) * FLOAT * values as u64;
    let each = bytes(state as f64);
    format!("{each} per checkpoint, and as much for the previous one\n")
}

#[cfg(test)]
#[path = "forecast/tests.rs"]
mod tests;
