//! The speed of a frozen network: milliseconds a batch, as one JSON object.
//!
//! ```text
//! cargo build --release -p wave-models --example ancestor_speed
//! RAYON_NUM_THREADS=2 target/release/examples/ancestor_speed WEIGHTS.safetensors [BATCH] [REPEATS]
//! ```
//!
//! `ms` are the times on the clock, a warm-up left out; `processor_ms` (Linux) the time of all
//! threads, which other programs disturb less; `logits` those of the first image, (classes), and
//! `image` says which one that is. `tests/python/compare_ancestors.py` does the same with timm, in
//! turn.

use candle_core::{Device, Result, Tensor};
use serde_json::{Map, json};
use std::time::Instant;
use wave_models::Network;

/// As in the command: freed memory is kept, where the system's allocator returns it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        candle_core::bail!("usage: ancestor_speed WEIGHTS.safetensors [BATCH] [REPEATS]");
    };
    let mut number = |default: usize| match arguments.next() {
        None => Ok(default),
        Some(word) => word.parse(),
    };
    let (batch, repeats) = (number(8)?, number(10)?);

    let stored = candle_core::safetensors::load(&path, &Device::Cpu)?;
    let weights =
        wave_models::import(&stored.into_iter().collect()).map_err(candle_core::Error::wrap)?;
    let network =
        Network::recognise("", &Map::new(), None, &weights).map_err(candle_core::Error::wrap)?;
    let frozen = network.freeze(&weights)?;
    let (channels, side) = network.input();
    let images = images(batch, channels, side)?;

    let (mut wall, mut processor) = (Vec::new(), Vec::new());
    let mut first = Vec::new();
    for repeat in 0..=repeats {
        let (start, before) = (Instant::now(), processor_ms());
        let logits = frozen.logits(&images)?; // (b, classes)
        if repeat == 0 {
            first = logits.get(0)?.to_vec1::<f32>()?;
            continue;
        }
        wall.push(start.elapsed().as_secs_f64() * 1e3);
        processor.push(processor_ms() - before);
    }
    let said = json!({
        "batch": batch,
        "threads": rayon::current_num_threads(),
        "ms": wall,
        "processor_ms": processor,
        "image": "value i of the batch: (i * 7919 % 1009) / 504.5 - 1",
        "logits": first,
    });
    println!("{said}");
    Ok(())
}

/// Images (b, channels, side, side) that another program can make too.
fn images(batch: usize, channels: usize, side: usize) -> Result<Tensor> {
    let n = batch * channels * side * side;
    let values: Vec<f32> = (0..n)
        .map(|i| ((i * 7919 % 1009) as f64 / 504.5 - 1.0) as f32)
        .collect();
    Tensor::from_vec(values, (batch, channels, side, side), &Device::Cpu)
}

/// Processor time of all threads so far in milliseconds; 0 where the system does not tell.
fn processor_ms() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(|times| times.split(' ').next()?.parse::<f64>().ok())
        .sum::<f64>()
        / 1e6
}
