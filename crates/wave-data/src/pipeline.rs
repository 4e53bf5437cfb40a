//! From indices of images to a batch.

use std::sync::Arc;

use image::metadata::Orientation;
use rayon::prelude::*;

use crate::augment::colour::luma;
use crate::augment::{Showing, erase};
use crate::broken::BrokenImages;
use crate::decode::decode;
use crate::jpeg;
use crate::source::no_image;
use crate::transform::{Normaliser, resize_rectangle};
use crate::{Augment, Batch, DataError, RawImage, ResizedCrop, Source, Transform};

/// Consecutive broken images before giving up on a replacement.
const REPLACEMENTS: u64 = 16;

/// Images that are shown once.
pub(crate) fn first_showings(indices: &[u32]) -> Vec<Showing> {
    indices.iter().map(|&i| (i, 0)).collect()
}

/// The augmentation of a batch.
pub(crate) struct Variation<'a> {
    pub(crate) augment: &'a Augment,
    pub(crate) seed: u64,
    pub(crate) view: u32,
    /// Number of times that the view was shown before.
    pub(crate) round: u32,
    /// The images that may replace broken ones, which are left out if there are none.
    pub(crate) substitutes: &'a [u32],
}

/// A source and the steps from its images to network input.
pub(crate) struct Pipeline {
    source: Arc<dyn Source>,
    pub(crate) transform: Transform,
    normaliser: Normaliser,
}

impl Pipeline {
    /// A pipeline for batches of `batch` images. Refuses settings or `indices` out of range, and batches of 0 images.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        transform: Transform,
        indices: &[u32],
        batch: usize,
    ) -> Result<Self, DataError> {
        let normaliser = Normaliser::new(&transform)?;
        let pipeline = Self {
            source,
            transform,
            normaliser,
        };
        pipeline.check(indices)?;
        if batch == 0 {
            let problem = "a batch of 0 images: expected at least 1".to_owned();
            return Err(DataError::Settings(problem));
        }
        Ok(pipeline)
    }

    pub(crate) fn check(&self, indices: &[u32]) -> Result<(), DataError> {
        let len = self.source.len();
        match indices.iter().find(|&&i| i as usize >= len) {
            Some(&i) => Err(no_image(i as usize, len)),
            None => Ok(()),
        }
    }

    /// The images in this order.
    pub(crate) fn batch(
        &self,
        showings: &[Showing],
        variation: &Variation,
        broken: &BrokenImages,
    ) -> Result<Batch, DataError> {
        let one = |(&showing, out): (&Showing, &mut [f32])| self.input(showing, variation, out);
        let len = self.transform.len();
        let mut images = vec![0.0; showings.len() * len]; // (b, c, h, w)
        let (augment, native) = (variation.augment, self.source.native_size());
        let varied = augment.rand_augment.is_some() || augment.resized_crop.is_some();
        let ready = native.is_some_and(|size| self.transform.keeps(size));
        // Several threads share a batch if its images take long to prepare.
        let outcomes: Vec<Result<(), DataError>> = if varied || !ready {
            let parts = showings.par_iter().zip(images.par_chunks_exact_mut(len));
            parts.map(one).collect()
        } else {
            let parts = showings.iter().zip(images.chunks_exact_mut(len));
            parts.map(one).collect()
        };
        let mut indices: Vec<u32> = showings.iter().map(|&(i, _)| i).collect();
        let mut left_out = Vec::new();
        // In batch order, whichever thread finished first.
        let parts = outcomes.into_iter().zip(images.chunks_exact_mut(len));
        for (k, (outcome, out)) in parts.enumerate() {
            let Err(error) = outcome else { continue };
            if variation.substitutes.is_empty() {
                broken.note(indices[k], error)?;
                left_out.push(k);
            } else {
                indices[k] = self.replace(showings[k], variation, error, broken, out)?;
            }
        }
        for k in left_out.into_iter().rev() {
            indices.remove(k);
            images.drain(k * len..(k + 1) * len);
        }
        let label = |&i: &u32| self.source.label(i as usize);
        Ok(Batch {
            images,
            labels: indices.iter().map(label).collect(),
            view: variation.view,
            size: indices.len(),
            indices,
            channels: self.transform.channels,
            image_size: self.transform.image_size,
            mix: None,
        })
    }

    /// Replaces a broken image by another, always the same, and returns its index.
    fn replace(
        &self,
        (broken, repeat): Showing,
        variation: &Variation,
        error: DataError,
        found: &BrokenImages,
        out: &mut [f32],
    ) -> Result<u32, DataError> {
        let last = error.to_string();
        found.note(broken, error)?;
        for attempt in 0..REPLACEMENTS {
            let drawn = crate::augment::hash(u64::from(broken) << 8 | attempt);
            let n = variation.substitutes.len() as u64;
            let i = variation.substitutes[(drawn % n) as usize];
            match self.input((i, repeat), variation, out) {
                Ok(()) => return Ok(i),
                Err(error) => found.note(i, error)?,
            }
        }
        Err(DataError::Settings(format!(
            "no intact image was found to replace a broken one ({last}): check the data"
        )))
    }

    /// Writes one image's input (c, h, w).
    fn input(&self, showing: Showing, v: &Variation, out: &mut [f32]) -> Result<(), DataError> {
        let (i, s) = (showing.0 as usize, self.transform.image_size);
        let placement = v.augment.place(v.seed, v.view, showing, v.round);
        let mut rng = Augment::generator(v.seed, v.view, showing, v.round);
        let image; // `pixels` may borrow from it
        let mut pixels = match &v.augment.resized_crop {
            Some(crop) => self.cropped(i, crop, &mut rng)?.into(),
            None => {
                image = self.source.image(i)?;
                self.transform.square(&image)?
            }
        };
        if let Some(policy) = &v.augment.rand_augment {
            let mut square = RawImage {
                width: s,
                height: s,
                channels: pixels.len() / (s * s),
                pixels: pixels.into_owned(),
            };
            if (square.channels, self.transform.channels) == (1, 3) {
                square.channels = 3;
                square.pixels = square.pixels.iter().flat_map(|&x| [x; 3]).collect();
            }
            policy.apply(&mut square, self.fill(), &mut rng);
            pixels = square.pixels.into();
        }
        self.normaliser.write(&pixels, placement, out);
        if let Some(probability) = v.augment.erasing {
            erase::apply(probability, out, s, &mut rng);
        }
        Ok(())
    }

    /// A random crop of an image as a square (s, s, 1 or 3), decoded no larger than necessary.
    fn cropped(
        &self,
        i: usize,
        crop: &ResizedCrop,
        rng: &mut rand_chacha::ChaCha8Rng,
    ) -> Result<Vec<u8>, DataError> {
        let s = self.transform.image_size;
        let mut file = self.source.encoded(i)?;
        let (image, rectangle, factor) = if let Some(bytes) = &mut file
            && let Ok(Some(frame)) = jpeg::Frame::read(bytes)
            && frame.orientation == Orientation::NoTransforms
        {
            // The crop is sampled for the size that the file declares.
            let rectangle = crop.draw(frame.width, frame.height, rng);
            let factor = rectangle.reduction(s);
            match jpeg::decode_reduced(bytes, &frame, factor) {
                Some(image) => (image, rectangle, factor),
                None => {
                    let rows = rectangle.top + rectangle.height;
                    let image = jpeg::decode_top(bytes, &frame, rows)
                        .map_err(|problem| DataError::content(self.source.name(i), problem))?;
                    (image, rectangle, 1)
                }
            }
        } else {
            let image = match file {
                Some(bytes) => decode(&bytes, &self.source.name(i))?,
                None => self.source.image(i)?,
            };
            image.check()?;
            let rectangle = crop.draw(image.width, image.height, rng);
            (image, rectangle, 1)
        };
        let pixels = resize_rectangle(&image, rectangle, factor, s);
        Ok(match (self.transform.channels, image.channels) {
            (1, 3) => luma(&pixels),
            _ => pixels,
        })
    }

    /// The mean colour, timm's fill for pixels from outside the image.
    fn fill(&self) -> [u8; 3] {
        let mean = &self.transform.mean;
        std::array::from_fn(|k| {
            let mean = mean.get(k).or(mean.first()).copied().unwrap_or(0.5);
            (255.0 * mean).round().clamp(0.0, 255.0) as u8
        })
    }
}

/// The images `indices` of `source` in this order, without augmentation, `batch` at a time, at the end fewer.
///
/// Broken images are recorded in `broken` and left out, which makes their batch smaller. A setting or index
/// out of range gives one error and no batch; an image that cannot be read, or one broken image too many,
/// gives an error instead of its batch.
pub fn evaluation_batches(
    source: &Arc<dyn Source>,
    indices: &[u32],
    transform: &Transform,
    batch: usize,
    broken: &Arc<BrokenImages>,
) -> impl Iterator<Item = Result<Batch, DataError>> + use<> {
    let indices = indices.to_vec();
    let broken = broken.clone();
    let pipeline = Pipeline::new(source.clone(), transform.clone(), &indices, batch);
    let plain = Variation {
        augment: &Augment::NONE,
        seed: 0,
        view: 0,
        round: 0,
        substitutes: &[],
    };
    let (pipeline, wrong) = match pipeline {
        Ok(pipeline) => (Some(pipeline), None),
        Err(error) => (None, Some(Err(error))),
    };
    let starts = (0..indices.len()).step_by(batch.max(1));
    let batches = starts.map_while(move |start| {
        let end = indices.len().min(start.saturating_add(batch));
        let showings = first_showings(&indices[start..end]);
        Some(pipeline.as_ref()?.batch(&showings, &plain, &broken))
    });
    let batches = wrong.into_iter().chain(batches);
    let is_empty = |batch: &Result<Batch, DataError>| batch.as_ref().is_ok_and(|b| b.size == 0);
    batches.filter(move |batch| !is_empty(batch))
}
