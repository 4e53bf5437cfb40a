//! Speed of single operators; `trunk.rs` has the transformer blocks.
//!
//! `cargo bench -p wave-ops --bench operators [-- FILTER]`; threads: `RAYON_NUM_THREADS`.
//! "item/s" are floating point operations for what multiplies matrices or convolves, values for
//! the others.

use candle_core::{Device, Tensor, Var};
use divan::{Bencher, black_box, counter::ItemsCount};
use wave_ops::{Kronecker, Moments, Move};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// Values between -1 and 1 that repeat from run to run.
fn values(dims: &[usize]) -> Var {
    let n: usize = dims.iter().product();
    let mut state = 1u32;
    let values: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    Var::from_tensor(&Tensor::from_vec(values, dims, &Device::Cpu).unwrap()).unwrap()
}

/// Times `f` and the gradients of the sum of what it returns.
fn train(bencher: Bencher, items: usize, f: impl Fn() -> Tensor + Sync) {
    bencher
        .counter(ItemsCount::new(items))
        .bench(|| black_box(f().sum_all().unwrap().backward().unwrap()));
}

/// The qkv matrices of twelve layers of width 192 or 384 from 24 templates of half that width.
#[divan::bench(args = [192, 384])]
fn kronecker_sum(bencher: Bencher, width: usize) {
    let (layers, n, t) = (12, 24, width / 2);
    let templates = values(&[n, t, t]);
    let scalers = values(&[layers, n, 3 * width / t, width / t]);
    let flops = 3 * 2 * layers * n * 3 * width * width;
    train(bencher, flops, || {
        wave_ops::kronecker_sum(&templates, &scalers, Kronecker::Tile).unwrap()
    });
}

#[divan::bench(args = [1 << 16, 1 << 22])]
fn adamw_steps(bencher: Bencher, n: usize) {
    let (var, gradient) = (values(&[n]), values(&[n]));
    let mut moments = Moments::new(&var).unwrap();
    bencher.counter(ItemsCount::new(n)).bench_local(|| {
        let moved = Move {
            var: &var,
            gradient: &gradient,
            moments: &mut moments,
            learning_rate: 1e-3,
            weight_decay: 0.05,
        };
        wave_ops::adamw_steps(&mut [moved], 1.0, 1).unwrap();
    });
}

#[divan::bench(args = [10, 1000])]
fn soft_cross_entropy(bencher: Bencher, classes: usize) {
    let logits = values(&[128, classes]);
    let targets = wave_ops::stock::softmax(&values(&[128, classes])).unwrap();
    train(bencher, 128 * classes, || {
        wave_ops::soft_cross_entropy(&logits, &targets).unwrap()
    });
}

#[divan::bench(args = [64, 256])]
fn depthwise_conv(bencher: Bencher, channels: usize) {
    let (b, side, k) = (16, 14, 5);
    let x = values(&[b, side, side, channels]);
    let (weight, bias) = (values(&[channels, k, k]), values(&[channels]));
    let flops = 3 * 2 * b * side * side * channels * k * k;
    train(bencher, flops, || {
        wave_ops::depthwise_conv(&x, &weight, &bias).unwrap()
    });
}

#[divan::bench(args = [192, 384])]
fn layer_norm(bencher: Bencher, width: usize) {
    let x = values(&[3136, width]);
    let (weight, bias) = (values(&[width]), values(&[width]));
    train(bencher, 3136 * width, || {
        wave_ops::layer_norm(&x, &weight, &bias, 1e-6).unwrap()
    });
}

#[divan::bench]
fn gelu(bencher: Bencher) {
    let x = values(&[3136, 768]);
    train(bencher, 3136 * 768, || wave_ops::gelu(&x).unwrap());
}
