//! Training batches and test images, from the settings.

use crate::context::Context;
use crate::error::request;
use crate::progress;
use crate::terminal::detail;
use anyhow::Result;
use candle_core::{Device, Tensor};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use wave_data::{Batch, Dataset, Loader, Source, Transform};
use wave_models::refuse;

mod classes;
mod open;
mod plan;
#[cfg(feature = "hub")]
mod repository;
mod test_images;

pub(crate) use open::controls;
pub use open::open;
pub use plan::DataPlan;
use test_images::tell_broken;
pub use test_images::{TestImages, count_broken};

/// The images of a stage.
#[derive(Clone)]
pub struct Data {
    /// The settings that they follow.
    pub plan: DataPlan,
    /// The specification that opened them.
    pub spec: String,
    /// Training batches.
    pub loader: Loader,
    /// Source of the training images.
    pub train: Arc<dyn Source>,
    /// The test images.
    pub tests: TestImages,
    /// Indices of the training images in their source.
    pub train_indices: Vec<u32>,
    /// Preprocessing of an image into input.
    pub transform: Transform,
    /// Class names; empty if the images have no labels.
    pub class_names: Vec<String>,
    /// Number of classes of the images' labels, which an ancestor's class names may replace.
    pub labels: usize,
    /// One more than the largest training index; 0 without training images.
    pub source_images: usize,
    /// Identity of the repeated augmentations.
    pub views_id: String,
}

impl Data {
    /// Opens the data of `--data` as input for a model.
    ///
    /// # Errors
    /// If there is no such data, its images have no labels, or settings do not fit it.
    pub fn open(plan: &DataPlan, input: Input, context: &Context) -> Result<Data> {
        let data = Data::open_any(plan, input, None, context)?;
        if data.class_names.is_empty() {
            return Err(unlabelled(&data.spec));
        }
        Ok(data)
    }

    /// As [`Data::open`], for a stage that uses no labels. If the data has another number of classes than
    /// `names`, its classes are `names` and it has no test images.
    pub fn open_unlabelled(
        plan: &DataPlan,
        input: Input,
        names: &[String],
        context: &Context,
    ) -> Result<Data> {
        let mut data = Data::open_any(plan, input, Some(names.len()), context)?;
        if data.class_names.len() != names.len() {
            if let Some(n) = plan.hold_out {
                let (spec, own, others) = (&data.spec, data.class_names.len(), names.len());
                refuse!(
                    "hold_out = {n}: {spec} has {own} classes and the ancestor {others}, so its \
                     images cannot be tested; remove hold_out"
                );
            }
            data.class_names = names.to_vec();
            data.tests.class_names = names.to_vec();
            data.tests.indices.clear();
        }
        Ok(data)
    }

    /// The training images as test images: each once, without augmentation.
    pub fn training_images(&self) -> TestImages {
        let images = (self.train.clone(), self.train_indices.clone());
        let (names, context) = (&self.class_names, &self.tests.context);
        TestImages::new(&self.spec, images, names, &self.transform, context)
    }

    /// Training images of one view, by index: (images, channels, side, side).
    pub fn view_images(&self, images: &[u32], view: u32) -> candle_core::Result<Tensor> {
        let batch = self.loader.view_images(images, view);
        let batch = batch.map_err(|e| candle_core::Error::Msg(e.to_string()))?; // `wrap` adds a backtrace
        images_of(batch)
    }

    /// As [`Data::open`], whether the images have labels or not: without them there are no class names. If `classes`
    /// is given, data with another number of classes gets no test images.
    pub fn open_any(
        plan: &DataPlan,
        input: Input,
        classes: Option<usize>,
        context: &Context,
    ) -> Result<Data> {
        let dataset = open(plan.spec.as_deref(), context)?;
        tell_passed_over(&dataset);
        let (name, n) = (&dataset.name, dataset.train.len());
        if n == 0 {
            refuse!(
                "{name} has no training images, only {} test images: there is no folder train/ and \
                 no train-*.tar; add one, or choose other data",
                dataset.test.len()
            );
        }
        let tested = classes.is_none_or(|n| n == dataset.class_names.len());
        let share = share(plan, &dataset).filter(|_| tested);
        if let Some(held_out) = share {
            progress::note(&format!(
                "{name} has no test images: {held_out} of its {n} images are held out \
                 ({HELD_OUT} %, the same for every seed); set the number with --hold-out N, or make \
                 folders train/ and val/"
            ));
        }
        let (train, test) = parts(plan, &dataset, share)?;
        if tested && test.1.is_empty() && !dataset.class_names.is_empty() {
            progress::note(&format!(
                "{name} has no test images, so no accuracy will be known; give --hold-out N, or data with \
                 val/CLASS/ or val-*.tar, or TRAIN,TEST"
            ));
        }
        let transform = match input {
            Input::Like(transform) => {
                check_normalisation(plan, &transform)?;
                transform
            }
            Input::Size {
                image_size,
                channels,
            } => {
                let native = dataset.train.native_size();
                let channels = channels.or(native.map(|native| native.0)).unwrap_or(3);
                let (mean, std) = normalisation(plan, &dataset, &train, image_size, channels)?;
                Transform::new(image_size, mean, std)
            }
        };
        tell_size(&*dataset.train, &transform);
        detail(|| {
            let (tests, classes) = (test.1.len(), dataset.class_names.len());
            format!(
                "{name}: {} training images, {tests} test images, {classes} classes; {transform:?}",
                train.len()
            )
        });
        let mut sorted = train.clone();
        sorted.sort_unstable();
        let chosen: Vec<u8> = sorted.iter().flat_map(|i| i.to_le_bytes()).collect();
        let (augment, view_seed) = (&plan.augment, plan.view_seed);
        let chosen = wave_hub::sha256_hex(&chosen);
        let views_id = format!("{name} {augment:?} {view_seed} {transform:?} {chosen}");
        let loader = Loader::train(
            dataset.train.clone(),
            train.clone(),
            transform.clone(),
            augment.clone(),
            plan.batch,
            plan.views,
            plan.seed,
        )?;
        let class_names = dataset.class_names.clone();
        let tests = TestImages::new(name, test, &class_names, &transform, context);
        Ok(Data {
            spec: name.clone(),
            loader: loader.with_view_seed(view_seed),
            train: dataset.train.clone(),
            tests,
            source_images: sorted.last().map_or(0, |i| *i as usize + 1),
            train_indices: train,
            plan: plan.clone(),
            transform,
            labels: class_names.len(),
            class_names,
            views_id,
        })
    }

    /// Description in a plan.
    pub fn describe(&self) -> String {
        let (images, tests) = (self.train_indices.len(), self.tests.indices.len());
        let (spec, classes) = (&self.spec, self.class_names.len());
        format!("data: {spec}, {images} training images, {tests} test images, {classes} classes\n")
    }

    /// Reports on stderr the broken images since the run started or resumed, and returns their number.
    /// Every rank must call it.
    pub fn tell_broken(&self) -> usize {
        let what = ("training image", "replaced");
        let ranks = self.tests.context.ranks();
        tell_broken(&*self.train, &self.loader.broken(), what, ranks) + self.tests.tell_broken()
    }
}

/// The images of a batch: (images, channels, side, side).
pub fn images_of(batch: Batch) -> candle_core::Result<Tensor> {
    let (channels, side) = (batch.channels, batch.image_size);
    let shape = (batch.size, channels, side, side);
    Tensor::from_vec(batch.images, shape, &Device::Cpu)
}

fn unlabelled(spec: &str) -> anyhow::Error {
    request(format!(
        "the images of {spec} have no labels, which take two class folders at least; sort the images \
         into train/CLASS/ and val/CLASS/ (only wave condense can do without, with ce_weight = 0)"
    ))
}

/// Percentage of the images to hold out of data without a split.
const HELD_OUT: usize = 15;

/// Number of images to hold out of data without a split.
fn share(plan: &DataPlan, dataset: &Dataset) -> Option<usize> {
    let n = dataset.train.len();
    let splits = dataset.unsplit && plan.hold_out.is_none() && n > 1;
    splits.then(|| (n * HELD_OUT).div_ceil(100))
}

/// Prints a note about files in the data that are not read.
fn tell_passed_over(dataset: &Dataset) {
    let passed_over = &dataset.passed_over;
    if passed_over.count > 0 {
        progress::note(&format!(
            "{}: ignored files and folders: {passed_over}",
            dataset.name
        ));
    }
}

/// A source, and indices of its images.
type Subset = (Arc<dyn Source>, Vec<u32>);

/// The training images that the settings select, and the test images with their source. `share` is the number of
/// images held out by default.
fn parts(plan: &DataPlan, dataset: &Dataset, share: Option<usize>) -> Result<(Vec<u32>, Subset)> {
    let mut train = wave_data::subset(dataset.train.len(), None, plan.seed);
    let test = match plan.hold_out.or(share) {
        Some(n) if n >= train.len() => refuse!(
            "hold_out = {n} leaves none of the {} training images; lower it",
            train.len()
        ),
        // The same images for every seed, so that no stage tests on images that another trained on.
        Some(n) => {
            let order = wave_data::subset(dataset.train.len(), None, 0);
            let mut held_out = order[order.len() - n..].to_vec();
            let out: BTreeSet<u32> = held_out.iter().copied().collect();
            train.retain(|i| !out.contains(i));
            if plan.hold_out.is_none() {
                held_out.truncate(plan.test_limit.unwrap_or(usize::MAX));
            }
            (dataset.train.clone(), held_out)
        }
        None => {
            let mut indices = wave_data::subset(dataset.test.len(), plan.test_limit, plan.seed);
            indices.sort_unstable();
            (dataset.test.clone(), indices)
        }
    };
    train.truncate(plan.train_limit.unwrap_or(usize::MAX));
    Ok((train, test))
}

/// Prints a note if images of one size are resized by more than a factor of two.
fn tell_size(source: &dyn Source, transform: &Transform) {
    let Some((height, width)) = wave_data::common_size(source) else {
        return;
    };
    let (from, to) = (height.min(width) as f64, transform.image_size as f64);
    let (how, times) = match from < to {
        true => ("enlarged", to / from),
        false => ("reduced", from / to),
    };
    if times > 2.0 {
        let times = (10.0 * times).round() / 10.0;
        let side = transform.image_size;
        progress::note(&format!(
            "images of {width} x {height} are {how} by a factor of {times} to {side} x {side}"
        ));
    }
}

/// Input of a model.
pub enum Input {
    /// Exactly this preprocessing.
    Like(Transform),
    /// This size; the normalisation comes from the settings or is measured.
    Size {
        /// Side of the image in pixels.
        image_size: usize,
        /// Colour channels; by default those of the images, or 3 if the images may differ.
        channels: Option<usize>,
    },
}

/// Side of the images in pixels if all have one size: as declared, else at most 224; larger photographs are resized
/// to that.
pub fn image_side(dataset: &Dataset) -> Option<usize> {
    if let Some((_, height, _)) = dataset.train.native_size() {
        return Some(height);
    }
    let (height, width) = wave_data::common_size(&*dataset.train)?;
    Some(height.min(width).min(DEFAULT_SIDE))
}

/// Default side of the images in pixels, if neither settings nor data give one.
pub const DEFAULT_SIDE: usize = 224;

/// Number of images sampled for the digest of a data set that is too large to read in full.
const SAMPLES: usize = 64;

/// Data of at most this many bytes is read in full for its digest, in under a second.
const READ_WHOLE: u64 = 64 << 20;

/// Identity of some images of a source: their names, labels and sizes, and their content if it is at most 64 MB;
/// otherwise the content of a few, evenly spread, and the modification time of each file.
pub fn identity(source: &dyn Source, images: &[u32]) -> String {
    let native = source.native_size().map(|(c, h, w)| (c * h * w) as u64);
    let size = |i: &u32| source.file_size(*i as usize).or(native);
    let sizes: Vec<Option<u64>> = images.par_iter().map(size).collect();
    // Files of unknown size count as large.
    let mut known = sizes.iter();
    let total = known.try_fold(0_u64, |sum, size| sum.checked_add((*size)?));
    // A source without files is in memory.
    let at_most = READ_WHOLE * native.map_or(1, |_| 4);
    let whole = total.is_some_and(|total| total <= at_most);
    let line = |(i, size): (&u32, &Option<u64>)| {
        let i = *i as usize;
        let name = source.name(i);
        // Leave out the path of the data and the folder of the class, which is the label.
        let name = name.rsplit(std::path::MAIN_SEPARATOR).next();
        let name = name.unwrap_or_default();
        let changed = source.modified(i).filter(|_| !whole);
        let content = match whole {
            true => content(source, i),
            false => String::new(),
        };
        let label = source.label(i);
        format!("{name} {label} {size:?} {changed:?} {content}\n")
    };
    let mut lines: Vec<String> = images.par_iter().zip(&sizes).map(line).collect();
    if !whole {
        let (n, read) = (images.len(), SAMPLES.min(images.len()));
        let sampled = (0..read).map(|k| content(source, images[k * n / read] as usize));
        lines.extend(sampled);
    }
    wave_hub::sha256_hex(lines.concat().as_bytes())
}

/// The digest of an image's file, or of its pixels.
fn content(source: &dyn Source, i: usize) -> String {
    // Broken images are handled by the loader.
    let bytes = match source.encoded(i) {
        Ok(None) => source.image(i).map(|image| image.pixels),
        file => file.map(Option::unwrap_or_default),
    };
    wave_hub::sha256_hex(&bytes.unwrap_or_default())
}

/// Refuses a normalisation other than the model's own, with which its weights were trained.
fn check_normalisation(plan: &DataPlan, transform: &Transform) -> Result<()> {
    for (name, given, own) in [
        ("mean", &plan.normalisation[0], &transform.mean),
        ("std", &plan.normalisation[1], &transform.std),
    ] {
        let equal = |given: &Vec<f64>| {
            let mut pairs = given.iter().zip(own);
            given.len() == own.len() && pairs.all(|(a, b)| (*a as f32 - b).abs() <= 1e-6)
        };
        if let Some(given) = given.as_ref().filter(|given| !equal(given)) {
            refuse!(
                "{name} = {given:?}, but the model was made with {own:?} and keeps it; remove mean \
                 and std"
            );
        }
    }
    Ok(())
}

fn normalisation(
    plan: &DataPlan,
    dataset: &Dataset,
    train: &[u32],
    image_size: usize,
    channels: usize,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let given = |values: &Option<Vec<f64>>, name: &str| -> Result<Option<Vec<f32>>> {
        match values {
            Some(v) if v.len() != channels => {
                refuse!("{name} has {} values for {channels} channels", v.len())
            }
            Some(v) => Ok(Some(v.iter().map(|v| *v as f32).collect())),
            None => Ok(None),
        }
    };
    let [mean, std] = &plan.normalisation;
    match (given(mean, "mean")?, given(std, "std")?) {
        (Some(mean), Some(std)) => Ok((mean, std)),
        (None, None) => {
            let (mean, std) =
                wave_data::measure_normalisation(&*dataset.train, train, image_size, channels)?;
            // Three digits are enough, and print the same everywhere.
            let round = |v: f32| (v * 1e4).round() / 1e4;
            let std = std.into_iter().map(|v| round(v).max(1e-4));
            Ok((mean.into_iter().map(round).collect(), std.collect()))
        }
        _ => refuse!("mean and std go together; give both or neither"),
    }
}
