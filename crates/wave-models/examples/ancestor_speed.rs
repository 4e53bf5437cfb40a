//! How fast a frozen LeViT-384 runs: milliseconds per image of 224 x 224, least of some batches.
//!
//! ```text
//! RAYON_NUM_THREADS=1 cargo run --release -p wave-models --example ancestor_speed [BATCH] [REPEATS]
//! ```
//!
//! Besides the time on the clock it prints processor time (Linux), which other programs disturb
//! less. `tests/fixtures/time_levit.py` does the same with timm and PyTorch.

use candle_core::{Device, Result, Tensor};
use std::time::Instant;
use wave_models::levit::{self, LevitShape, LevitStage};
use wave_models::{Activation, Weights};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let batch: usize = arguments.next().unwrap_or(8);
    let repeats: usize = arguments.next().unwrap_or(10);
    let shape = levit_384();
    let weights = shape
        .parameters()
        .into_iter()
        .map(|(name, dims)| {
            let n: usize = dims.iter().product();
            let level = f32::from(u8::from(name.ends_with("running_var"))) + 1e-3;
            let values: Vec<f32> = (0..n).map(|i| level + (i % 7) as f32 * 1e-3).collect();
            Ok((name, Tensor::from_vec(values, dims, &Device::Cpu)?))
        })
        .collect::<Result<Weights>>()?;
    let weights = levit::fuse(&shape, &weights)?;
    let images = Tensor::full(0.5_f32, (batch, 3, 224, 224), &Device::Cpu)?;
    let (mut wall, mut cpu) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..=repeats {
        let (start, before) = (Instant::now(), processor_ms());
        levit::logits(&shape, &weights, &images)?;
        wall = wall.min(start.elapsed().as_secs_f64() * 1e3 / batch as f64);
        cpu = cpu.min((processor_ms() - before) / batch as f64);
    }
    println!("{wall:.1} ms on the clock, {cpu:.1} ms of processor time per image");
    Ok(())
}

fn levit_384() -> LevitShape {
    let stage = |(width, heads)| LevitStage {
        width,
        depth: 4,
        heads,
        value: 64,
        hidden: 2 * width,
    };
    LevitShape {
        image_size: 224,
        channels: 3,
        stem: 4,
        key: 32,
        stages: [(384, 6), (512, 9), (768, 12)].map(stage).to_vec(),
        classes: 1000,
        distilled: true,
        convolutional: false,
        activation: Activation::HardSwish,
    }
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
