//! Targets of distillation: an ancestor's outputs on the training images, computed or from a cache.

use crate::ancestor::{Ancestor, AncestorOutput};
use crate::cache::Cache;
use anyhow::Result;
use candle_core::{Device, Tensor};
use wave_data::Batch;
use wave_learngene::Standard;
use wave_ops::profile::{Work, doing};
use wave_run::data::Data;
use wave_run::progress::Verbosity;

/// Images that features are standardised by.
const MEASURED: usize = 2048;

/// An ancestor's outputs on the training images of a model.
pub(crate) struct DistillTargets<'a> {
    ancestor: &'a Ancestor,
    data: &'a Data,
    cache: Option<&'a Cache>,
    output: AncestorOutput,
    /// Mean and deviation of its features.
    standard: Option<Standard>,
    verbosity: Verbosity,
}

impl<'a> DistillTargets<'a> {
    /// Targets on the training images of `data`, with the ancestor's outputs from `cache` if given.
    pub(crate) fn new(
        ancestor: &'a Ancestor,
        data: &'a Data,
        output: AncestorOutput,
        cache: Option<&'a Cache>,
        verbosity: Verbosity,
    ) -> Result<DistillTargets<'a>> {
        ancestor.check(data, output)?;
        if output == AncestorOutput::Scores {
            data.tell_classes(&ancestor.label_names);
        }
        Ok(DistillTargets {
            ancestor,
            data,
            cache,
            output,
            standard: match output {
                AncestorOutput::Scores => None,
                AncestorOutput::Features => Some(standard(ancestor, data)?),
            },
            verbosity,
        })
    }

    /// The ancestor's logits (b, classes) on a training batch, or its standardised features (b, width).
    pub(crate) fn targets(&self, batch: &Batch, images: &Tensor) -> candle_core::Result<Tensor> {
        let _measured = doing(Work::Ancestor);
        let DistillTargets { ancestor, data, .. } = *self;
        let outputs = match self.cache {
            Some(cache) => cache.of_batch(batch, ancestor, data, self.verbosity),
            None => ancestor.of_batch(batch, images, data, self.output, self.verbosity),
        }?;
        match &self.standard {
            Some(standard) => standard.apply(&outputs),
            None => Ok(outputs),
        }
    }
}

/// Mean and deviation of an ancestor's features on the first training images, the same in every run on
/// this data.
fn standard(ancestor: &Ancestor, data: &Data) -> Result<Standard> {
    let some = &data.train_indices[..data.train_indices.len().min(MEASURED)];
    let mut features = Vec::new();
    for images in some.chunks(ancestor.at_once()) {
        ancestor.context.interruption().check()?;
        features.extend(ancestor.of_view(images, 0, data, AncestorOutput::Features)?);
    }
    let shape = (some.len(), ancestor.width(AncestorOutput::Features));
    Ok(Standard::of(&Tensor::from_vec(
        features,
        shape,
        &Device::Cpu,
    )?)?)
}
