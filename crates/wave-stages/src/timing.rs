//! Timing of training steps, on random images in memory, so loading is not measured.

use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;
use wave_models::vit::{self, VitShape};
use wave_models::{Network, Weights, convmixer, transformer};
use wave_ops::Mode;
use wave_run::train::tracked;
use wave_train::{Rate, State, Variable};

/// Warm-up steps before the measurement, which fill caches and buffers.
pub(crate) const WARM_UP: usize = 3;

/// Seconds per image of a training step, measured on a few images.
pub(crate) fn training(
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
    let seconds = descend(device, &variables, 1, 1, || {
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
pub(crate) fn examples(shape: &VitShape, n: usize, device: &Device) -> Result<(Tensor, Tensor)> {
    let dims = [n, shape.channels, shape.image_size, shape.image_size];
    let images = random(&dims, device)?;
    Ok((images, targets(shape.classes, n)?))
}

/// Targets (n, classes).
pub(crate) fn targets(classes: usize, n: usize) -> Result<Tensor> {
    let labels: Vec<u32> = (0..n).map(|i| (i % classes) as u32).collect();
    Ok(wave_train::smoothed_targets(&labels, classes, 0.0)?)
}

/// Times steps of a loss and AdamW.
pub(crate) fn descend(
    device: &Device,
    variables: &[Variable],
    warm_up: usize,
    steps: usize,
    loss: impl Fn() -> candle_core::Result<Tensor>,
) -> Result<Vec<f64>> {
    let mut state = State::new(variables, false)?;
    clock(device, warm_up, steps, || {
        wave_train::step(&loss()?, variables, &mut state, 1e-4, Some(1.0))?;
        Ok(())
    })
}

/// Seconds of each of `steps` steps on a device, after `warm_up` steps.
pub(crate) fn clock(
    device: &Device,
    warm_up: usize,
    steps: usize,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(steps);
    for step in 0..warm_up + steps {
        let began = Instant::now();
        work()?;
        device.synchronize()?;
        if step >= warm_up {
            seconds.push(began.elapsed().as_secs_f64());
        }
    }
    Ok(seconds)
}

pub(crate) fn variables(
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

/// Uniform random values in -1..1, always the same.
pub(crate) fn random(dims: &[usize], device: &Device) -> Result<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let n: usize = dims.iter().product();
    let values: Vec<f32> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
    Ok(Tensor::from_vec(values, dims, &Device::Cpu)?.to_device(device)?)
}
