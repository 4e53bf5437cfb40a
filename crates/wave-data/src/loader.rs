//! Training batches, each a pure function of the step's number.

use std::sync::{Arc, Mutex, PoisonError};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::augment::Showing;
use crate::broken::{BrokenImage, BrokenImages};
use crate::pipeline::{Pipeline, Variation, first_showings};
use crate::prefetch::prefetch;
use crate::source::permutation;
use crate::{Augment, Batch, DataError, Source, Transform};

/// Separates the random numbers of a batch's mixing from its images'.
const MIXING: u64 = 0x6D69_7869_6E67;

/// An epoch, and its images in order.
type Order = (u64, Arc<[u32]>);

/// Training batches, each a pure function of its step. Cloning is cheap.
#[derive(Clone)]
pub struct Loader {
    pipeline: Arc<Pipeline>,
    augment: Augment,
    indices: Arc<[u32]>,
    batch: usize,
    views: Option<u32>,
    seed: u64,
    /// Seed of the augmentation, if views repeat.
    view_seed: u64,
    /// Rows of the whole batch that this loader makes, ascending.
    rows: Arc<[usize]>,
    /// Broken images found so far, and their limit.
    broken: Arc<BrokenImages>,
    /// The order of the last requested epoch.
    order: Arc<Mutex<Option<Order>>>,
}

impl Loader {
    /// Batches of `batch` images, from the images `indices` of `source`, reshuffled every epoch.
    ///
    /// `views` is the number of different augmentations of an image: `Some(n)` repeats them every `n`
    /// epochs (so that an ancestor's outputs can be cached), `None` never does.
    ///
    /// # Errors
    /// When there are fewer images than one batch, an index beyond the source, no views, or a setting out of range.
    pub fn train(
        source: Arc<dyn Source>,
        indices: Vec<u32>,
        transform: Transform,
        augment: Augment,
        batch: usize,
        views: Option<u32>,
        seed: u64,
    ) -> Result<Loader, DataError> {
        let pipeline = Pipeline::new(source, transform, &indices, batch)?;
        if indices.len() < batch {
            return Err(DataError::Settings(format!(
                "{} training images are fewer than one batch of {batch}: use a smaller batch or \
                 more images",
                indices.len()
            )));
        }
        if views == Some(0) {
            let problem =
                "0 views of each image: expected at least 1, or unset for endless new ones";
            return Err(DataError::Settings(problem.to_owned()));
        }
        augment.check(pipeline.transform.image_size)?;
        if views.is_some() && augment.repeats > 1 {
            return Err(DataError::Settings(format!(
                "{} repeats of each image and a fixed number of views exclude each other: use one \
                 of them",
                augment.repeats
            )));
        }
        Ok(Self {
            pipeline: Arc::new(pipeline),
            augment,
            batch,
            views,
            seed,
            view_seed: 0,
            rows: (0..batch).collect(),
            broken: Arc::new(BrokenImages::new(indices.len())),
            order: Arc::default(),
            indices: indices.into(),
        })
    }

    /// The same steps, with only the images of rank `rank` of `size` from each batch, exactly as in the
    /// whole batch: equal shares, in which images that are mixed with each other stay together.
    ///
    /// # Errors
    /// When the batch does not divide into equal shares or, with mixing, into shares of an even size.
    pub fn share(&self, rank: usize, size: usize) -> Result<Loader, DataError> {
        let b = self.batch;
        if rank >= size || !b.is_multiple_of(size) {
            return Err(DataError::Settings(format!(
                "a batch of {b} images does not divide equally among {size} ranks: choose a \
                 multiple of {size}"
            )));
        }
        let n = b / size;
        let rows = if self.augment.mixing.is_none() || size == 1 {
            (rank * n..(rank + 1) * n).collect()
        } else if n.is_multiple_of(2) {
            // Row i is mixed with row b - 1 - i, in a share too: its rows are mirrored about the middle.
            let (first, end) = (rank * (n / 2), (rank + 1) * (n / 2));
            (first..end).chain(b - end..b - first).collect()
        } else {
            return Err(DataError::Settings(format!(
                "a batch of {b} gives each of {size} ranks {n} images: mixup and cutmix mix pairs \
                 and need an even number; choose a batch that is a multiple of {}",
                2 * size
            )));
        };
        Ok(Loader {
            rows,
            ..self.clone()
        })
    }

    /// The rows of the whole batch that [`batch`](Self::batch) makes: all, or a [`share`](Self::share)'s.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Number of images in a whole batch.
    pub fn batch_size(&self) -> usize {
        self.batch
    }

    /// The same images in the same order; if views repeat, with the augmentations of this seed instead of 0.
    pub fn with_view_seed(mut self, seed: u64) -> Loader {
        self.view_seed = seed;
        self
    }

    /// The broken images found so far, by index.
    pub fn broken(&self) -> Vec<BrokenImage> {
        self.broken.list()
    }

    /// Batches in an epoch, at least 1. Images after the last whole batch are left out, different ones in each epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.indices.len() / self.batch
    }

    /// The batch of `step`, counted from 0 across epochs.
    ///
    /// The epoch is `step / steps_per_epoch`; seed and epoch determine the order of the images; the view is the
    /// epoch modulo the number of views; seed, view and image determine the augmentation (if views repeat, the
    /// view seed instead, so that results on them serve other seeds). A repeated view is mirrored left to right
    /// every second time if [`Augment::flip`] is set, and augmented anew in all other ways, so that outputs of a
    /// network on the views serve many more images. A single view is [`Augment::at_first`] whole when it is first shown.
    ///
    /// # Errors
    /// When an image cannot be read or decoded.
    pub fn batch(&self, step: u64) -> Result<Batch, DataError> {
        let steps = self.steps_per_epoch() as u64;
        let (epoch, k) = (step / steps, (step % steps) as usize);
        let (round, view) = match self.views {
            Some(n) => ((epoch / u64::from(n)) as u32, (epoch % u64::from(n)) as u32),
            None => (0, epoch as u32), // comes round after four billion epochs
        };
        let (order, repeats) = (self.order(epoch), self.augment.repeats);
        let places = self.rows.iter().map(|row| k * self.batch + row);
        let showing = |at: usize| (order[at / repeats], (at % repeats) as u32);
        let showings: Vec<Showing> = places.map(showing).collect();
        let mut batch = self.assemble(&showings, view, round)?;
        if let Some(mixing) = &self.augment.mixing {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ MIXING);
            rng.set_stream(step);
            mixing.apply(&mut batch, &mut rng);
        }
        Ok(batch)
    }

    /// The [`batch`](Self::batch) of each step from `from` up to, not including, `to`, prepared a few steps ahead
    /// by a background thread, which ends when the iterator is dropped.
    pub fn prefetch(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = Result<Batch, DataError>> + use<> {
        let loader = self.clone();
        prefetch(from, to, move |step| loader.batch(step))
    }

    /// The images `indices` of the source in the augmentation of `view`, in this order: exactly the pixels that
    /// [`batch`](Self::batch) shows in the first epoch of that view, before they are mixed.
    ///
    /// # Errors
    /// When an index is beyond the source, or an image cannot be read or decoded.
    pub fn view_images(&self, indices: &[u32], view: u32) -> Result<Batch, DataError> {
        self.pipeline.check(indices)?;
        self.assemble(&first_showings(indices), view, 0)
    }

    fn assemble(&self, showings: &[Showing], view: u32, round: u32) -> Result<Batch, DataError> {
        let augment = match round {
            0 => &self.augment.at_first(self.views),
            _ => &self.augment,
        };
        let variation = Variation {
            augment,
            seed: match self.views {
                Some(_) => self.view_seed,
                None => self.seed,
            },
            view,
            round,
            substitutes: &self.indices,
        };
        self.pipeline.batch(showings, &variation, &self.broken)
    }

    fn order(&self, epoch: u64) -> Arc<[u32]> {
        // Assignments are atomic, so the value behind a poisoned lock is still valid.
        let mut known = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = known.as_ref().filter(|(of, _)| *of == epoch) {
            return order.clone();
        }
        let order = permutation(self.indices.iter().copied(), self.seed, epoch);
        let order: Arc<[u32]> = order.into();
        *known = Some((epoch, order.clone()));
        order
    }
}

#[cfg(test)]
mod tests;
