//! The outer loop: Adam on the parameters of distributions, with gradients through whole training runs.

use super::learned::{self, Noise};
use super::plan::Plan;
use super::problem::Episode;
use anyhow::{Result, bail};
use candle_core::{Tensor, Var};
use rand::Rng;
use serde_json::json;
use std::time::Instant;
use wave_models::Weights;
use wave_run::progress::Report;
use wave_run::run_dir::RunDir;
use wave_run::train::step_generator;
use wave_stages::finetune::Options;
use wave_train::unrolled::Optimiser;
use wave_train::{Rate, State, TrainError, Variable};

/// The paper's decay rates (appendix B.1).
const ADAM: Optimiser = Optimiser::Adam {
    beta1: 0.9,
    beta2: 0.997,
    eps: 1e-8,
};

/// Number of training runs in a row without a finite gradient after which learning fails.
const PATIENCE: u32 = 10;

/// The learned parameters with the state of Adam: name, value, first and second moment. Constants have
/// no moments.
struct Learned(Vec<(String, [Variable; 3])>);

impl Learned {
    fn new(parameters: &Weights) -> candle_core::Result<Learned> {
        let learned = parameters
            .iter()
            .filter(|(name, _)| !name.starts_with("constant."));
        let kept = |kind: &str, name: &str, t: &Tensor| -> candle_core::Result<Variable> {
            Ok(Variable {
                name: format!("{kind}{name}"),
                var: Var::from_tensor(t)?,
                rate: Rate::Frozen, // saved with the state, and stepped here
                weight_decay: 0.0,
                muon: None,
            })
        };
        let all = learned.map(|(name, t)| -> candle_core::Result<_> {
            let zeros = || t.zeros_like();
            let of = [
                kept("", name, &t.copy()?)?,
                kept("adam_first.", name, &zeros()?)?,
                kept("adam_second.", name, &zeros()?)?,
            ];
            Ok((name.clone(), of))
        });
        Ok(Learned(all.collect::<candle_core::Result<_>>()?))
    }

    fn variables(&self) -> Vec<Variable> {
        self.0.iter().flat_map(|(_, of)| of.clone()).collect()
    }

    /// All parameters, with the learned ones at their current values, tracked or not.
    fn parameters(&self, first: &Weights, tracked: bool) -> Weights {
        let mut all = first.clone();
        for (name, [value, ..]) in &self.0 {
            let t = match tracked {
                true => value.var.as_tensor().clone(),
                false => value.var.as_detached_tensor(),
            };
            all.insert(name.clone(), t);
        }
        all
    }
}

/// Learns the parameters of distributions. Must run inside `wave_train::second_order`.
pub(super) fn learn(plan: &Plan, run: &mut RunDir, options: &Options) -> Result<Weights> {
    let dtype = plan.network.dtype();
    let shapes = plan.network.shapes()?;
    let first = learned::first_parameters(plan.family, &plan.network.usual(plan.seed)?)?;
    let learned = Learned::new(&first)?;
    let variables = learned.variables();
    let mut state = match options.resume {
        true => run.restore(&variables)?.map(|(state, _)| state),
        false => None,
    }
    .map_or_else(|| State::new(&variables, false), Ok)?;
    let stream = plan.source.stream(plan.seed)?;
    let mut report = Report::new("meta", state.step, plan.steps, options.verbosity);
    let examples = plan.source.batch() * plan.inner.steps as usize;
    let (mut saved, mut failures) = (Instant::now(), 0);
    let saving = options.context.interruption().saving();
    while state.step < plan.steps {
        let k = state.step;
        let seed = step_generator(plan.seed, k).random();
        let parameters = learned.parameters(&first, true);
        let noise = Noise::new(plan.family, &shapes, &parameters, seed)?;
        let drawn = learned::weights(plan.family, &parameters, &noise)?;
        let start: candle_core::Result<Weights> = drawn
            .iter()
            .map(|(name, t)| Ok((name.clone(), t.detach().to_dtype(dtype)?)))
            .collect();
        let episode = Episode::new(&stream, &plan.inner, k, dtype)?;
        let found = plan.inner.meta_gradient(&start?, |examples, weights| {
            episode.loss(&plan.network, examples, weights)
        })?;
        // The gradient of <a, w(parameters)>, where a is the gradient of the objective.
        let mut product = Tensor::new(0f32, &candle_core::Device::Cpu)?;
        for (name, t) in &drawn {
            let a = found.of[name].to_dtype(t.dtype())?;
            product = (product + (t * a)?.sum_all()?)?;
        }
        let mut store = product.backward()?;
        let mut gradients = Vec::new();
        let mut squares = 0.0;
        for (_, [value, ..]) in &learned.0 {
            let g = match store.remove(value.var.as_tensor()) {
                Some(g) => g.detach(),
                None => value.var.as_detached_tensor().zeros_like()?,
            };
            squares += f64::from(g.sqr()?.sum_all()?.to_scalar::<f32>()?);
            gradients.push(g);
        }
        let (area, norm) = (found.area(), squares.sqrt());
        state.step += 1;
        if area.is_finite() && norm.is_finite() {
            failures = 0;
            let scale = (plan.clip / norm.max(1e-12)).min(1.0);
            let t = state.step - state.skipped;
            for ((_, [value, m, s]), g) in learned.0.iter().zip(&gradients) {
                let slots = [m.var.as_detached_tensor(), s.var.as_detached_tensor()];
                let w = value.var.as_detached_tensor();
                let (w, slots) = ADAM.update(plan.learning_rate, t, &w, &(g * scale)?, &slots)?;
                value.var.set(&w)?;
                m.var.set(&slots[0])?;
                s.var.set(&slots[1])?;
            }
        } else {
            failures += 1;
            state.skipped += 1;
            report.line(&format!(
                "training {}: objective {area}, gradient norm {norm}; left out",
                state.step
            ));
            if failures >= PATIENCE {
                bail!(
                    "the objective or its gradient was not finite for {failures} trainings in a row; \
                     lower inner_lr, or inner_steps"
                );
            }
        }
        report.step(state.step, examples, &format!("objective {area:.4}, "));
        run.log(&json!({
            "step": state.step,
            "loss": area,
            "learning_rate": plan.learning_rate,
            "gradient_norm": norm,
        }))?;
        let stop = options.context.interrupted();
        let due = plan
            .checkpoint_steps
            .is_some_and(|n| state.step.is_multiple_of(n));
        let late = plan
            .checkpoint_every
            .is_some_and(|time| saved.elapsed() >= time);
        if (stop || due || late) && run.save(&state, &variables, stop)? {
            saved = Instant::now();
        }
        if stop && state.step < plan.steps {
            return Err(TrainError::Interrupted(state.step).into());
        }
    }
    if plan.steps > 0 {
        run.save(&state, &variables, true)?; // the tests may be interrupted too
    }
    drop(saving);
    Ok(learned.parameters(&first, false))
}
