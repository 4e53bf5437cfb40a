//! The data of the loop: batches by step, which can be cut into micro-batches.

use candle_core::{Device, Result, Tensor};
use wave_data::{Batch, DataError, Loader};

use crate::accumulate::{select, split};

/// Training batches, each a pure function of its step.
pub trait Batches: Sized {
    /// The examples of one step.
    type Batch: Examples;

    /// Batches in an epoch, at least 1.
    fn steps_per_epoch(&self) -> usize;

    /// The share of one of `size` ranks, equal to every other's.
    ///
    /// # Errors
    /// If there are no such shares.
    fn share(&self, rank: usize, size: usize) -> std::result::Result<Self, DataError>;

    /// Examples in a whole batch.
    fn batch_size(&self) -> usize;

    /// The rows of a whole batch that are in this share.
    fn rows(&self) -> &[usize];

    /// The batches, or shares of them, of the steps from `from` up to, not including, `to`.
    fn prefetch(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = std::result::Result<Self::Batch, DataError>>;
}

/// The examples of a step, or of a micro-batch.
pub trait Examples: Sized {
    /// The network's input, an example for each entry of the leading dimension.
    ///
    /// # Errors
    /// If the tensor cannot be made.
    fn input(&self) -> Result<Tensor>;

    /// The rows of each of `n` equal micro-batches.
    ///
    /// # Errors
    /// If there are none.
    fn split(&self, n: usize) -> Result<Vec<Vec<usize>>>;

    /// The examples in some rows.
    fn select(&self, rows: &[usize]) -> Self;
}

impl Batches for Loader {
    type Batch = Batch;

    fn steps_per_epoch(&self) -> usize {
        Loader::steps_per_epoch(self)
    }

    fn share(&self, rank: usize, size: usize) -> std::result::Result<Loader, DataError> {
        Loader::share(self, rank, size)
    }

    fn batch_size(&self) -> usize {
        Loader::batch_size(self)
    }

    fn rows(&self) -> &[usize] {
        Loader::rows(self)
    }

    fn prefetch(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = std::result::Result<Batch, DataError>> {
        Loader::prefetch(self, from, to)
    }
}

impl Examples for Batch {
    fn input(&self) -> Result<Tensor> {
        let (b, s) = (self.labels.len(), self.image_size);
        Tensor::from_slice(&self.images, (b, self.channels, s, s), &Device::Cpu) // (b, channels, h, w)
    }

    fn split(&self, n: usize) -> Result<Vec<Vec<usize>>> {
        split(self, n)
    }

    fn select(&self, rows: &[usize]) -> Batch {
        select(self, rows)
    }
}
