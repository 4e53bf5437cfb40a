//! Gradient accumulation: a step's batch is split into micro-batches, and their gradients are summed.

use candle_core::Tensor;
use wave_ops::squared_norms;

use crate::{Ranks, Variable};

/// A part of a step's batch: the images that a loss is computed on.
///
/// A loss should draw random numbers for the whole batch and select those of its
/// [`rows`](MicroBatch::rows), so that a step is the same for any number of micro-batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// The step's number, counted from 0.
    pub step: u64,
    /// Number of images in the whole batch.
    pub batch: usize,
    /// The row in the whole batch of each image in this part.
    pub rows: Vec<usize>,
}

impl MicroBatch {
    /// The micro-batch's part (n, rows) of values (n, batch).
    pub fn of(&self, values: Vec<f32>) -> Vec<f32> {
        if self.rows.len() == self.batch {
            return values;
        }
        let lines = values.chunks_exact(self.batch.max(1));
        lines
            .flat_map(|line| self.rows.iter().map(|row| line[*row]))
            .collect()
    }
}

/// The loss of a step and its gradients, one for each variable that has any.
pub(crate) struct Gradients {
    /// The mean over the batch.
    pub(crate) loss: f64,
    /// In the order of the variables.
    pub(crate) of: Vec<Option<Tensor>>,
}

impl Gradients {
    pub(crate) fn new(loss: &Tensor, variables: &[Variable]) -> candle_core::Result<Gradients> {
        let mut gradients = wave_ops::backward(loss)?;
        Ok(Gradients {
            loss: f64::from(loss.to_scalar::<f32>()?),
            of: variables.iter().map(|v| gradients.remove(&v.var)).collect(),
        })
    }

    pub(crate) fn add(self, other: Gradients) -> candle_core::Result<Gradients> {
        let both = self.of.into_iter().zip(other.of);
        let sums = both.map(|pair| match pair {
            (Some(a), Some(b)) => (a + b).map(Some),
            (a, b) => Ok(a.or(b)),
        });
        Ok(Gradients {
            loss: self.loss + other.loss,
            of: sums.collect::<candle_core::Result<_>>()?,
        })
    }

    /// The sum of these over all ranks.
    pub(crate) fn over(mut self, ranks: &dyn Ranks) -> candle_core::Result<Gradients> {
        ranks.sum_f64(std::slice::from_mut(&mut self.loss));
        let here: Vec<&Tensor> = self.of.iter().flatten().collect();
        let sums = crate::sum_over(ranks, &here)?;
        for (gradient, sum) in self.of.iter_mut().flatten().zip(sums) {
            *gradient = sum;
        }
        Ok(self)
    }

    pub(crate) fn norm(&self) -> candle_core::Result<f64> {
        let all: Vec<&Tensor> = self.of.iter().flatten().collect();
        Ok(squared_norms(&all)?.sqrt())
    }
}

#[cfg(test)]
#[path = "accumulate_tests.rs"]
mod tests;
