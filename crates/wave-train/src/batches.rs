//! Data of the training loop: batches by step, which can be split into micro-batches.

use candle_core::{Device, Result, Tensor};
use wave_data::{Batch, DataError, Loader, Mix};

/// Training batches, each a pure function of its step.
pub trait Batches: Sized {
    /// The examples of one step.
    type Batch: Examples;

    /// Batches in an epoch, at least 1.
    fn steps_per_epoch(&self) -> usize;

    /// The share of rank `rank` of `size`; all shares are equal.
    fn share(&self, rank: usize, size: usize) -> std::result::Result<Self, DataError>;

    /// Examples in a whole batch.
    fn batch_size(&self) -> usize;

    /// The rows of a whole batch that are in this share.
    fn rows(&self) -> &[usize];

    /// The batches, or shares of them, of steps `from` (inclusive) to `to` (exclusive).
    fn prefetch(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = std::result::Result<Self::Batch, DataError>>;
}

/// The examples of a step, or of a micro-batch.
pub trait Examples: Sized {
    /// The network's input, one example per entry of the leading dimension.
    fn input(&self) -> Result<Tensor>;

    /// The rows of each of `n` equal micro-batches. Fails if no equal split keeps mixed images together.
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

    /// Consecutive rows, except that images mixed with each other stay together: each target depends on both.
    fn split(&self, n: usize) -> Result<Vec<Vec<usize>>> {
        let b = self.size;
        if n == 0 || !b.is_multiple_of(n) {
            candle_core::bail!(
                "a batch of {b} images in {n} micro-batches: expected a divisor of {b}"
            );
        }
        let order: Vec<usize> = match &self.mix {
            Some(mix) if n > 1 => {
                if b / n % 2 == 1 {
                    candle_core::bail!(
                        "mixed images in {n} micro-batches of {}: expected an even number in each",
                        b / n
                    );
                }
                let partner = |row: usize| mix.partners[row] as usize;
                let firsts = (0..b).filter(|row| *row < partner(*row));
                firsts.flat_map(|row| [row, partner(row)]).collect()
            }
            _ => (0..b).collect(),
        };
        if order.len() != b {
            candle_core::bail!("mixed images that are not in pairs cannot be split");
        }
        Ok(order.chunks(b / n).map(<[usize]>::to_vec).collect())
    }

    fn select(&self, rows: &[usize]) -> Batch {
        let len = self.images.len() / self.size.max(1);
        let images = rows.iter().map(|row| &self.images[row * len..][..len]);
        let place = |partner: u32| rows.iter().position(|row| *row == partner as usize);
        Batch {
            images: images.collect::<Vec<_>>().concat(),
            labels: rows.iter().map(|row| self.labels[*row]).collect(),
            indices: rows.iter().map(|row| self.indices[*row]).collect(),
            size: rows.len(),
            mix: self.mix.as_ref().map(|mix| {
                let partners = rows.iter().filter_map(|row| place(mix.partners[*row]));
                Mix {
                    partners: partners.map(|place| place as u32).collect(),
                    weight: mix.weight,
                }
            }),
            ..*self
        }
    }
}
