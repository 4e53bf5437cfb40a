//! Targets of distillation: an ancestor's outputs on the training images, computed or from a cache.

use crate::ancestor::{Ancestor, AncestorOutput, Shown};
use crate::cache::Cache;
use anyhow::Result;
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use wave_data::Batch;
use wave_learngene::Standard;
use wave_ops::profile::{Work, doing};
use wave_run::data::Data;
use wave_run::progress::{Passes, Verbosity};

/// Number of images used to standardise features.
const MEASURED: usize = 2048;

/// An ancestor's outputs on the training images of a model.
pub(crate) struct DistillTargets<'a> {
    pub(crate) shown: Shown<'a>,
    cache: Option<&'a Cache>,
    /// Mean and deviation of its features.
    standard: Option<Standard>,
    /// Seconds to compute or read the outputs of whole views.
    seen: Mutex<BTreeMap<u32, f64>>,
}

impl<'a> DistillTargets<'a> {
    /// Targets on the training images of `data`, with the outputs of an ancestor that fits them, from `cache` if given;
    /// none without an ancestor.
    pub(crate) fn of(
        ancestor: Option<&'a Ancestor>,
        data: &'a Data,
        output: AncestorOutput,
        cache: Option<&'a Cache>,
        verbosity: Verbosity,
    ) -> Result<Option<DistillTargets<'a>>> {
        let Some(ancestor) = ancestor else {
            return Ok(None);
        };
        if output == AncestorOutput::Scores {
            data.tests.tell_classes(&ancestor.label_names);
        }
        let shown = Shown {
            ancestor,
            data,
            output,
            verbosity,
        };
        Ok(Some(DistillTargets {
            shown,
            cache,
            standard: match output {
                AncestorOutput::Scores => None,
                AncestorOutput::Features => Some(standard(&shown)?),
            },
            seen: Mutex::default(),
        }))
    }

    /// The ancestor's logits (b, classes) on a training batch, or its standardised features (b, width).
    pub(crate) fn targets(&self, batch: &Batch, images: &Tensor) -> candle_core::Result<Tensor> {
        let _measured = doing(Work::Ancestor);
        let shown = &self.shown;
        let began = Instant::now();
        let outputs = match self.cache {
            Some(cache) => cache.of_batch(batch, shown),
            None => shown.of_batch(batch, images),
        }?;
        if self.cache.is_some() || shown.keeps(batch) {
            let seconds = || began.elapsed().as_secs_f64();
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(batch.view).or_insert_with(seconds);
        }
        match &self.standard {
            Some(standard) => standard.apply(&outputs),
            None => Ok(outputs),
        }
    }

    /// The ancestor's passes over all images of a view, after `step` of `steps` steps.
    pub(crate) fn passes(&self, step: u64, steps: u64) -> Passes {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(views), false) = (self.shown.data.plan.views, seen.is_empty()) else {
            return Passes::default();
        };
        let per_epoch = self.shown.data.loader.steps_per_epoch() as u64;
        let next = step.div_ceil(per_epoch);
        let epochs = next..steps.div_ceil(per_epoch).min(next + u64::from(views));
        let new = epochs.filter(|epoch| !seen.contains_key(&((epoch % u64::from(views)) as u32)));
        let spent: f64 = seen.values().sum();
        Passes {
            spent,
            ahead: new.count() as f64 * spent / seen.len() as f64,
        }
    }
}

/// Mean and deviation of an ancestor's features on the first training images, the same in every run on
/// this data.
fn standard(shown: &Shown) -> Result<Standard> {
    let (ancestor, data) = (shown.ancestor, shown.data);
    let some = &data.train_indices[..data.train_indices.len().min(MEASURED)];
    let mut features = Vec::new();
    for images in some.chunks(ancestor.at_once()) {
        ancestor.context.interruption().check()?;
        features.extend(shown.of_view(images, 0)?);
    }
    let shape = (some.len(), ancestor.width(shown.output));
    let features = Tensor::from_vec(features, shape, &Device::Cpu)?;
    Ok(Standard::of(&features)?)
}
