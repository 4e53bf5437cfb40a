//! Test images, and reports of broken ones.

use super::{DataPlan, check_normalisation, open, parts, tell_passed_over, tell_size, unlabelled};
use crate::context::Context;
use crate::progress;
use crate::terminal::detail;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use wave_data::{BrokenImage, BrokenImages, Source, Transform};
use wave_models::refuse;
use wave_train::Ranks;

/// Maximum number of broken images that are named on stderr.
const NAMED: usize = 5;

/// Images for evaluation only.
#[derive(Clone)]
pub struct TestImages {
    /// The specification that opened them.
    pub spec: String,
    /// Their source.
    pub source: Arc<dyn Source>,
    /// Their indices in the source.
    pub indices: Vec<u32>,
    /// Preprocessing of an image into input.
    pub transform: Transform,
    /// Class names.
    pub class_names: Vec<String>,
    /// Broken images among them, which are left out.
    pub broken: Arc<BrokenImages>,
    /// The context; its ranks divide the images among them.
    pub context: Context,
}

impl TestImages {
    /// Opens the test images of `--data` as input for a model; the data needs no training images.
    ///
    /// # Errors
    /// If there is no such data, its images have no labels, or it has no test images.
    pub fn open(plan: &DataPlan, transform: &Transform, context: &Context) -> Result<TestImages> {
        check_normalisation(plan, transform)?;
        let mut dataset = open(plan.spec.as_deref(), context)?;
        tell_passed_over(&dataset);
        if dataset.unsplit && plan.hold_out.is_none() {
            let n = dataset.train.len();
            progress::note(&format!(
                "{} has no separate test images, so all {n} images are used; a model that was trained \
                 on them is tested on the held-out ones by wave eval --hold-out N",
                dataset.name
            ));
            dataset.test = dataset.train.clone();
        }
        let (name, names) = (&dataset.name, &dataset.class_names);
        let (_, images) = parts(plan, &dataset, None)?;
        let n = images.1.len();
        if names.is_empty() {
            return Err(unlabelled(name));
        }
        if n == 0 {
            refuse!(
                "{name} has no test images, only {} training images: give --hold-out N to test on \
                 N of these, or data with val/CLASS/ or val-*.tar, or TRAIN,TEST",
                dataset.train.len()
            );
        }
        tell_size(&*images.0, transform);
        detail(|| format!("{name}: {n} test images; {transform:?}"));
        Ok(TestImages::new(name, images, names, transform, context))
    }

    pub(super) fn new(
        spec: &str,
        (source, indices): (Arc<dyn Source>, Vec<u32>),
        class_names: &[String],
        transform: &Transform,
        context: &Context,
    ) -> TestImages {
        TestImages {
            spec: spec.into(),
            class_names: class_names.to_vec(),
            broken: Arc::new(BrokenImages::new(indices.len())),
            source,
            indices,
            transform: transform.clone(),
            context: context.clone(),
        }
    }

    /// The images in batches of `at_once`, divided among the ranks.
    pub fn batches(
        &self,
        at_once: usize,
    ) -> impl Iterator<Item = Result<wave_data::Batch, wave_data::DataError>> + use<> {
        let batches = self.indices.chunks(at_once);
        let ranks = self.context.ranks();
        let own = batches.skip(ranks.rank()).step_by(ranks.size());
        let indices: Vec<u32> = own.flatten().copied().collect();
        let (source, transform) = (&self.source, &self.transform);
        wave_data::evaluation_batches(source, &indices, transform, at_once, &self.broken)
    }

    /// Fails if there are no images to measure an accuracy on.
    pub fn check(&self) -> Result<()> {
        if !self.indices.is_empty() {
            return Ok(());
        }
        refuse!(
            "{} has no test images, so accuracy cannot be measured: give --hold-out N to test on \
             training images, or other data",
            self.spec
        )
    }

    /// Reports on stderr the broken images that were left out, and returns their number. Every rank
    /// must call it.
    pub fn tell_broken(&self) -> usize {
        let what = ("test image", "excluded from the accuracy");
        let ranks = self.context.ranks();
        tell_broken(&*self.source, &self.broken.list(), what, ranks)
    }
}

/// Adds the number of broken images to a result, unless it is zero.
pub fn count_broken(result: &mut Value, broken: usize) {
    if broken > 0 {
        result["broken_images"] = json!(broken);
    }
}

/// Reports on stderr the broken images that any rank found in a source, and returns their number.
pub(super) fn tell_broken(
    source: &dyn Source,
    found: &[BrokenImage],
    (what, fate): (&str, &str),
    ranks: &dyn Ranks,
) -> usize {
    let mut all: BTreeSet<usize> = found.iter().map(|image| image.index as usize).collect();
    if ranks.size() > 1 {
        let mut found = vec![0.0; source.len()];
        all.iter().for_each(|i| found[*i] = 1.0);
        ranks.sum(&mut found);
        all = (0..found.len()).filter(|i| found[*i] > 0.0).collect();
    }
    let n = all.len();
    if n > 0 {
        let mut names: Vec<String> = all.iter().take(NAMED).map(|i| source.name(*i)).collect();
        if n > NAMED {
            names.push(format!("{} more", n - NAMED));
        }
        let (plural, verb) = if n == 1 { ("", "is") } else { ("s", "are") };
        progress::note(&format!(
            "{n} {what}{plural} {verb} broken and {verb} {fate}: {}; `wave data check` says what is \
             wrong",
            names.join(", ")
        ));
    }
    n
}
