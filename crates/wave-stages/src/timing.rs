//! Timing of training steps, on random images in memory, so loading is not measured.

use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;
use wave_models::Weights;
use wave_run::train::Parameters;
use wave_train::{State, Variable};

/// Warm-up steps before the measurement, which fill caches and buffers.
pub(crate) const WARM_UP: usize = 3;

/// Random images (n, channels, side, side) for a network with this input, channels and side, and their targets
/// (n, classes).
pub(crate) fn examples(
    (channels, side): (usize, usize),
    classes: usize,
    n: usize,
    device: &Device,
) -> Result<(Tensor, Tensor)> {
    let labels: Vec<u32> = (0..n).map(|i| (i % classes) as u32).collect();
    let targets = wave_train::smoothed_targets(&labels, classes, 0.0)?;
    let images = random(&[n, channels, side, side], device)?;
    Ok((images, targets.to_device(device)?))
}

/// Times steps of AdamW, from these values, on their loss.
pub(crate) fn descend(
    values: impl IntoIterator<Item = (String, Tensor)>,
    device: &Device,
    (warm_up, steps): (usize, usize),
    loss: impl Fn(&Weights) -> candle_core::Result<Tensor>,
) -> Result<Vec<f64>> {
    let variable = |(name, t): (String, Tensor)| {
        Ok(Variable {
            name,
            var: Var::from_tensor(&t.to_device(device)?)?,
            rate: Some(1.0),
            weight_decay: 0.05,
            muon: None,
        })
    };
    let variables = values.into_iter().map(variable).collect::<Result<_>>()?;
    let Parameters { variables, weights } = Parameters::new(variables);
    let mut state = State::new(&variables, false)?;
    clock(device, warm_up, steps, || {
        wave_train::step(&loss(&weights)?, &variables, &mut state, 1e-4, Some(1.0))
    })
}

/// Seconds of each of `steps` steps on a device, after `warm_up` steps.
pub(crate) fn clock<T, E>(
    device: &Device,
    warm_up: usize,
    steps: usize,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<Vec<f64>>
where
    anyhow::Error: From<E>,
{
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

/// Uniform random values in -1..1, always the same.
pub(crate) fn random(dims: &[usize], device: &Device) -> Result<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let n: usize = dims.iter().product();
    let values: Vec<f32> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
    Ok(Tensor::from_vec(values, dims, &Device::Cpu)?.to_device(device)?)
}
