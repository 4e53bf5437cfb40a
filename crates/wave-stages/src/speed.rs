//! `wave speed`: speed of training, inference and condensation of a transformer on this machine.
//!
//! The steps are those of the stages, on random images in memory: loading is not measured.

use crate::condense::{self, CondensePlan};
use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::time::Instant;
use wave_models::vit::{self, VitShape};
use wave_models::{Network, Weights, convmixer, transformer};
use wave_ops::{Mode, Precision};
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::settings::{
    self, Auxiliary, Condense, PrecisionChoice, Speed, SpeedMode, TemplateStart,
};
use wave_run::train::tracked;
use wave_train::{Rate, State, Variable};

/// Steps before the measurement, which fill caches and buffers.
const WARM_UP: usize = 3;

/// Measures, and returns the output of `--json`.
pub fn speed(wanted: &Speed, context: &Context) -> Result<Value> {
    settings::check(wanted)?;
    let shape = shape(wanted)?;
    let (batch, steps) = (wanted.batch.unwrap_or(16), wanted.steps.unwrap_or(10));
    if batch == 0 || steps == 0 {
        return Err(request("--batch and --steps are at least 1"));
    }
    let device = context.device();
    if wanted.peak && !device.is_cpu() {
        return Err(request(
            "--peak measures the processor, and the work is to be on another device; leave it out",
        ));
    }
    let (images, targets) = examples(&shape, batch, device)?;
    let how = settings::mode(
        wanted.precision.unwrap_or(PrecisionChoice::F32),
        wanted.recompute.unwrap_or(false),
        device,
    )?;
    let (passes, seconds) = match wanted.mode.unwrap_or(SpeedMode::Train) {
        SpeedMode::Forward => (1.0, forward(&shape, &images, how, steps)?),
        SpeedMode::Train => (3.0, train(&shape, &images, &targets, how, steps)?),
        SpeedMode::Condense => (3.0, distil(&shape, &images, &targets, how, steps)?),
    };
    let mut sorted = seconds;
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let operations = 2.0 * passes * shape.multiply_adds() as f64 * batch as f64;
    let mut found = json!({
        "images_per_second": batch as f64 / median,
        "step_ms_median": 1e3 * median,
        "step_ms_min": 1e3 * sorted[0],
        "peak_rss_bytes": peak_memory(),
        "gflops": operations / median / 1e9,
        "simd": wave_ops::simd()?.name(),
        "precision": match how.precision {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        },
        "threads": rayon::current_num_threads(),
        "parameters": shape.parameter_count(),
    });
    if wanted.peak {
        let peak = wave_ops::peak(how.precision);
        found["peak_gflops"] = json!(peak / 1e9);
        found["share_of_peak"] = json!(operations / median / peak);
    }
    Ok(found)
}

/// Floating-point operations per second of a condensation, on few images.
pub fn condensing(shape: &VitShape, images: usize, how: Mode, device: &Device) -> Result<f64> {
    let (input, targets) = examples(shape, images, device)?;
    let seconds = distil(shape, &input, &targets, how, 1)?;
    Ok(6.0 * shape.multiply_adds() as f64 * images as f64 / seconds[0])
}

/// Seconds per image of a training step, measured on a few.
pub fn training(
    network: &Network,
    weights: &Weights,
    images: usize,
    how: Mode,
    device: &Device,
) -> Result<f64> {
    let (channels, side) = network.input();
    let input = random(&[images, channels, side, side], device)?;
    let targets = targets(network.classes(), images)?;
    let variables = variables(weights.clone(), device)?;
    let weights = tracked(&variables);
    let seconds = descend(&variables, 1, 1, || {
        let logits = match network {
            Network::Vit(shape) => vit::logits_in(how, shape, &weights, &input, None)?,
            Network::Transformer(shape) => {
                transformer::logits_in(how, shape, &weights, &input, None)?
            }
            Network::ConvMixer(shape) => convmixer::logits_train(shape, &weights, &input)?.0,
            other => other.logits(&weights, &input)?,
        };
        wave_ops::soft_cross_entropy(&logits, &targets)
    })?;
    Ok(seconds[0] / images as f64)
}

/// Random images (n, c, h, w) and their targets (n, classes).
fn examples(shape: &VitShape, n: usize, device: &Device) -> Result<(Tensor, Tensor)> {
    let dims = [n, shape.channels, shape.image_size, shape.image_size];
    let images = random(&dims, device)?;
    Ok((images, targets(shape.classes, n)?))
}

/// Targets (n, classes).
fn targets(classes: usize, n: usize) -> Result<Tensor> {
    let labels: Vec<u32> = (0..n).map(|i| (i % classes) as u32).collect();
    Ok(wave_train::smoothed_targets(&labels, classes, 0.0)?)
}

fn shape(settings: &Speed) -> Result<VitShape> {
    let width = settings.width.unwrap_or(192);
    let shape = VitShape {
        image_size: settings.image.unwrap_or(224),
        channels: settings.channels.unwrap_or(3),
        patch: settings.patch.unwrap_or(16),
        depth: settings.depth.unwrap_or(12),
        width,
        heads: settings.heads.unwrap_or((width / 64).max(1)),
        mlp_ratio: settings.mlp_ratio.unwrap_or(4.0),
        classes: settings.classes.unwrap_or(1000),
        class_token: settings.class_token.unwrap_or(true),
        ..VitShape::default()
    };
    shape.validate()?;
    Ok(shape)
}

/// Seconds of each forward pass.
fn forward(shape: &VitShape, images: &Tensor, how: Mode, steps: usize) -> Result<Vec<f64>> {
    let weights = fresh(shape)?;
    let weights: Weights = weights
        .into_iter()
        .map(|(name, t)| Ok((name, t.to_device(images.device())?)))
        .collect::<Result<_>>()?;
    clock(WARM_UP, steps, || {
        vit::logits_in(how, shape, &weights, images, None)?
            .sum_all()?
            .to_scalar::<f32>()?;
        Ok(())
    })
}

/// Seconds of each training step: forward, backward, AdamW.
fn train(
    shape: &VitShape,
    images: &Tensor,
    targets: &Tensor,
    how: Mode,
    steps: usize,
) -> Result<Vec<f64>> {
    let variables = variables(fresh(shape)?, images.device())?;
    let weights = tracked(&variables);
    descend(&variables, WARM_UP, steps, || {
        let logits = vit::logits_in(how, shape, &weights, images, None)?;
        wave_ops::soft_cross_entropy(&logits, targets)
    })
}

/// Seconds of each step of a condensation whose ancestor outputs are already computed.
fn distil(
    shape: &VitShape,
    images: &Tensor,
    targets: &Tensor,
    how: Mode,
    steps: usize,
) -> Result<Vec<f64>> {
    let settings = Condense {
        auxiliary: Auxiliary::from(shape),
        template_start: Some(TemplateStart::Xavier), // sooner there
        ..Condense::default()
    };
    let plan = CondensePlan::new(&settings)?.on(shape.channels, shape.classes);
    let gene = condense::start(&plan, 0)?;
    let variables = variables(gene.tensors(), images.device())?;
    let live = gene.with_tensors(&tracked(&variables));
    let teacher = random(&[targets.dim(0)?, shape.classes], images.device())?;
    let step = || -> candle_core::Result<Tensor> {
        let weights = live.stacked_weights(shape)?;
        let logits = vit::logits_in(how, shape, &weights, images, None)?;
        plan.objective
            .loss(&logits, Some(&teacher), || Ok(targets.clone()))
    };
    descend(&variables, WARM_UP, steps, step)
}

/// Times steps of a loss and AdamW.
fn descend(
    variables: &[Variable],
    warm_up: usize,
    steps: usize,
    loss: impl Fn() -> candle_core::Result<Tensor>,
) -> Result<Vec<f64>> {
    let mut state = State::new(variables, false)?;
    clock(warm_up, steps, || {
        wave_train::step(&loss()?, variables, &mut state, 1e-4, Some(1.0), None)?;
        Ok(())
    })
}

/// Seconds of each of so many `steps`, after `warm_up` steps.
fn clock(warm_up: usize, steps: usize, mut work: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(steps);
    for step in 0..warm_up + steps {
        let began = Instant::now();
        work()?;
        if step >= warm_up {
            seconds.push(began.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}

fn variables(
    values: impl IntoIterator<Item = (String, Tensor)>,
    device: &Device,
) -> Result<Vec<Variable>> {
    let variable = |(name, t): (String, Tensor)| {
        Ok(Variable {
            name,
            var: Var::from_tensor(&t.to_device(device)?)?,
            rate: Rate::Uniform(1.0),
            weight_decay: 0.05,
            muon: None,
        })
    };
    values.into_iter().map(variable).collect()
}

fn fresh(shape: &VitShape) -> Result<Weights> {
    let options = wave_init::DirectOptions::new(wave_init::DirectMethod::Timm);
    let weights = crate::init::fill(shape, &options, 0)?;
    Ok(vit::stack(&weights, shape.depth)?)
}

/// Uniform in -1..1, always the same values.
fn random(dims: &[usize], device: &Device) -> Result<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let n: usize = dims.iter().product();
    let values: Vec<f32> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
    Ok(Tensor::from_vec(values, dims, &Device::Cpu)?.to_device(device)?)
}

/// Peak memory of this process in bytes, where the system reports it.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
