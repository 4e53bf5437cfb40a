//! Targets of distillation: an ancestor's logits on the training images, computed or from a cache.

use crate::ancestor::Ancestor;
use crate::cache::Cache;
use anyhow::Result;
use candle_core::Tensor;
use wave_data::Batch;
use wave_run::data::Data;
use wave_run::progress::Verbosity;

/// An ancestor's logits on the training images of a model.
pub struct Lesson<'a> {
    ancestor: &'a Ancestor,
    data: &'a Data,
    cache: Option<&'a Cache>,
    verbosity: Verbosity,
}

impl<'a> Lesson<'a> {
    /// Targets on the training images of `data`, with the ancestor's outputs from `cache` if given.
    ///
    /// # Errors
    /// If the ancestor has other classes than the data, or another input.
    pub fn new(
        ancestor: &'a Ancestor,
        data: &'a Data,
        cache: Option<&'a Cache>,
        verbosity: Verbosity,
    ) -> Result<Lesson<'a>> {
        ancestor.check(data)?;
        data.tell_classes(&ancestor.label_names);
        Ok(Lesson {
            ancestor,
            data,
            cache,
            verbosity,
        })
    }

    /// The ancestor's logits (b, classes) on a training batch.
    pub fn logits(&self, batch: &Batch, images: &Tensor) -> candle_core::Result<Tensor> {
        let Lesson { ancestor, data, .. } = *self;
        match self.cache {
            Some(cache) => cache.of_batch(batch, ancestor, data, self.verbosity),
            None => ancestor.of_batch(batch, images, data, self.verbosity),
        }
    }
}
