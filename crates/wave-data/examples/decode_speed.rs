//! How fast a folder of JPEG files becomes training input on one thread, in milliseconds an image.
//!
//!     cargo run --release -p wave-data --example decode_speed -- DIR ROUNDS decode|train
//!
//! DIR is an ImageFolder (`train/CLASS/*.jpg`, `val/CLASS/*.jpg`). Prints the fastest of the rounds of
//! decoding alone, or of what training does (a random resized crop of 224 pixels, mirrored half of
//! the time, normalised). `tests/python/bench_torchvision.py` measures torchvision on the same files,
//! in turn with this.

use std::time::Instant;

use wave_data::{Augment, DataError, Loader, ResizedCrop, Transform};

fn main() -> Result<(), DataError> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap_or_else(|| ".".to_owned());
    let rounds: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(10);
    let data = wave_data::open(&dir)?;
    let n = data.train.len();
    let transform = Transform {
        image_size: 224,
        channels: 3,
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
        crop_pct: 1.0,
    };
    let augment = Augment {
        flip: true,
        resized_crop: Some(ResizedCrop::default()),
        ..Augment::NONE
    };
    let indices = (0..n as u32).collect();
    let source = data.train.clone();
    let loader = Loader::train(source, indices, transform, augment, n, None, 0)?.with_workers(1)?;
    let fastest = |work: &dyn Fn(u64) -> Result<(), DataError>| -> Result<f64, DataError> {
        let mut best = f64::INFINITY;
        for round in 0..rounds {
            let start = Instant::now();
            work(round)?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best * 1e3 / n as f64)
    };
    let what = arguments.next().unwrap_or_else(|| "train".to_owned());
    let best = match what.as_str() {
        "decode" => fastest(&|_| (0..n).try_for_each(|i| data.train.image(i).map(drop)))?,
        _ => fastest(&|round| loader.batch(round).map(drop))?,
    };
    println!("{best:.3}");
    Ok(())
}
