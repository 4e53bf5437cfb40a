//! The time and memory that it takes to make training input of a data set.
//!
//!     cargo run --release -p wave-data --example load_speed -- DATA [IMAGES [THREADS [decode|train]]]
//!
//! DATA is anything that `--data` takes. IMAGES (4,096) of its training images, going round, are only
//! decoded, or become batches of 64 as in training on ImageNet: a random resized crop of 224 pixels
//! (bicubic), mirrored half of the time, normalised. Prints one line of JSON: milliseconds until the
//! data set was open and until the first batch was there, both since the start; images a second
//! after the first batch; processor time an image; and resident memory in MiB at eight moments, evenly
//! spread over the run.
//!
//! `tests/python/bench_torchvision.py` measures torchvision on the same files, in turn with this.

use std::cell::RefCell;
use std::time::Instant;

use rayon::prelude::*;
use wave_data::{Augment, DataError, Loader, ResizedCrop, Source, Transform};

const BATCH: usize = 64;

/// As in the command `wave`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), DataError> {
    let start = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |k: usize, default: usize| {
        let given = arguments.get(k).and_then(|text| text.parse().ok());
        given.unwrap_or(default)
    };
    let data = wave_data::open(arguments.first().map_or(".", String::as_str))?;
    let opened = start.elapsed();
    let (images, threads) = (number(1, 4096), number(2, 2).max(1));
    let steps = images.div_ceil(BATCH).max(2);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let pool = pool.build().map_err(|e| DataError::Worker(e.to_string()))?;
    let loader = imagenet(&data.train)?;
    let only_decode = arguments.get(3).is_some_and(|what| what == "decode");
    // While there is a batch, and nothing of the next.
    let memory = RefCell::new(Vec::new());
    let measure = |step: usize| {
        if step * 8 / steps != (step + 1) * 8 / steps {
            memory.borrow_mut().push(resident_mib());
        }
    };
    let batch = |step: usize| -> Result<(), DataError> {
        if !only_decode {
            let batch = pool.install(|| loader.batch(step as u64))?;
            measure(step);
            drop(batch);
            return Ok(());
        }
        let (source, images) = (&data.train, step * BATCH..(step + 1) * BATCH);
        let decode = |i: usize| source.image(i % source.len()).map(drop);
        pool.install(|| images.into_par_iter().try_for_each(decode))?;
        measure(step);
        Ok(())
    };
    batch(0)?;
    let (first, worked) = (start.elapsed(), processor_time());
    (1..steps).try_for_each(batch)?;
    let n = ((steps - 1) * BATCH) as f64;
    println!(
        "{{\"images\": {n}, \"open_ms\": {:.1}, \"first_batch_ms\": {:.1}, \"images_per_second\": \
         {:.1}, \"cpu_ms_per_image\": {:.3}, \"rss_mib\": {memory:?}}}",
        opened.as_secs_f64() * 1e3,
        first.as_secs_f64() * 1e3,
        n / (start.elapsed() - first).as_secs_f64(),
        (processor_time() - worked) * 1e3 / n,
        memory = memory.into_inner(),
    );
    Ok(())
}

/// Batches as in training on ImageNet.
fn imagenet(source: &std::sync::Arc<dyn Source>) -> Result<Loader, DataError> {
    let (mean, std) = (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]);
    let transform = Transform::new(224, mean, std);
    let augment = Augment {
        flip: true,
        resized_crop: Some(ResizedCrop::default()),
        ..Augment::NONE
    };
    let indices = (0..source.len() as u32).collect();
    Loader::train(source.clone(), indices, transform, augment, BATCH, None, 0)
}

/// Seconds that all threads together have worked; 0 where the system does not tell.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything, user and system time are the 12th and 13th, in
    // hundredths of a second.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// 0 where the system does not tell.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
