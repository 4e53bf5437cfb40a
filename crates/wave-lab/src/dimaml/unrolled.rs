//! Training as a differentiable function of its initial weights: the gradient shows how they would have to
//! change for the training to improve (DIMAML, section 2.1).
//!
//! The objective is the area under the validation curve, `L = 1/|V| sum_{t in V} L_val(w_t)`, where
//! `w_t` are the weights after t steps from `w_0`. A step maps weights and the optimiser's state
//! to the next ones, `x_t = F_t(x_{t-1})`, and contains a gradient; so the objective's
//! gradient, taken backwards through the steps, contains Hessian-vector products. With the adjoint
//! `a_t = dL/dx_t`:
//!
//! ```text
//! a_N = 0;   for t = N..1:   if t in V:  a_t += dL_val(w_t)/dw / |V|
//!                            a_{t-1} = (dF_t/dx)^T a_t
//! ```
//!
//! Each of these products is one backward pass through one step, whose graph includes the gradient of the
//! loss: the graph of the whole training never exists. Only every m-th state is kept in the forward pass
//! (gradient checkpointing); the others are recomputed, m at a time, bit for bit.

mod optimiser;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wave_models::Weights;

pub use optimiser::Optimiser;
use optimiser::norm;

/// The examples that a loss is computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The training batch of a step, counted from 1.
    Training(u64),
    /// The validation examples after this many steps.
    Validation(u64),
}

/// Form of the gradient with respect to the start.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Gradient {
    /// Through all steps (DIMAML)
    #[default]
    Full,
    /// The mean gradient of the validation losses at the weights where they are computed, ignoring the steps in between
    /// (first-order MAML: Finn, Abbeel and Levine 2017, section 5.2)
    FirstOrder,
    /// The initial weights minus the final ones (Nichol, Achiam and Schulman 2018, algorithm 2)
    Reptile,
}

/// A training that is differentiable with respect to its initial weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Unrolled {
    pub optimiser: Optimiser,
    pub learning_rate: f64,
    pub steps: u64,
    /// Steps after which the validation loss is computed, ascending; at least one.
    pub validate: Vec<u64>,
    /// Every m-th state is kept; at least 1.
    pub checkpoint: u64,
    pub gradient: Gradient,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Number of steps and the validation loss after them.
    pub losses: Vec<(u64, f64)>,
    /// Update rate of each weight in each step, in the order of names: |gradient| / |weight| before the step
    /// (DIMAML, appendix C.1). Infinite for a weight that is zero.
    pub update_rates: Vec<Vec<f64>>,
}

/// The objective and its gradient.
#[derive(Clone, Debug)]
pub struct MetaGradient {
    /// Number of steps and the validation loss after them.
    pub losses: Vec<(u64, f64)>,
    /// Derivatives of the mean loss with respect to the initial weights, by name.
    pub(crate) of: Weights,
}

/// The mean of validation losses: the area under the curve.
pub fn area(losses: &[(u64, f64)]) -> f64 {
    losses.iter().map(|(_, loss)| loss).sum::<f64>() / losses.len() as f64
}

/// Weights, and for each of the optimiser's slots a tensor per weight; or an adjoint of these.
type Point = Vec<Weights>;

/// Variables by name.
type Tracked = BTreeMap<String, Var>;

/// See [`Unrolled::curve`].
type Loss<'a> = dyn FnMut(Phase, &Weights) -> Result<Tensor> + 'a;

impl Unrolled {
    /// The learning curve of a training from `start`. `loss` is a pure function of the examples and the
    /// weights: the same arguments give the same result. `rates`, if given, are the [update
    /// rates](Curve::update_rates) of another training: every gradient is rescaled to them. Gradients of weights
    /// that are zero in either training are unchanged.
    pub fn curve(
        &self,
        start: &Weights,
        rates: Option<&[Vec<f64>]>,
        mut loss: impl FnMut(Phase, &Weights) -> Result<Tensor>,
    ) -> Result<Curve> {
        let mut point = self.optimiser.start(start)?;
        let mut curve = Curve::default();
        for t in 1..=self.steps {
            let mut gradients = differentiate(Phase::Training(t), &point[0], &mut loss)?.1;
            let wanted = rates.and_then(|rates| rates.get(t as usize - 1));
            let pairs = point[0].values().zip(gradients.values_mut());
            for ((w, g), rate) in pairs.zip(wanted.into_iter().flatten()) {
                let scale = rate * scalar(&norm(w)?)? / scalar(&norm(g)?)?;
                if scale.is_normal() {
                    *g = (&*g * scale)?;
                }
            }
            let rate = |(w, g): (&Tensor, &Tensor)| Ok(scalar(&norm(g)?)? / scalar(&norm(w)?)?);
            let rates = point[0].values().zip(gradients.values()).map(rate);
            curve.update_rates.push(rates.collect::<Result<_>>()?);
            point = self.step(t, &point, &gradients)?;
            if self.validate.contains(&t) {
                let value = scalar(&loss(Phase::Validation(t), &point[0])?)?;
                curve.losses.push((t, value));
            }
        }
        Ok(curve)
    }

    /// The objective's gradient with respect to `start`; `loss` as for [`curve`](Self::curve), with
    /// operators that have second derivatives. Must run inside [`second_order`](super::second_order()).
    /// (Neither applies to [`Gradient::FirstOrder`] and [`Gradient::Reptile`].)
    pub fn meta_gradient(
        &self,
        start: &Weights,
        mut loss: impl FnMut(Phase, &Weights) -> Result<Tensor>,
    ) -> Result<MetaGradient> {
        if self.gradient != Gradient::Full {
            return self.without_adjoint(start, &mut loss);
        }
        // State t is in kept[t / m] if m divides t.
        let mut kept = vec![self.optimiser.start(start)?];
        let mut point = kept[0].clone();
        for t in 1..self.steps {
            point = self.advance(t, &point, &mut loss)?;
            if t.is_multiple_of(self.checkpoint) {
                kept.push(point.clone());
            }
        }
        let mut adjoint: Point = kept[0].iter().map(zeros).collect::<Result<_>>()?;
        let mut losses = Vec::new();
        while let Some(first) = kept.pop() {
            let from = kept.len() as u64 * self.checkpoint;
            let to = (from + self.checkpoint).min(self.steps);
            let mut states = vec![first]; // from, from + 1, .., to
            for t in from + 1..=to {
                let last = &states[states.len() - 1];
                states.push(self.advance(t, last, &mut loss)?);
            }
            for t in (from + 1..=to).rev() {
                let after = states.pop().unwrap_or_default();
                if self.validate.contains(&t) {
                    let (value, gradients) =
                        differentiate(Phase::Validation(t), &after[0], &mut loss)?;
                    losses.push((t, value));
                    self.add_mean(&mut adjoint[0], gradients)?;
                }
                let before = &states[states.len() - 1];
                adjoint = self.pull_back(t, before, &adjoint, &mut loss)?;
            }
        }
        losses.reverse();
        let of = adjoint.swap_remove(0);
        Ok(MetaGradient { losses, of })
    }

    /// First-order MAML or Reptile, without a backward pass through the steps.
    fn without_adjoint(&self, start: &Weights, loss: &mut Loss) -> Result<MetaGradient> {
        let mut point = self.optimiser.start(start)?;
        let first = point[0].clone();
        let mut of = zeros(&first)?;
        let mut losses = Vec::new();
        for t in 1..=self.steps {
            point = self.advance(t, &point, loss)?;
            if self.validate.contains(&t) {
                let weights = variables(&point[0])?;
                let value = loss(Phase::Validation(t), &named(&weights))?;
                losses.push((t, scalar(&value)?));
                if self.gradient == Gradient::FirstOrder {
                    self.add_mean(&mut of, gradients(&value, &weights)?)?;
                }
            }
        }
        if self.gradient == Gradient::Reptile {
            for ((of, from), to) in of.values_mut().zip(first.values()).zip(point[0].values()) {
                *of = (from - to)?;
            }
        }
        Ok(MetaGradient { losses, of })
    }

    /// The state after step `t`.
    fn step(&self, t: u64, before: &Point, gradients: &Weights) -> Result<Point> {
        self.optimiser
            .step(self.learning_rate, t, before, gradients)
    }

    /// The state after step `t`, with the gradient of `loss`.
    fn advance(&self, t: u64, before: &Point, loss: &mut Loss) -> Result<Point> {
        let (_, gradients) = differentiate(Phase::Training(t), &before[0], loss)?;
        self.step(t, before, &gradients)
    }

    /// Adds the gradients of one validation to the mean.
    fn add_mean(&self, sum: &mut Weights, gradients: Weights) -> Result<()> {
        for (sum, g) in sum.values_mut().zip(gradients.into_values()) {
            *sum = (&*sum + (g / self.validate.len() as f64)?)?;
        }
        Ok(())
    }

    /// The adjoint before step `t` from the one after it.
    fn pull_back(&self, t: u64, before: &Point, adjoint: &Point, loss: &mut Loss) -> Result<Point> {
        let tracked = before.iter().map(variables).collect::<Result<Vec<_>>>()?;
        let point: Point = tracked.iter().map(named).collect();
        let value = loss(Phase::Training(t), &point[0])?;
        let mut store = value.backward()?;
        let gradient = |(name, v): (&String, &Var)| Ok((name.clone(), gradient_of(&mut store, v)?));
        let gradients = tracked[0].iter().map(gradient).collect::<Result<_>>()?;
        let after = self.step(t, &point, &gradients)?;
        let mut product = Tensor::zeros((), value.dtype(), value.device())?;
        let pairs = after.iter().zip(adjoint);
        for (x, a) in pairs.flat_map(|(x, a)| x.values().zip(a.values())) {
            product = (product + (x * a)?.sum_all()?)?;
        }
        let mut store = product.backward()?;
        tracked.iter().map(|of| taken(&mut store, of)).collect()
    }
}

impl Optimiser {
    /// The state before the first step.
    pub(super) fn start(&self, weights: &Weights) -> Result<Point> {
        let weights = weights.iter().map(|(name, t)| (name.clone(), t.detach()));
        let mut point = vec![weights.collect()];
        for _ in 0..self.slots() {
            point.push(zeros(&point[0])?);
        }
        Ok(point)
    }

    /// The state after step `t` (counted from 1) at learning rate `lr`.
    pub(super) fn step(
        &self,
        lr: f64,
        t: u64,
        before: &Point,
        gradients: &Weights,
    ) -> Result<Point> {
        let mut after = vec![Weights::new(); before.len()];
        for (name, g) in gradients {
            let slots: Vec<Tensor> = before[1..].iter().map(|slot| slot[name].clone()).collect();
            let (w, slots) = self.update(lr, t, &before[0][name], g, &slots)?;
            for (all, new) in after.iter_mut().zip([w].into_iter().chain(slots)) {
                all.insert(name.clone(), new);
            }
        }
        Ok(after)
    }
}

fn zeros(like: &Weights) -> Result<Weights> {
    let zeros = |(name, t): (&String, &Tensor)| Ok((name.clone(), t.zeros_like()?));
    like.iter().map(zeros).collect()
}

/// New variables with these values.
pub(super) fn variables(values: &Weights) -> Result<Tracked> {
    let variable =
        |(name, t): (&String, &Tensor)| Ok((name.clone(), Var::from_tensor(&t.detach())?));
    values.iter().map(variable).collect()
}

pub(super) fn named(variables: &Tracked) -> Weights {
    let named = |(name, v): (&String, &Var)| (name.clone(), v.as_tensor().clone());
    variables.iter().map(named).collect()
}

/// The loss at these weights and its gradients: see [`gradients`].
fn differentiate(phase: Phase, weights: &Weights, loss: &mut Loss) -> Result<(f64, Weights)> {
    let weights = variables(weights)?;
    let value = loss(phase, &named(&weights))?;
    let gradients = gradients(&value, &weights)?;
    Ok((scalar(&value)?, gradients))
}

/// The gradients of a loss, detached; zero for weights that it does not depend on.
pub(super) fn gradients(loss: &Tensor, weights: &Tracked) -> Result<Weights> {
    taken(&mut loss.backward()?, weights)
}

/// The gradients of variables, detached.
fn taken(store: &mut GradStore, of: &Tracked) -> Result<Weights> {
    let taken = |(name, v): (&String, &Var)| Ok((name.clone(), gradient_of(store, v)?.detach()));
    of.iter().map(taken).collect()
}

/// The gradient of a variable; zero if the loss does not depend on it.
pub(super) fn gradient_of(store: &mut GradStore, v: &Var) -> Result<Tensor> {
    let zeros = || v.as_detached_tensor().zeros_like();
    store.remove(v.as_tensor()).map_or_else(zeros, Ok)
}

pub(super) fn scalar(x: &Tensor) -> Result<f64> {
    x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_scalar()
}

#[cfg(test)]
#[path = "unrolled_tests.rs"]
mod tests;
