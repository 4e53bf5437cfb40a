//! The training loop.

use crate::accumulate::{Gradients, MicroBatch};
use crate::batches::{Batches, Examples};
use crate::{Ranks, Schedule, State, TrainError, Variable};
use candle_core::{Device, Tensor};
use std::ops::ControlFlow;
use wave_ops::profile::{Work, doing};
use wave_ops::{Move, adamw_steps, ema_update, muon_step};

/// Steps without a finite loss after which training gives up.
pub(crate) const PATIENCE: u32 = 20;

/// The outcome of a step.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done, including this one.
    pub step: u64,
    /// Epochs done, in fractions.
    pub epoch: f64,
    /// True if an epoch, or the training, ends with this step.
    pub epoch_ends: bool,
    /// The loss of this batch; not finite if the step was skipped.
    pub loss: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The norm of the whole gradient before clipping.
    pub gradient_norm: f64,
}

/// Hyperparameters of a training, for any loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyperparameters {
    /// The learning rate over the steps, and their number.
    pub schedule: Schedule,
    /// Gradient-norm clipping: the largest allowed norm of the whole gradient.
    pub clip: Option<f64>,
    /// Decay of the EMA of the weights, if the state keeps one.
    pub ema_decay: Option<f64>,
    /// Gradient accumulation: the number of equal micro-batches in a step, 1 for the whole batch at once. With more,
    /// a step takes less memory. The result is the same up to rounding, unless images of a batch depend on each
    /// other, as in batch normalisation.
    pub micro_batches: usize,
}

/// Trains `variables` until `hyperparameters.schedule.steps`, from wherever `state` is, or until `observe` breaks.
///
/// `loss` takes a batch, its input (for images: (b, c, h, w)) on the variables' device, and its
/// [`MicroBatch`]; it returns a scalar, the mean over the examples. It must derive all random
/// numbers from the step's number, so that a resumed run repeats them.
///
/// A step whose loss or gradient is not finite is skipped, and halves the learning rate for a while
/// ([`State::halvings`]).
///
/// With several `ranks`, each computes its share of every batch, in the same number of micro-batches.
/// All start from the same variables and state, and end with the same.
///
/// # Errors
/// [`TrainError::NonFinite`] after too many skipped steps in a row; [`TrainError::Tensor`] when a share of the
/// batch cannot be split into that many micro-batches, or mixed images would be separated;
/// [`TrainError::Data`] when there are no equal shares; any error of the closures and the loader.
pub fn fit<B: Batches>(
    batches: &B,
    ranks: &dyn Ranks,
    hyperparameters: Hyperparameters,
    variables: &[Variable],
    state: &mut State,
    mut loss: impl FnMut(&B::Batch, &Tensor, &MicroBatch) -> candle_core::Result<Tensor>,
    mut observe: impl FnMut(
        &Progress,
        &State,
    ) -> Result<ControlFlow<()>, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<(), TrainError> {
    let Hyperparameters {
        schedule,
        clip,
        ema_decay,
        micro_batches,
    } = hyperparameters;
    let batches = batches.share(ranks.rank(), ranks.size())?;
    let per_epoch = batches.steps_per_epoch() as u64;
    let mut failures = 0;
    let mut prefetched = batches.prefetch(state.step, schedule.steps);
    while let Some(batch) = next(&mut prefetched) {
        let batch = batch?;
        let rate = schedule.at(state.step) * 0.5f64.powi(state.halvings() as i32);
        let gradients = gradients(
            &batch,
            &batches,
            ranks,
            micro_batches,
            state.step,
            variables,
            &mut loss,
        )?;
        let (value, norm) = update(gradients, variables, state, rate, clip, ema_decay)?;
        let finite = value.is_finite() && norm.is_finite();
        failures = if finite { 0 } else { failures + 1 };
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
                step: state.step,
                learning_rate: rate,
            });
        }
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

/// The next batch; the wait for it is measured.
fn next<T>(batches: &mut impl Iterator<Item = T>) -> Option<T> {
    let _measured = doing(Work::Loading);
    batches.next()
}

/// The gradients of a step, one micro-batch at a time; `batch` is this rank's share.
fn gradients<B: Batches>(
    batch: &B::Batch,
    batches: &B,
    ranks: &dyn Ranks,
    micro_batches: usize,
    step: u64,
    variables: &[Variable],
    loss: &mut impl FnMut(&B::Batch, &Tensor, &MicroBatch) -> candle_core::Result<Tensor>,
) -> candle_core::Result<Gradients> {
    let micro_batch = |rows: Vec<usize>| MicroBatch {
        step,
        batch: batches.batch_size(),
        rows: rows.into_iter().map(|row| batches.rows()[row]).collect(),
    };
    let portion = 1.0 / (micro_batches * ranks.size()) as f64;
    let device = variables.first().map_or(&Device::Cpu, |v| v.var.device());
    let input = |batch: &B::Batch| batch.input()?.to_device(device);
    let mut sum: Option<Gradients> = None;
    for rows in batch.split(micro_batches)? {
        let part = (micro_batches > 1).then(|| batch.select(&rows));
        let part = part.as_ref().unwrap_or(batch);
        let mut value = loss(part, &input(part)?, &micro_batch(rows))?;
        if portion < 1.0 {
            value = (value * portion)?;
        }
        let gradients = Gradients::new(&value, variables)?;
        sum = Some(match sum {
            None => gradients,
            Some(sum) => sum.add(gradients)?,
        });
    }
    let sum = sum.ok_or_else(|| candle_core::Error::Msg("a batch without micro-batches".into()))?;
    sum.over(ranks)
}

/// One step of the optimisers down the gradient of `loss`, a scalar, at learning rate `rate`. Returns the loss and
/// the norm of the whole gradient before clipping.
///
/// `clip` is as in [`Hyperparameters`]. If the loss or norm is not finite, the step is counted but nothing is updated.
pub fn step(
    loss: &Tensor,
    variables: &[Variable],
    state: &mut State,
    rate: f64,
    clip: Option<f64>,
) -> Result<(f64, f64), TrainError> {
    let gradients = Gradients::new(loss, variables)?;
    update(gradients, variables, state, rate, clip, None)
}

fn update(
    gradients: Gradients,
    variables: &[Variable],
    state: &mut State,
    rate: f64,
    clip: Option<f64>,
    ema_decay: Option<f64>,
) -> Result<(f64, f64), TrainError> {
    let _measured = doing(Work::Optimiser);
    let (loss, norm) = (gradients.loss, gradients.norm()?);
    state.step += 1;
    if !loss.is_finite() || !norm.is_finite() {
        state.skip();
        return Ok((loss, norm));
    }
    let scale = clip.map_or(1.0, |clip| (clip / norm.max(1e-12)).min(1.0));
    let t = state.step - state.skipped;
    let mut moves = Vec::with_capacity(variables.len());
    let moments = state.moments.iter_mut();
    for ((v, g), moments) in variables.iter().zip(&gradients.of).zip(moments) {
        let (Some(gradient), Some(moments)) = (g, moments) else {
            continue;
        };
        let mut moved = Move {
            var: &v.var,
            gradient,
            moments,
            learning_rate: (f64::from(v.rate.unwrap_or(0.0)) * rate) as f32,
            weight_decay: v.weight_decay,
        };
        match v.muon {
            Some(matrices) => muon_step(&mut moved, matrices, scale as f32)?,
            None => moves.push(moved),
        }
    }
    adamw_steps(&mut moves, scale as f32, t)?;
    if let (Some(averages), Some(decay)) = (&state.average, ema_decay) {
        // At first the average would mostly be the initial weights.
        let decay = decay.min((1.0 + t as f64) / (10.0 + t as f64));
        for (average, v) in averages.iter().zip(variables) {
            ema_update(average, &v.var, decay as f32)?;
        }
    }
    Ok((loss, norm))
}
