//! Processes that train one model together, one per device.
//!
//! Each rank loads its share of every batch and computes the gradients of its images. Their sum over
//! the ranks is the gradient of the whole batch, bit-identical on every rank; each rank does the
//! rest of the step (clipping, the update, the EMA) itself, so that all hold the same weights
//! without further communication. The transport is left to the implementation.

use candle_core::{Result, Tensor};

/// The processes of a run, as one of them sees them.
///
/// All ranks call the same methods in the same order; a call returns when all have made it. A rank that
/// cannot reach the others ends the run.
pub trait Ranks: Sync {
    /// The index of this rank, below [`size`](Ranks::size). Rank 0 writes the files.
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Replaces `values`, of equal length on every rank, with their sums over the ranks: bit-identical
    /// on all ranks, and reproducible for the same ranks.
    fn sum(&self, values: &mut [f32]);

    /// Like [`sum`](Ranks::sum), for a few numbers such as losses and counts.
    fn sum_f64(&self, values: &mut [f64]);

    /// Replaces `values`, of equal length on every rank, with the first rank's.
    fn broadcast(&self, values: &mut [f32]);

    /// The first rank's number, which must be finite.
    fn of_first(&self, value: f64) -> f64 {
        let mut values = [if self.rank() == 0 { value } else { 0.0 }];
        self.sum_f64(&mut values);
        values[0]
    }

    /// True if `here` is true on any rank.
    fn any(&self, here: bool) -> bool {
        let mut count = [f64::from(u8::from(here))];
        self.sum_f64(&mut count);
        count[0] > 0.0
    }

    /// Returns when all ranks have called it.
    fn wait(&self) {
        self.any(false);
    }
}

/// A run in one process, without communication.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn sum(&self, _: &mut [f32]) {}

    fn sum_f64(&self, _: &mut [f64]) {}

    fn broadcast(&self, _: &mut [f32]) {}
}

/// The sums of f32 tensors over the ranks, each on its own device. They pass through the host.
///
/// All go in one flat bucket: nearly all of a transformer's gradients come out of one operator at the end of the
/// backward pass, so there is no computation left to overlap with communication.
pub fn sum_over(ranks: &dyn Ranks, tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
    if ranks.size() == 1 || tensors.is_empty() {
        return Ok(tensors.iter().map(|t| (*t).clone()).collect());
    }
    let flat: Result<Vec<Tensor>> = tensors.iter().map(|t| t.flatten_all()).collect();
    let bucket = Tensor::cat(&flat?, 0)?;
    let mut values = bucket.to_vec1::<f32>()?;
    ranks.sum(&mut values);
    let bucket = Tensor::from_vec(values, bucket.shape(), bucket.device())?;
    let mut start = 0;
    let mut part = |t: &&Tensor| {
        let part = bucket.narrow(0, start, t.elem_count())?;
        start += t.elem_count();
        part.reshape(t.shape())
    };
    tensors.iter().map(&mut part).collect()
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
pub(crate) mod tests;
