//! The observer of a training: its log, tests and checkpoints.

use super::{Outcome, Parameters, TrainRun, Trainable, TrainingData};
use crate::checkpoint::Best;
use crate::context::Context;
use crate::progress::Report;
use crate::run_dir::{Options, RunDir};
use crate::settings::Keep;
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::json;
use std::ops::ControlFlow;
use std::time::Instant;
use wave_models::{Weights, refuse};
use wave_ops::profile::{Work, doing};
use wave_train::{Batches, Progress, Scores, State, Variable};

/// Steps between two lines of the log.
const LOG_EVERY: u64 = 20;

pub(super) struct Observer<'a, T, D> {
    trainable: &'a T,
    train_run: &'a TrainRun<'a, D>,
    live: &'a Parameters,
    pub(super) run: Option<&'a mut RunDir>,
    context: &'a Context,
    best: Option<Best>,
    curve: Vec<(f64, f64)>,
    /// The last test: its step and scores.
    tested: Option<(u64, Scores)>,
    began: Instant,
    /// Why training ends here, if it does.
    pub(super) stopped: Option<String>,
    /// When the log last had a line, and the step there.
    pub(super) since: (Instant, u64),
    /// Time of the last checkpoint.
    saved: Instant,
}

impl<'a, T: Trainable, D: TrainingData> Observer<'a, T, D> {
    /// The observer with the initial state, or the saved one to resume from.
    pub(super) fn begin(
        trainable: &'a T,
        train_run: &'a TrainRun<'a, D>,
        live: &'a Parameters,
        mut run: Option<&'a mut RunDir>,
        options: &'a Options,
    ) -> Result<(Observer<'a, T, D>, State)> {
        let (began, context) = (Instant::now(), &options.context);
        let variables = &live.variables;
        let restored = match (&mut run, options.resume) {
            (Some(run), true) => run.restore(variables)?,
            _ => None,
        };
        let averaged = train_run.resolved.ema.is_some();
        let (state, best) = match restored {
            Some(restored) => restored,
            None => (State::new(variables, averaged)?, None),
        };
        let curve = match &run {
            Some(run) if state.step > 0 => run.scores()?,
            _ => Vec::new(),
        };
        let keeps_best = train_run.resolved.saving.keep == Keep::Best;
        if keeps_best && best.is_none() && !curve.is_empty() {
            refuse!(
                "run/best.safetensors, the best values of the tests so far, is missing; copy it back, or start over \
                 with --overwrite"
            );
        }
        let state = state.of_first(variables, context.ranks())?;
        let observer = Observer {
            trainable,
            train_run,
            live,
            run,
            context,
            best: Best::of_first(best, variables, context.ranks())?,
            curve,
            tested: None,
            began,
            stopped: None,
            since: (Instant::now(), state.step),
            saved: Instant::now(),
        };
        Ok((observer, state))
    }

    pub(super) fn observe(
        &mut self,
        progress: &Progress,
        state: &State,
        report: &mut Report,
    ) -> Result<ControlFlow<()>> {
        let p = progress;
        let batch = self.train_run.data.batches().batch_size();
        let steps = self.train_run.resolved.steps;
        let top1 = self.tested.map(|(_, scores)| 100.0 * scores.top1);
        let tested = top1.map_or(String::new(), |top1| format!("top-1 {top1:.2} %, "));
        report.step_of(
            p.step,
            self.trainable.share_done(p.step, steps),
            self.trainable.passes(p.step, steps),
            batch,
            &format!("loss {:.4}, {tested}", p.loss),
        );
        if !p.loss.is_finite() || !p.gradient_norm.is_finite() {
            report.line(&format!(
                "step {}: loss {}, gradient norm {}; skipped, and the learning rate halved",
                p.step, p.loss, p.gradient_norm
            ));
        }
        self.log(p, batch)?;
        if p.epoch_ends && p.step < steps && self.tests_after(p.epoch) {
            self.test(p, state, report)?;
        }
        let stop = self.context.interrupted();
        self.save(p, state, stop)?;
        if !stop && p.step < steps {
            self.stop_early(p.step);
        }
        if let Some(why) = &self.stopped {
            report.line(&format!("stopped: {why}"));
        } else if stop {
            self.context.ranks().wait(); // the first rank to exit ends all, so wait for the save
        } else {
            return Ok(ControlFlow::Continue(()));
        }
        Ok(ControlFlow::Break(()))
    }

    /// True if an epoch that is not the last ends with a test.
    fn tests_after(&self, epoch: f64) -> bool {
        let plan = &self.train_run.resolved.optimisation;
        let tested = self.train_run.every_epoch || plan.patience.is_some();
        let every = if tested { plan.test_epochs } else { 0 };
        let due = every > 0 && (epoch.round() as u64).is_multiple_of(every);
        due && self.train_run.data.has_tests()
    }

    /// Sets [`Observer::stopped`] if patience or time has run out; the same on all ranks.
    pub(super) fn stop_early(&mut self, step: u64) {
        let own = &self.train_run.resolved.optimisation;
        let (patience, time_limit) = (own.patience, own.time_limit);
        if patience.is_none() && time_limit.is_none() {
            return;
        }
        let tests = self.curve.iter().enumerate();
        let best = tests.max_by(|(i, a), (j, b)| a.1.total_cmp(&b.1).then(j.cmp(i))); // the first of equals
        let idle = best.map_or(0, |(i, _)| self.curve.len() - 1 - i);
        let impatient = patience.is_some_and(|n| idle >= n);
        let late = time_limit.is_some_and(|limit| minutes_since(self.began) >= limit);
        let steps = self.train_run.resolved.steps;
        let ranks = self.context.ranks();
        if ranks.any(impatient) {
            self.stopped = Some(format!(
                "none of the last {} tests was better, at step {step} of {steps}",
                patience.unwrap_or(0)
            ));
        } else if ranks.any(late) {
            self.stopped = Some(format!("time limit, at step {step} of {steps}"));
        }
    }

    fn log(&mut self, p: &Progress, batch: usize) -> Result<()> {
        let _measured = doing(Work::Checkpoints);
        let Some(run) = self.run.as_deref_mut() else {
            return Ok(());
        };
        if p.step.is_multiple_of(LOG_EVERY) || p.epoch_ends {
            let seconds = self.since.0.elapsed().as_secs_f64().max(1e-9);
            let images = (p.step - self.since.1) as f64 * batch as f64;
            run.log(&json!({
                "step": p.step,
                "epoch": p.epoch,
                "loss": p.loss,
                "learning_rate": p.learning_rate,
                "gradient_norm": p.gradient_norm,
                "images_per_second": (images / seconds).round(),
            }))?;
            self.since = (Instant::now(), p.step);
        }
        Ok(())
    }

    /// Tests the current values, and keeps them if they are the best so far.
    fn test(&mut self, p: &Progress, state: &State, report: &Report) -> Result<()> {
        let _measured = doing(Work::Tests);
        let now = self.values(state)?;
        let plan = self.train_run.resolved;
        // Keeping the best values, and patience, need one score of the whole.
        let keep_best = plan.saving.keep == Keep::Best;
        let all = match keep_best || plan.optimisation.patience.is_some() {
            true => vec![(String::new(), self.trainable.score(&now)?)],
            false => self.trainable.scores_at(&now, p.step)?,
        };
        let scores = all.last().map(|(_, scores)| *scores).unwrap_or_default();
        let better = self.best.as_ref().is_none_or(|b| scores.top1 > b.top1);
        if keep_best && better {
            let kept = Best::copy(&now, scores.top1)?;
            if let Some(run) = self.run.as_deref_mut() {
                run.keep_best(&kept)?;
            }
            self.best = Some(kept);
        }
        let words = |(name, scores): &(String, Scores)| {
            let space = if name.is_empty() { "" } else { " " };
            let (top1, loss) = (100.0 * scores.top1, scores.loss);
            format!("{name}{space}top-1 {top1:.2} %, test loss {loss:.4}")
        };
        let words: Vec<String> = all.iter().map(words).collect();
        report.line(&format!("epoch {:.2}: {}", p.epoch, words.join("; ")));
        self.record(p.step, p.epoch, &scores)
    }

    fn record(&mut self, step: u64, epoch: f64, scores: &Scores) -> Result<()> {
        self.tested = Some((step, *scores));
        self.curve.push((epoch, scores.top1));
        match self.run.as_deref_mut() {
            Some(run) => run.log(&json!({
                "step": step,
                "epoch": epoch,
                "top1": scores.top1,
                "top5": scores.top5,
                "test_loss": scores.loss,
            })),
            None => Ok(()),
        }
    }

    /// Saves the state when it is due, and always if training is to `stop`.
    fn save(&mut self, p: &Progress, state: &State, stop: bool) -> Result<()> {
        let _measured = doing(Work::Checkpoints);
        let Some(run) = self.run.as_deref_mut() else {
            return Ok(());
        };
        let saving = &self.train_run.resolved.saving;
        let every = |n: u64| p.step.is_multiple_of(n);
        let due = stop || p.epoch_ends || saving.checkpoint_steps.is_some_and(every);
        if due {
            // All ranks get here at the same step.
            state.check(&self.live.variables, self.context.ranks())?;
        }
        let minutes = saving.checkpoint_minutes;
        let late = minutes > 0.0 && minutes_since(self.saved) >= minutes;
        if (due || late) && run.save(state, &self.live.variables, stop)? {
            self.saved = Instant::now();
        }
        Ok(())
    }

    /// The values, or their EMA if kept.
    fn values(&self, state: &State) -> Result<Weights> {
        let variables = &self.live.variables;
        let value = |v: &Variable| (v.name.clone(), v.var.as_detached_tensor());
        let averages = state.averages(variables)?;
        Ok(averages.unwrap_or_else(|| variables.iter().map(value).collect()))
    }

    /// Tests the last values, and returns the best instead if those were better.
    pub(super) fn finish(mut self, state: &State) -> Result<Outcome> {
        let _measured = doing(Work::Tests);
        let trainable = self.trainable;
        let mut values = self.values(state)?;
        let steps = state.step;
        let epochs = steps as f64 / self.train_run.data.batches().steps_per_epoch() as f64;
        let mut scores = match self.tested {
            Some((step, scores)) if step == steps => Some(scores),
            _ if self.train_run.data.has_tests() => {
                let last = trainable.score(&values)?;
                self.record(steps, epochs, &last)?;
                Some(last)
            }
            _ => None,
        };
        if let (Some(best), Some(last)) = (&self.best, scores)
            && best.top1 > last.top1
        {
            values = self.context.place(&best.values)?;
            scores = Some(trainable.score(&values)?);
        }
        let on_host = |(name, t): (String, Tensor)| Ok((name, t.to_device(&Device::Cpu)?));
        Ok(Outcome {
            values: values.into_iter().map(on_host).collect::<Result<_>>()?,
            scores,
            curve: self.curve,
            steps,
            epochs,
            stopped: self.stopped,
            profile: None,
        })
    }
}

fn minutes_since(time: Instant) -> f64 {
    time.elapsed().as_secs_f64() / 60.0
}
