//! The loop.

use crate::metrics::batch_images;
use crate::{Schedule, State, TrainError, Variable};
use candle_core::Tensor;
use wave_data::{Batch, Loader};
use wave_ops::{AdamW, adamw_step, ema_update, squared_norm};

/// Steps without a finite loss after which training gives up.
const PATIENCE: u32 = 20;

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Take the next step.
    Continue,
    /// Return [`TrainError::Interrupted`].
    Stop,
}

/// What a step did.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done, this one included.
    pub step: u64,
    /// Epochs done, in fractions.
    pub epoch: f64,
    /// Whether an epoch, or the training, ends with this step.
    pub epoch_ends: bool,
    /// The loss of this batch; not finite if the step was skipped.
    pub loss: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The norm of the whole gradient before clipping.
    pub gradient_norm: f64,
}

/// Trains `variables` until `schedule.steps`, from wherever `state` is.
///
/// `loss` turns a batch, its images (b, c, h, w) and the step's number, counted from 0, into a
/// scalar. Whatever it draws at random it must derive from that number, so that a resumed run
/// repeats it. Gradients are scaled to a norm of at most `clip`; `decay` is that of the moving
/// average, if the state keeps one. A step whose loss or gradient is not finite is skipped.
///
/// # Errors
/// [`TrainError::NonFinite`] after too many skipped steps in a row; [`TrainError::Interrupted`]
/// when `observe` returns [`Flow::Stop`]; whatever the closures and the loader return.
pub fn fit(
    loader: &Loader,
    schedule: Schedule,
    clip: Option<f64>,
    decay: Option<f64>,
    variables: &[Variable],
    state: &mut State,
    mut loss: impl FnMut(&Batch, &Tensor, u64) -> candle_core::Result<Tensor>,
    mut observe: impl FnMut(&Progress, &State) -> Result<Flow, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<(), TrainError> {
    let per_epoch = loader.steps_per_epoch() as u64;
    let mut failures = 0;
    for batch in loader.prefetch(state.step, schedule.steps) {
        let batch = batch?;
        let rate = schedule.at(state.step);
        let value = loss(&batch, &batch_images(&batch)?, state.step)?;
        let (value, norm) = step(&value, variables, state, rate, clip, decay)?;
        failures = if value.is_finite() && norm.is_finite() {
            0
        } else {
            failures + 1
        };
        let progress = Progress {
            step: state.step,
            epoch: state.step as f64 / per_epoch as f64,
            epoch_ends: state.step.is_multiple_of(per_epoch) || state.step == schedule.steps,
            loss: value,
            learning_rate: rate,
            gradient_norm: norm,
        };
        let flow = observe(&progress, state).map_err(TrainError::Observer)?;
        if failures >= PATIENCE {
            return Err(TrainError::NonFinite {
                count: failures,
                step: state.step,
                learning_rate: rate,
            });
        }
        if flow == Flow::Stop && state.step < schedule.steps {
            return Err(TrainError::Interrupted(state.step));
        }
    }
    Ok(())
}

/// One step of AdamW down the gradient of `loss`, a scalar, at learning rate `rate`; returns the
/// loss and the norm of the whole gradient before clipping.
///
/// `clip` and `decay` as for [`fit`]. Where loss or norm is not finite, only the step is counted.
///
/// # Errors
/// Whatever the backward pass and the update return.
pub fn step(
    loss: &Tensor,
    variables: &[Variable],
    state: &mut State,
    rate: f64,
    clip: Option<f64>,
    decay: Option<f64>,
) -> Result<(f64, f64), TrainError> {
    let gradients = wave_ops::backward(loss)?;
    let loss = f64::from(loss.to_scalar::<f32>()?);
    let mut squares = 0.0;
    for v in variables {
        if let Some(g) = gradients.get(&v.var) {
            squares += squared_norm(g)?;
        }
    }
    let norm = squares.sqrt();
    state.step += 1;
    if !loss.is_finite() || !norm.is_finite() {
        state.skipped += 1;
        return Ok((loss, norm));
    }
    let scale = clip.map_or(1.0, |clip| (clip / norm.max(1e-12)).min(1.0));
    let t = state.step - state.skipped;
    for (v, (first, second)) in variables.iter().zip(&mut state.moments) {
        let Some(g) = gradients.get(&v.var) else {
            continue;
        };
        if v.rate.is_empty() {
            continue;
        }
        let rates: Vec<f32> = v
            .rate
            .iter()
            .map(|r| (f64::from(*r) * rate) as f32)
            .collect();
        adamw_step(
            &v.var,
            g,
            (&mut first[..], &mut second[..]),
            AdamW::default(),
            &rates,
            v.weight_decay,
            scale as f32,
            t,
        )?;
    }
    if let (Some(averages), Some(decay)) = (&mut state.average, decay) {
        // Early on the average would mostly be the start; follow faster at first.
        let decay = decay.min((1.0 + t as f64) / (10.0 + t as f64));
        for (average, v) in averages.iter_mut().zip(variables) {
            ema_update(average, &v.var, decay as f32)?;
        }
    }
    Ok((loss, norm))
}
