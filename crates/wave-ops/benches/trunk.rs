//! Speed of the transformer trunk against the processor's measured peak.
//!
//! `cargo bench -p wave-ops --bench trunk [-- FILTER]`; threads: `RAYON_NUM_THREADS`.
//! A line says: shape, mode, precision; then, by the clock and by the processors' time, the
//! shortest step, GFLOP/s, and the share of the f32 peak of the cores at work.

use candle_core::{Device, Tensor, Var};
use std::hint::black_box;
use std::time::{Duration, Instant};
use wave_ops::{BlocksShape, Precision};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tokens, batch and trunk of a benchmarked network.
struct Case {
    name: &'static str,
    batch: usize,
    tokens: usize,
    shape: BlocksShape,
}

const fn case(
    name: &'static str,
    batch: usize,
    tokens: usize,
    width: usize,
    heads: usize,
    depth: usize,
) -> Case {
    let shape = BlocksShape {
        depth,
        width,
        heads,
        hidden: 4 * width,
        eps: 1e-6,
    };
    Case {
        name,
        batch,
        tokens,
        shape,
    }
}

const CASES: [Case; 5] = [
    case("A: 28x28 / 4, width 192", 128, 50, 192, 3, 6),
    case("B: 224x224 / 16, width 192", 16, 197, 192, 3, 6),
    case("C: 224x224 / 16, width 384", 8, 197, 384, 6, 12),
    case("D: 60x60 / 6, width 120", 24, 101, 120, 5, 5),
    case("S: 28x28 / 7, width 64", 128, 16, 64, 4, 6),
];

impl Case {
    /// Multiplications and additions of the matrix products of one forward pass.
    fn flops(&self) -> f64 {
        let BlocksShape {
            depth,
            width,
            hidden,
            ..
        } = self.shape;
        let token = 2 * width * (4 * width + 2 * hidden) + 4 * self.tokens * width;
        (self.batch * self.tokens * depth * token) as f64
    }

    fn values(&self, dims: &[usize]) -> Var {
        let n: usize = dims.iter().product();
        let mut state = 1u32;
        let values: Vec<f32> = (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 24) as f32 * 0.2 - 0.1
            })
            .collect();
        Var::from_tensor(&Tensor::from_vec(values, dims, &Device::Cpu).unwrap()).unwrap()
    }

    /// The shortest of several steps, by the clock and by the processors' time.
    fn time(&self, precision: Precision, train: bool, budget: Duration) -> (Duration, Duration) {
        let x = self.values(&[self.batch, self.tokens, self.shape.width]);
        let slabs = self
            .shape
            .sizes()
            .map(|size| self.values(&[self.shape.depth, size]));
        let parameters = slabs.each_ref().map(|v| {
            if train {
                v.as_tensor().clone()
            } else {
                v.as_detached_tensor()
            }
        });
        let x = if train {
            x.as_tensor().clone()
        } else {
            x.as_detached_tensor()
        };
        let start = Instant::now();
        let mut best = (Duration::MAX, Duration::MAX);
        let mut steps = 0;
        while steps < 6 || start.elapsed() < budget {
            steps += 1;
            let (step, used) = (Instant::now(), processor_time());
            let y = wave_ops::blocks(precision, &x, &parameters, self.shape, None).unwrap();
            if train {
                black_box(y.sum_all().unwrap().backward().unwrap());
            }
            black_box(y);
            best.0 = best.0.min(step.elapsed());
            best.1 = best.1.min(processor_time() - used);
        }
        best
    }
}

/// The time that all threads of this process have run; on Linux, elsewhere zero. On a machine that
/// others share it says more than the clock.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let nanoseconds = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// mimalloc's `mi_option_purge_delay`.
const PURGE_DELAY: std::ffi::c_int = 15;

// SAFETY: the declaration is that of mimalloc's header, and the allocator above links it.
unsafe extern "C" {
    fn mi_option_set(option: std::ffi::c_int, value: std::ffi::c_long);
}

fn main() {
    // Free memory is kept, as `wave` itself does it.
    // SAFETY: a plain store in a table of options; no other thread runs yet.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let peak = one.unwrap().install(|| wave_ops::peak(Precision::F32)) / 1e9;
    let threads = rayon::current_num_threads();
    let simd = wave_ops::simd().unwrap();
    println!("{simd}, {threads} threads, {peak:.0} GFLOP/s of f32 per core");
    let modes = [
        ("train f32", Precision::F32, true),
        ("train bf16", Precision::Bf16, true),
        ("forward f32", Precision::F32, false),
        ("forward bf16", Precision::Bf16, false),
    ];
    for case in &CASES {
        for (mode, precision, train) in modes {
            let name = format!("{} {mode}", case.name);
            if !filter.iter().all(|f| name.contains(f.as_str())) {
                continue;
            }
            let (clock, used) = case.time(precision, train, Duration::from_secs(3));
            let flops = case.flops() * if train { 3.0 } else { 1.0 };
            let report = |t: Duration, peak: f64| {
                let rate = flops / t.as_secs_f64() / 1e9;
                let share = 100.0 * rate / peak;
                format!(
                    "{:8.1} ms {rate:6.1} GFLOP/s {share:3.0} %",
                    t.as_secs_f64() * 1e3
                )
            };
            let clock = report(clock, peak * threads as f64);
            println!("{name:40} clock {clock}, processor {}", report(used, peak));
        }
    }
}
