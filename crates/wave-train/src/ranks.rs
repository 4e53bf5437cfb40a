//! Processes that train together, one for each device.
//!
//! Each rank makes its share of every batch and computes the gradients of its images. Their sum over
//! the ranks is the gradient of the whole batch, the same bits on every rank; each rank repeats the
//! rest of the step (clipping, the update, the EMA) for itself, so that all hold the same weights
//! without further communication. The transport is the implementation's.

use candle_core::{Result, Tensor};

/// The processes of a run, as one of them sees them.
///
/// All ranks call the same methods in the same order; a call returns when all have made it. A rank that
/// cannot reach the others ends the run: there is nothing to go on with.
pub trait Ranks: Sync {
    /// Which of them this is: 0 up to, not including, [`size`](Ranks::size). The first writes.
    fn rank(&self) -> usize;

    /// The number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Replaces `values`, as many on every rank, by their sums over the ranks: the same bits on all of
    /// them, and, for the same ranks, every time.
    fn sum(&self, values: &mut [f32]);

    /// As [`sum`](Ranks::sum), for few numbers: losses, counts.
    fn sum_f64(&self, values: &mut [f64]);

    /// Replaces `values`, as many on every rank, by the first rank's.
    fn broadcast(&self, values: &mut [f32]);

    /// The sums over the ranks of a flat f32 tensor that nothing else holds, on its own device: by way of
    /// the host, but for ranks whose devices reach each other.
    fn sum_bucket(&self, bucket: Tensor) -> Result<Tensor> {
        let mut values = bucket.to_vec1::<f32>()?;
        self.sum(&mut values);
        Tensor::from_vec(values, bucket.shape(), bucket.device())
    }

    /// The first rank's number; finite and not negative.
    fn of_first(&self, value: f64) -> f64 {
        let mut values = [if self.rank() == 0 { value } else { 0.0 }];
        self.sum_f64(&mut values);
        values[0]
    }

    /// True if it is so on any rank.
    fn any(&self, here: bool) -> bool {
        let mut count = [f64::from(u8::from(here))];
        self.sum_f64(&mut count);
        count[0] > 0.0
    }

    /// Returns when all ranks have come here.
    fn wait(&self) {
        self.any(false);
    }
}

/// A run in one process: nothing to say to anyone.
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

/// The sums of f32 tensors over the ranks, each on the device where it was.
///
/// All go in one flat bucket: the gradients of a transformer's blocks, nearly all that there is to
/// send, come out of one operator at the end of the backward pass, which so leaves no work to do while
/// a first part would travel.
pub fn sum_over(ranks: &dyn Ranks, tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
    if ranks.size() == 1 || tensors.is_empty() {
        return Ok(tensors.iter().map(|t| (*t).clone()).collect());
    }
    let flat: Vec<Tensor> = tensors
        .iter()
        .map(|t| t.flatten_all())
        .collect::<Result<_>>()?;
    let bucket = match &flat[..] {
        [one] => one.copy()?, // joined with nothing, it would still be the tensor itself
        flat => Tensor::cat(flat, 0)?,
    };
    let bucket = ranks.sum_bucket(bucket)?;
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
