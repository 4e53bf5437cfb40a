//! Batches: for training, a pure function of the step's number; for evaluation, in order.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rayon::prelude::*;

use crate::augment::Placement;
use crate::source::permutation;
use crate::transform::Normaliser;
use crate::{Augment, DataError, Source, Transform};

/// Batches that are ready and waiting, at most.
const PREFETCHED: usize = 4;

/// Images as network input, with their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// (size, channels, image_size, image_size)
    pub images: Vec<f32>,
    /// The class of each image.
    pub labels: Vec<u32>,
    /// The index of each image in its source.
    pub indices: Vec<u32>,
    /// Which variation of the images this is; 0 when nothing varies.
    pub view: u32,
    /// Number of images.
    pub size: usize,
    /// 1 or 3.
    pub channels: usize,
    /// Height and width in pixels.
    pub image_size: usize,
}

/// Training batches, each a pure function of its step. Cloning is cheap.
#[derive(Clone)]
pub struct Loader {
    inner: Arc<Inner>,
}

struct Inner {
    pipeline: Pipeline,
    augment: Augment,
    indices: Vec<u32>,
    batch: usize,
    views: Option<u32>,
    seed: u64,
    /// The order of the epoch that was last asked for.
    order: Mutex<Option<(u64, Arc<Vec<u32>>)>>,
}

impl Loader {
    /// Batches of `batch` of the images `indices` of `source`, reshuffled every epoch.
    ///
    /// `views` is the number of different variations of an image: `Some(n)` repeats them every `n`
    /// epochs (so that an ancestor's outputs can be cached), `None` never does.
    ///
    /// # Errors
    /// When there are fewer images than one batch, an index beyond the source, no views, or a
    /// transform or border out of range.
    pub fn train(
        source: Arc<dyn Source>,
        indices: Vec<u32>,
        transform: Transform,
        augment: Augment,
        batch: usize,
        views: Option<u32>,
        seed: u64,
    ) -> Result<Loader, DataError> {
        let pipeline = Pipeline::new(source, transform)?;
        pipeline.check(&indices)?;
        check_batch(batch)?;
        if indices.len() < batch {
            return Err(DataError::Settings(format!(
                "{} training images are fewer than one batch of {batch}: use a smaller batch or \
                 more images",
                indices.len()
            )));
        }
        if views == Some(0) {
            return Err(DataError::Settings(
                "0 views of each image: expected at least 1, or none for ever new ones".to_owned(),
            ));
        }
        let size = pipeline.transform.image_size;
        if augment.crop_padding > size {
            return Err(DataError::Settings(format!(
                "a border of {} pixels (crop_padding) is wider than the image of {size}: use at \
                 most {size}",
                augment.crop_padding
            )));
        }
        let inner = Inner {
            pipeline,
            augment,
            indices,
            batch,
            views,
            seed,
            order: Mutex::new(None),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Batches in an epoch, at least 1. What is left over after the last whole batch is dropped; the
    /// next epoch's shuffle drops others.
    pub fn steps_per_epoch(&self) -> usize {
        self.inner.indices.len() / self.inner.batch
    }

    /// The batch of `step`, counted from 0 across epochs.
    ///
    /// The epoch is `step / steps_per_epoch`; seed and epoch determine the order of the images; the
    /// view is the epoch modulo the number of views; seed, view and image determine the variation
    /// (without the seed where views repeat, so that what was computed on them serves other seeds).
    ///
    /// # Errors
    /// When an image cannot be read or decoded.
    pub fn batch(&self, step: u64) -> Result<Batch, DataError> {
        let inner = &*self.inner;
        let steps = self.steps_per_epoch() as u64;
        let (epoch, k) = (step / steps, (step % steps) as usize);
        let view = match inner.views {
            Some(n) => (epoch % u64::from(n)) as u32,
            None => epoch as u32, // comes round after four billion epochs
        };
        let order = inner.order(epoch);
        self.assemble(&order[k * inner.batch..(k + 1) * inner.batch], view)
    }

    /// The batches of the steps from `from` up to, not including, `to`: what [`batch`](Self::batch)
    /// returns for each, prepared by a background thread that is at most a few batches ahead.
    /// Dropping the iterator ends the thread.
    pub fn prefetch(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = Result<Batch, DataError>> + use<> {
        let loader = self.clone();
        let (sender, receiver) = sync_channel(PREFETCHED);
        let work = move || {
            for step in from..to {
                if sender.send(loader.batch(step)).is_err() {
                    return; // nobody listens any more
                }
            }
        };
        let worker = thread::Builder::new().name("wave-data".to_owned());
        match worker.spawn(work) {
            Ok(worker) => Prefetch {
                receiver: Some(receiver),
                worker: Some(worker),
                failure: None,
            },
            Err(error) => Prefetch {
                receiver: None,
                worker: None,
                failure: Some(DataError::Worker(error.to_string())),
            },
        }
    }

    /// The images `indices` of the source as `view` varies them, in this order: the very pixels that
    /// [`batch`](Self::batch) shows in an epoch of that view.
    ///
    /// # Errors
    /// When an index is beyond the source, or an image cannot be read or decoded.
    pub fn view_images(&self, indices: &[u32], view: u32) -> Result<Batch, DataError> {
        self.inner.pipeline.check(indices)?;
        self.assemble(indices, view)
    }

    fn assemble(&self, indices: &[u32], view: u32) -> Result<Batch, DataError> {
        let Inner {
            pipeline,
            augment,
            views,
            seed,
            ..
        } = &*self.inner;
        let seed = if views.is_some() { 0 } else { *seed };
        pipeline.batch(indices, view, |i| augment.place(seed, view, i))
    }
}

impl Inner {
    fn order(&self, epoch: u64) -> Arc<Vec<u32>> {
        // A value is put there whole or not at all, so a poisoned lock guards nothing broken.
        let mut known = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, order)) if *of == epoch => order.clone(),
            _ => {
                let shuffled = permutation(self.indices.iter().copied(), self.seed, epoch);
                let order = Arc::new(shuffled);
                *known = Some((epoch, order.clone()));
                order
            }
        }
    }
}

/// The receiving end of a background thread.
struct Prefetch {
    receiver: Option<Receiver<Result<Batch, DataError>>>,
    worker: Option<JoinHandle<()>>,
    /// Why there is no thread, until it has been told.
    failure: Option<DataError>,
}

impl Iterator for Prefetch {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(Ok(batch)) = self.receiver.as_ref().map(Receiver::recv) {
            return Some(batch);
        }
        self.receiver = None;
        if let Some(Err(_)) = self.worker.take().map(JoinHandle::join) {
            let message = "it ended before its work was done".to_owned();
            self.failure = Some(DataError::Worker(message));
        }
        self.failure.take().map(Err)
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.receiver = None; // a thread that waits to send gives up
        if let Some(worker) = self.worker.take() {
            // How it ended no longer matters.
            let _ = worker.join();
        }
    }
}

/// The images `indices` of `source` in this order, unvaried, `batch` at a time; the last batch may be
/// smaller.
///
/// A setting or index out of range gives one error and no batch; an image that cannot be had, an
/// error in place of its batch.
pub fn evaluation_batches(
    source: &Arc<dyn Source>,
    indices: &[u32],
    transform: &Transform,
    batch: usize,
) -> impl Iterator<Item = Result<Batch, DataError>> + use<> {
    let indices = indices.to_vec();
    let mut pipeline = Pipeline::new(source.clone(), transform.clone()).and_then(|pipeline| {
        check_batch(batch)?;
        pipeline.check(&indices)?;
        Ok(Some(pipeline))
    });
    let mut done = 0;
    std::iter::from_fn(move || match &pipeline {
        Ok(Some(pipeline)) if done < indices.len() => {
            let end = indices.len().min(done.saturating_add(batch));
            let part = &indices[done..end];
            done = end;
            Some(pipeline.batch(part, 0, |_| Placement::default()))
        }
        Ok(_) => None,
        Err(_) => std::mem::replace(&mut pipeline, Ok(None)).err().map(Err),
    })
}

fn check_batch(batch: usize) -> Result<(), DataError> {
    if batch == 0 {
        return Err(DataError::Settings(
            "a batch of 0 images: expected at least 1".to_owned(),
        ));
    }
    Ok(())
}

/// A source and the way from its images to input.
struct Pipeline {
    source: Arc<dyn Source>,
    transform: Transform,
    normaliser: Normaliser,
    /// Whether an image takes long enough to prepare for several threads to share a batch.
    heavy: bool,
}

impl Pipeline {
    fn new(source: Arc<dyn Source>, transform: Transform) -> Result<Self, DataError> {
        let normaliser = Normaliser::new(&transform)?;
        let heavy = !source
            .native_size()
            .is_some_and(|size| transform.keeps(size));
        Ok(Self {
            source,
            transform,
            normaliser,
            heavy,
        })
    }

    fn check(&self, indices: &[u32]) -> Result<(), DataError> {
        let len = self.source.len();
        match indices.iter().find(|&&i| i as usize >= len) {
            Some(&i) => Err(crate::source::no_image(i as usize, len)),
            None => Ok(()),
        }
    }

    fn batch(
        &self,
        indices: &[u32],
        view: u32,
        place: impl Fn(u32) -> Placement + Sync,
    ) -> Result<Batch, DataError> {
        let one = |(&i, out): (&u32, &mut [f32])| {
            let image = self.source.image(i as usize)?;
            let pixels = self.transform.square(&image)?;
            self.normaliser.write(&pixels, place(i), out);
            Ok(())
        };
        let len = self.transform.len();
        let mut images = vec![0.0; indices.len() * len]; // (b, c, h, w)
        if self.heavy {
            let outcomes: Vec<Result<(), DataError>> = indices
                .par_iter()
                .zip(images.par_chunks_exact_mut(len))
                .map(one)
                .collect();
            // The first failure in the batch's order, whichever thread was first.
            outcomes.into_iter().collect::<Result<(), _>>()?;
        } else {
            indices
                .iter()
                .zip(images.chunks_exact_mut(len))
                .try_for_each(one)?;
        }
        let label = |&i: &u32| self.source.label(i as usize);
        Ok(Batch {
            images,
            labels: indices.iter().map(label).collect(),
            indices: indices.to_vec(),
            view,
            size: indices.len(),
            channels: self.transform.channels,
            image_size: self.transform.image_size,
        })
    }
}

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
