//! Sources of images, and the choice of the images to use.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::{DataError, RawImage, decode};

/// Number of headers that [`common_size`] reads.
const SAMPLED: usize = 16;

/// Images, usually labelled, each addressed by its index, in memory or read on demand.
pub trait Source: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// True if there are no images.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Class of image `i`, an index into [`Dataset::class_names`]; `u32::MAX` where images have no labels.
    ///
    /// # Panics
    /// If `i` is not below [`len`](Self::len).
    fn label(&self, i: usize) -> u32;

    /// Image `i`: the decoded [`encoded`](Self::encoded) file, where images are files.
    ///
    /// # Errors
    /// When there is no image `i`, when its file cannot be read, or when it is not an image.
    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        let is_there = i < self.len();
        let file = is_there.then(|| self.encoded(i)).transpose()?.flatten();
        let file = file.ok_or_else(|| no_image(i, self.len()))?;
        decode(&file, &self.name(i))
    }

    /// The content of the file of image `i`, where images are files: not decoded yet.
    ///
    /// # Errors
    /// When the file cannot be read.
    ///
    /// # Panics
    /// As [`label`](Self::label).
    fn encoded(&self, _i: usize) -> Result<Option<Vec<u8>>, DataError> {
        Ok(None)
    }

    /// The size in bytes of the file of image `i`, where it is known without reading the file.
    fn file_size(&self, _i: usize) -> Option<u64> {
        None
    }

    /// When the file of image `i` was last changed, where it is known without reading it.
    fn modified(&self, _i: usize) -> Option<SystemTime> {
        None
    }

    /// The name of image `i` in reports: its file, or its position in a file.
    fn name(&self, i: usize) -> String {
        format!("image {i}")
    }

    /// The size `(channels, height, width)` of every image, if they are known to be equal.
    fn native_size(&self) -> Option<(usize, usize, usize)> {
        None
    }
}

/// Number of skipped paths that are listed.
const NAMED: usize = 5;

/// Files and folders of a data set that are not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// Number of them.
    pub count: usize,
    /// The first of them.
    pub named: Vec<String>,
}

impl PassedOver {
    /// Adds entries of a folder.
    pub(crate) fn add(&mut self, dir: &Path, names: impl IntoIterator<Item = impl AsRef<Path>>) {
        for name in names {
            self.count += 1;
            if self.named.len() < NAMED {
                self.named.push(dir.join(name).display().to_string());
            }
        }
    }

    pub(crate) fn append(&mut self, other: &PassedOver) {
        self.count += other.count;
        let room = NAMED - self.named.len();
        self.named.extend(other.named.iter().take(room).cloned());
    }
}

impl std::fmt::Display for PassedOver {
    /// `3: a, b, c`.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}: {}", self.count, self.named.join(", "))?;
        match self.count - self.named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A data set: training and test images, with the same classes.
#[derive(Clone)]
pub struct Dataset {
    /// A short name for reports: `fashion-mnist`, `shapes`, or the directory's own name.
    pub name: String,
    /// Names of the classes, by label; none where images have no labels.
    pub class_names: Vec<String>,
    /// The training images.
    pub train: Arc<dyn Source>,
    /// The test images; an image folder's are in `val/`.
    pub test: Arc<dyn Source>,
    /// True if the data set names no images for testing, like a directory of class folders alone.
    pub unsplit: bool,
    /// Files and folders among the images of both splits that are not read.
    pub passed_over: PassedOver,
}

impl Dataset {
    pub(crate) fn new(
        name: String,
        class_names: Vec<String>,
        train: impl Source + 'static,
        test: impl Source + 'static,
    ) -> Dataset {
        Dataset {
            name,
            class_names,
            train: Arc::new(train),
            test: Arc::new(test),
            unsplit: false,
            passed_over: PassedOver::default(),
        }
    }
}

/// The (height, width) in pixels, if all images have one: as declared, or by the headers of a few, evenly spaced.
pub fn common_size(source: &dyn Source) -> Option<(usize, usize)> {
    if let Some((_, height, width)) = source.native_size() {
        return Some((height, width));
    }
    let (n, looked_at) = (source.len(), SAMPLED.min(source.len()));
    let size = |k: usize| {
        let i = k * n / looked_at;
        // Broken images are the loader's concern.
        if let Some(file) = source.encoded(i).ok()? {
            return decode::size(&file);
        }
        let image = source.image(i).ok()?;
        Some((image.height, image.width))
    };
    let mut sizes = (0..looked_at).filter_map(size);
    let first = sizes.next()?;
    sizes.all(|size| size == first).then_some(first)
}

/// The first `limit` of the indices `0..len` after a seeded shuffle, or all of them in that order.
///
/// A smaller subset is a prefix of a larger one of the same seed. Indices end at `u32::MAX`.
pub fn subset(len: usize, limit: Option<usize>, seed: u64) -> Vec<u32> {
    let all = 0..u32::try_from(len).unwrap_or(u32::MAX);
    let mut order = permutation(all, seed, SUBSET_STREAM);
    order.truncate(limit.unwrap_or(len));
    order
}

/// No epoch has this number, so a subset's order differs from every epoch's.
const SUBSET_STREAM: u64 = u64::MAX;

/// The shuffle of `items` that `seed` and `stream` determine.
pub(crate) fn permutation(
    items: impl IntoIterator<Item = u32>,
    seed: u64,
    stream: u64,
) -> Vec<u32> {
    let mut order: Vec<u32> = items.into_iter().collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    order.shuffle(&mut rng);
    order
}

/// Images of one size, all in memory.
pub(crate) struct InMemory {
    /// (channels, height, width)
    pub(crate) size: (usize, usize, usize),
    /// (n, height, width, channels)
    pub(crate) pixels: Vec<u8>,
    /// One for each image, each below the number of class names.
    pub(crate) labels: Vec<u8>,
}

impl Source for InMemory {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn label(&self, i: usize) -> u32 {
        u32::from(self.labels[i])
    }

    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        if i >= self.len() {
            return Err(no_image(i, self.len()));
        }
        let (channels, height, width) = self.size;
        let values = channels * height * width;
        Ok(RawImage {
            width,
            height,
            channels,
            pixels: self.pixels[i * values..(i + 1) * values].to_vec(),
        })
    }

    fn native_size(&self) -> Option<(usize, usize, usize)> {
        Some(self.size)
    }
}

/// Labels are below this: a larger number is a mistake that would cost memory.
pub(crate) const MOST_CLASSES: u64 = 1_000_000;

/// A number as a label, if it can be one.
pub(crate) fn check_label(label: u64) -> Option<u32> {
    (label < MOST_CLASSES).then_some(label as u32)
}

/// The names of classes that have only numbers, from 0 to `highest`.
pub(crate) fn numbered(highest: u32) -> Vec<String> {
    (0..=highest).map(|k| k.to_string()).collect()
}

/// The `given` class names, or numbers up to the label `highest` if there are none. In errors, `by` says who gave them.
pub(crate) fn named(given: Vec<String>, highest: u32, by: &str) -> Result<Vec<String>, String> {
    match given.len() {
        0 => Ok(numbered(highest)),
        n if n <= highest as usize => Err(format!(
            "has a label {highest}, but {by} {n} classes; expected labels from 0"
        )),
        _ => Ok(given),
    }
}

pub(crate) fn no_image(i: usize, len: usize) -> DataError {
    DataError::Settings(format!("image {i} does not exist: the source has {len}"))
}

/// Opens a regular file: a pipe would block until something writes to it, and a device may never end.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() && !about.is_dir() {
        return Err(io::Error::other(NO_FILE));
    }
    File::open(path)
}

/// The error of a file that has no end.
pub(crate) const NO_FILE: &str = "a pipe, a socket or a device; expected a regular file";

/// The last part of a path, which `.` and `data/..` have only once they are resolved.
pub(crate) fn name_of(path: &Path) -> Option<String> {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = resolved.file_name()?;
    Some(name.to_string_lossy().into_owned())
}

/// All bytes of a file that is not longer than `at_most`.
pub(crate) fn read_whole(
    path: &Path,
    at_most: u64,
    fail: impl Fn(io::Error) -> DataError + Copy,
) -> Result<Vec<u8>, DataError> {
    let mut file = open_file(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    if length > at_most {
        let problem = format!("is {length} bytes long; expected at most {at_most}");
        return Err(DataError::content(path, problem));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_subset_is_a_prefix_of_a_permutation(len in 0usize..200, limit in 0usize..250, seed: u64) {
            let all = subset(len, None, seed);
            let mut sorted = all.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..len as u32).collect::<Vec<_>>());
            prop_assert_eq!(&subset(len, Some(limit), seed)[..], &all[..limit.min(len)]);
        }
    }

    #[test]
    fn another_seed_gives_another_subset() {
        assert_ne!(subset(100, Some(10), 0), subset(100, Some(10), 1));
    }
}
