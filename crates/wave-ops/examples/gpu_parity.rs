//! Every operator that has kernels for GPUs, on a GPU beside the processor: largest relative errors of
//! results and gradients, in f32 and in bf16. Ends with 1 if any is off.
//!
//! ```text
//! gpu_parity [cuda:N]    in builds with the feature cuda
//! gpu_parity host        the kernels on the processor, in builds with the feature host-kernels
//! ```

use candle_core::{Device, Result, Tensor, Var};
use rand::{Rng, SeedableRng};
use std::process::ExitCode;
#[cfg(feature = "host-kernels")]
use wave_ops::on_host_kernels;
use wave_ops::{BlocksShape, Kronecker, Matrices, Mode, Moments, Move, Precision};

/// Relative to the norm of what the processor gives. Sums of f32 in another order; factors in bf16 through
/// a few layers.
const CLOSE: f64 = 1e-4;
const NEAR: f64 = 5e-2;

fn random(seed: u64, shape: &[usize], size: f32) -> Tensor {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let n = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|_| size * rng.random_range(-1.0..1.0)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("as many values as the shape has")
}

fn values(t: &Tensor) -> Result<Vec<f32>> {
    t.flatten_all()?.to_vec1()
}

/// The result of `f` and the gradients of a projection of it.
fn run(
    device: &Device,
    inputs: &[Tensor],
    f: &dyn Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<Vec<Vec<f32>>> {
    let place = |t: &Tensor| Var::from_tensor(&t.to_device(device)?);
    let vars: Vec<Var> = inputs.iter().map(place).collect::<Result<_>>()?;
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let y = f(&tensors)?;
    let projection = random(99, y.dims(), 1.0).to_device(device)?;
    let gradients = wave_ops::backward(&(&y * projection)?.sum_all()?)?;
    let mut all = vec![values(&y)?];
    for v in &vars {
        let none = || candle_core::Error::Msg("an input has no gradient".into());
        all.push(values(gradients.get(v).ok_or_else(none)?)?);
    }
    Ok(all)
}

/// The largest error of any result, relative to its norm; infinite where one is not a number.
fn error(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f64 {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let one = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        let size = norm(&mut expected.iter().map(|x| f64::from(*x)));
        let pairs = found.iter().zip(expected);
        let off = norm(&mut pairs.map(|(f, e)| f64::from(*f) - f64::from(*e)));
        let relative = off / size.max(0.01 * (expected.len() as f64).sqrt());
        if relative.is_finite() {
            relative
        } else {
            f64::INFINITY
        }
    };
    found.iter().zip(expected).map(one).fold(0.0, f64::max)
}

/// In builds without them there is no `host`.
#[cfg(not(feature = "host-kernels"))]
fn on_host_kernels<R>(_order: u32, f: impl FnOnce() -> R) -> R {
    f()
}

struct Parity {
    device: Device,
    host: bool,
    off: usize,
}

impl Parity {
    fn there<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.host {
            on_host_kernels(2, f)
        } else {
            f()
        }
    }

    /// Runs the same there, twice, and reports it beside what the processor gives.
    fn beside(
        &mut self,
        what: &str,
        run: impl Fn(&Device) -> Result<Vec<Vec<f32>>>,
        expected: &[Vec<f32>],
        tolerance: f64,
    ) -> Result<()> {
        let found = self.there(|| run(&self.device))?;
        let again = self.there(|| run(&self.device))?;
        let error = error(&found, expected);
        let verdict = match (error < tolerance, found == again) {
            (true, true) => "ok",
            (false, _) => "OFF",
            (true, false) => "CHANGES FROM RUN TO RUN",
        };
        self.off += usize::from(verdict != "ok");
        println!("{what:58} {error:9.1e}  of {tolerance:7.0e}  {verdict}");
        Ok(())
    }

    fn check(
        &mut self,
        what: &str,
        inputs: &[Tensor],
        f: impl Fn(&[Tensor]) -> Result<Tensor>,
    ) -> Result<()> {
        self.compare(what, inputs, &f, &f, CLOSE)
    }

    fn compare(
        &mut self,
        what: &str,
        inputs: &[Tensor],
        f: &dyn Fn(&[Tensor]) -> Result<Tensor>,
        reference: &dyn Fn(&[Tensor]) -> Result<Tensor>,
        tolerance: f64,
    ) -> Result<()> {
        let expected = run(&Device::Cpu, inputs, reference)?;
        self.beside(what, |device| run(device, inputs, f), &expected, tolerance)
    }

    fn operators(&mut self) -> Result<()> {
        for (rows, d) in [(1, 4), (17, 33), (197, 192), (50, 1000)] {
            let inputs = [
                random(1, &[rows, d], 1.0),
                random(2, &[d], 1.0),
                random(3, &[d], 1.0),
            ];
            let norm = |t: &[Tensor]| wave_ops::layer_norm(&t[0], &t[1], &t[2], 1e-6);
            self.check(&format!("layer norm ({rows}, {d})"), &inputs, norm)?;
        }
        let x = [random(1, &[10_001], 5.0)];
        self.check("GELU (10001)", &x, |t| wave_ops::gelu(&t[0]))?;
        for (rows, classes) in [(3, 10), (128, 1000)] {
            let [z, other] = [1, 2].map(|seed| random(seed, &[rows, classes], 8.0));
            let targets = wave_ops::stock::softmax(&other)?;
            let what = format!("soft cross-entropy ({rows}, {classes})");
            self.check(&what, &[z], |t| {
                wave_ops::soft_cross_entropy(&t[0], &targets)
            })?;
        }
        for (n, t, l, r, c) in [(3, 5, 2, 2, 3), (24, 64, 6, 3, 1)] {
            for order in [Kronecker::Tile, Kronecker::Interleave] {
                let inputs = [random(1, &[n, t, t], 1.0), random(2, &[l, n, r, c], 1.0)];
                let what = format!("Kronecker sum, {order:?}, {n} templates of {t}");
                self.check(&what, &inputs, |x| {
                    wave_ops::kronecker_sum(&x[0], &x[1], order)
                })?;
            }
        }
        Ok(())
    }

    /// Blocks: attention, residual connections, and all products.
    fn blocks(&mut self) -> Result<()> {
        for (b, n, heads, head, hidden, depth) in [
            (1, 1, 1, 32, 7, 1),
            (2, 17, 3, 16, 100, 2),
            (3, 50, 2, 24, 33, 2),
            (2, 50, 1, 128, 64, 1),
            (2, 197, 3, 64, 768, 2),
        ] {
            let shape = BlocksShape {
                depth,
                width: heads * head,
                heads,
                hidden,
                eps: 1e-6,
            };
            let mut inputs = vec![random(1, &[b, n, shape.width], 1.0)];
            for (i, size) in shape.sizes().into_iter().enumerate() {
                // Scores as they are in networks, and norms that keep the size.
                let size_of = if size > 3 * shape.width {
                    1.7 / (shape.width as f32).sqrt()
                } else {
                    1.0
                };
                inputs.push(random(2 + i as u64, &[depth, size], size_of));
            }
            let scales: Vec<f32> = (0..depth * 2 * b)
                .map(|i| [1.25, 0.0, 2.0][i % 3])
                .collect();
            let run = |precision, recompute| {
                let scales = scales.clone();
                move |t: &[Tensor]| {
                    let slabs: Vec<Tensor> = t[1..].to_vec();
                    let slabs = slabs.try_into().expect("twelve slabs");
                    let mode = Mode {
                        precision,
                        recompute,
                    };
                    wave_ops::blocks(mode, &t[0], &slabs, shape, Some(scales.clone()))
                }
            };
            let single = run(Precision::F32, false);
            let what =
                format!("blocks ({b}, {n}, {heads} x {head}), hidden {hidden}, depth {depth}");
            self.compare(&what, &inputs, &single, &single, CLOSE)?;
            let again = run(Precision::F32, true);
            self.compare(
                &format!("{what}, recomputed"),
                &inputs,
                &again,
                &single,
                CLOSE,
            )?;
            let half = run(Precision::Bf16, false);
            self.compare(&format!("{what}, bf16"), &inputs, &half, &single, NEAR)?;
        }
        Ok(())
    }

    fn optimiser(&mut self) -> Result<()> {
        let sizes = [1, 2, 17, 4096, 4097, 10_000];
        let run = |device: &Device| -> Result<Vec<Vec<f32>>> {
            let start =
                |i: usize| Var::from_tensor(&random(i as u64, &[sizes[i]], 1.0).to_device(device)?);
            let vars: Vec<Var> = (0..sizes.len()).map(start).collect::<Result<_>>()?;
            let mut moments: Vec<Moments> = vars.iter().map(Moments::new).collect::<Result<_>>()?;
            let mut norms = Vec::new();
            for t in 1..=3 {
                let gradient =
                    |i: usize| random(100 * t + i as u64, &[sizes[i]], 1.0).to_device(device);
                let gradients: Vec<Tensor> =
                    (0..sizes.len()).map(gradient).collect::<Result<_>>()?;
                let mut moves: Vec<Move> = Vec::new();
                for (i, moments) in moments.iter_mut().enumerate() {
                    moves.push(Move {
                        var: &vars[i],
                        gradient: &gradients[i],
                        moments,
                        learning_rate: 0.03 + 0.02 * i as f32,
                        weight_decay: 0.1 * i as f32,
                    });
                }
                wave_ops::adamw_steps(&mut moves, 0.5, t)?;
                let all: Vec<&Tensor> = gradients.iter().collect();
                norms.push(wave_ops::squared_norms(&all)? as f32);
            }
            let mut all = vec![norms];
            for v in &vars {
                all.push(values(v)?);
            }
            Ok(all)
        };
        let expected = run(&Device::Cpu)?;
        self.beside("AdamW and norms of 6 tensors", run, &expected, 1e-5)
    }

    /// Muon on weights of twelve layers.
    fn muon(&mut self) -> Result<()> {
        for dims in [[12, 96, 384], [12, 384, 96], [2, 100, 100]] {
            let run = |device: &Device| -> Result<Vec<Vec<f32>>> {
                let place = |seed| random(seed, &dims, 1.0).to_device(device);
                let var = Var::from_tensor(&place(1)?)?;
                let mut moments = Moments::momentum(&var)?;
                for t in 0..2 {
                    let gradient = place(2 + t)?;
                    let mut moved = Move {
                        var: &var,
                        gradient: &gradient,
                        moments: &mut moments,
                        learning_rate: 1.0,
                        weight_decay: 0.9,
                    };
                    let matrices = Matrices {
                        stacked: 1,
                        rows: 1,
                    };
                    wave_ops::muon_step(&mut moved, matrices, 0.5)?;
                }
                Ok(vec![values(&var)?, values(&moments.to_tensors()?[0])?])
            };
            // Products of factors of ten bits.
            let expected = run(&Device::Cpu)?;
            self.beside(&format!("Muon of {dims:?}"), run, &expected, NEAR)?;
        }
        Ok(())
    }
}

fn parity(name: &str) -> Result<usize> {
    let host = name == "host";
    let device = match name.strip_prefix("cuda") {
        _ if host => Device::Cpu,
        Some(number) => Device::new_cuda(number.trim_start_matches(':').parse().unwrap_or(0))?,
        None => candle_core::bail!("{name}: expected cuda, cuda:N or host"),
    };
    if host && cfg!(not(feature = "host-kernels")) {
        candle_core::bail!("host: build with --features host-kernels");
    }
    let mut parity = Parity {
        device,
        host,
        off: 0,
    };
    parity.operators()?;
    parity.blocks()?;
    parity.optimiser()?;
    parity.muon()?;
    Ok(parity.off)
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cuda".into());
    match parity(&name) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(off) => {
            println!("{off} off");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("gpu_parity: {e}");
            ExitCode::from(2)
        }
    }
}
