//! The data of the loop: batches by step, which can be cut into micro-batches. There are two kinds,
//! images and sequences of tokens.

use candle_core::{Device, Result, Tensor};
use wave_data::task::{TaskLoader, TokenBatch};
use wave_data::{Batch, DataError, Loader};

use crate::accumulate::{select, split};

/// Training batches, each a pure function of its step.
pub trait Batches: Sized {
    /// The examples of one step.
    type Batch: Examples;

    /// Batches in an epoch, at least 1.
    fn steps_per_epoch(&self) -> usize;

    /// The same of which one of `size` ranks has its equal share.
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
    /// Those of making a tensor.
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

impl Batches for TaskLoader {
    type Batch = TokenBatch;

    fn steps_per_epoch(&self) -> usize {
        TaskLoader::steps_per_epoch(self)
    }

    fn share(&self, rank: usize, size: usize) -> std::result::Result<TaskLoader, DataError> {
        TaskLoader::share(self, rank, size)
    }

    fn batch_size(&self) -> usize {
        TaskLoader::batch_size(self)
    }

    fn rows(&self) -> &[usize] {
        TaskLoader::rows(self)
    }

    // A batch takes microseconds to draw: no thread is ahead.
    fn prefetch(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = std::result::Result<TokenBatch, DataError>> {
        (from..to).map(|step| Ok(self.batch(step).select(TaskLoader::rows(self))))
    }
}

impl Examples for TokenBatch {
    fn input(&self) -> Result<Tensor> {
        Tensor::from_slice(&self.tokens, (self.size, ()), &Device::Cpu)
    }

    fn split(&self, n: usize) -> Result<Vec<Vec<usize>>> {
        if n == 0 || !self.size.is_multiple_of(n) {
            candle_core::bail!("{} sequences in {n} parts: expected a divisor", self.size);
        }
        let rows: Vec<usize> = (0..self.size).collect();
        Ok(rows.chunks(self.size / n).map(<[usize]>::to_vec).collect())
    }

    fn select(&self, rows: &[usize]) -> TokenBatch {
        let of = |values: &[u32]| -> Vec<u32> {
            let len = values.len() / self.size.max(1);
            let parts = rows.iter().map(|row| &values[row * len..(row + 1) * len]);
            parts.flatten().copied().collect()
        };
        TokenBatch {
            tokens: of(&self.tokens),
            targets: of(&self.targets),
            positions: self.positions.clone(),
            size: rows.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_sequences_are_the_whole() {
        let task = "copy:length=3".parse().unwrap();
        let batch = TaskLoader::new(task, 6, 0).unwrap().batch(2);
        let parts: Vec<TokenBatch> = batch
            .split(3)
            .unwrap()
            .iter()
            .map(|rows| batch.select(rows))
            .collect();
        assert!(
            parts
                .iter()
                .all(|part| part.size == 2 && part.positions == batch.positions)
        );
        let joined = |of: fn(&TokenBatch) -> &Vec<u32>| -> Vec<u32> {
            parts.iter().flat_map(|part| of(part).clone()).collect()
        };
        assert_eq!(joined(|part| &part.tokens), batch.tokens);
        assert_eq!(joined(|part| &part.targets), batch.targets);
        assert_eq!(parts[1].input().unwrap().dims(), [2, 8]);
        assert!(batch.split(4).is_err() && batch.split(0).is_err());
    }
}
