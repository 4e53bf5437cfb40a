//! Images to batches: sources, decoding, augmentation, loading.
//!
//! 1. [`open`] turns a specification, the value of `--data`, into a [`Dataset`]: a [`Source`] of training
//!    images and one of test images, 8-bit pixels with labels.
//! 2. [`subset`] chooses the images to use.
//! 3. An [`Augment`] varies an image from view to view; a [`Transform`] resizes, crops and normalises it.
//! 4. A [`Loader`] makes the training [`Batch`] of any step and prefetches a few on other threads.
//! 5. [`evaluation_batches`] goes through a source once, in order and without augmentation.
//!
//! A training batch is a pure function of the data, the settings, a seed and the step's number. Threads
//! decide when it is ready, never its content, so a run can stop at any step and resume bit for bit.
//!
//! ```
//! use wave_data::{Augment, Loader, Transform};
//!
//! # fn main() -> Result<(), wave_data::DataError> {
//! let data = wave_data::open("shapes")?;
//! let images = wave_data::subset(data.train.len(), Some(256), 0);
//! let transform = Transform::new(28, vec![0.5], vec![0.25]);
//! let augment = Augment { flip: true, ..Augment::NONE };
//! let loader = Loader::train(data.train, images, transform, augment, 64, None, 0)?;
//! assert_eq!(loader.steps_per_epoch(), 4);
//!
//! let batch = loader.batch(0)?;
//! assert_eq!(batch.images.len(), 64 * 28 * 28); // (b, 1, h, w)
//! assert!(batch.labels.iter().all(|label| *label < 8));
//! # Ok(())
//! # }
//! ```
//!
//! Deliberately absent: tensors (a batch is plain memory), downloads, and any state that a resumed run
//! would need.

mod augment;
mod batch;
mod broken;
mod cache;
mod check;
mod cifar;
mod control;
mod decode;
mod error;
mod folder;
mod guard;
mod idx;
mod jpeg;
mod labels;
mod listing;
mod loader;
mod pack;
#[cfg(feature = "parquet")]
mod parquet;
mod pattern;
mod pipeline;
mod prefetch;
mod raw_image;
mod resample;
mod shapes;
mod source;
mod tar;
#[cfg(test)]
mod testing;
mod tokenizer;
mod transform;
mod webdataset;

use std::path::{Path, PathBuf};

pub use augment::Augment;
pub use augment::crop::ResizedCrop;
pub use augment::mix::Mixing;
pub use augment::rand_augment::RandAugment;
pub use batch::{Batch, Mix};
pub use broken::{BrokenImage, BrokenImages};
pub use cache::directory as cache_directory;
pub use check::{Report, check};
pub use control::CONTROLS;
pub use decode::decode;
pub use error::DataError;
pub use labels::{METADATA, label_files};
pub use listing::{IMAGE_EXTENSIONS, image_files};
pub use loader::Loader;
pub use pack::{Packed, pack};
pub use pipeline::evaluation_batches;
pub use raw_image::RawImage;
pub use resample::Interpolation;
pub use source::{Dataset, PassedOver, Source, common_size, subset};
pub use tokenizer::Tokenizer;
pub use transform::{CropMode, CropOffset, Transform, measure_normalisation};

/// True if this build reads parquet files.
pub const PARQUET: bool = cfg!(feature = "parquet");

/// Environment variable with the directory of Fashion-MNIST's four IDX files, instead of [`FASHION_MNIST_DIR`].
const FASHION_MNIST_VARIABLE: &str = "WAVE_FASHION_MNIST";

/// The directory of Debian's package `dataset-fashion-mnist`.
const FASHION_MNIST_DIR: &str = "/usr/share/datasets/fashion-mnist";

const ACCEPTED: &str = "expected `fashion-mnist`, `shapes` (procedural, built in), or a directory: \
    IDX files ({train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz), CIFAR's binary \
    files, tar shards (train-*.tar, val-*.tar), or an ImageFolder (train/CLASS/*.jpg and the same \
    classes in val/, validation/ or test/; or CLASS/ alone, which is split; to test only, val/CLASS/ \
    alone), or unlabelled images, in it or in its train/; or files: a/{00000..00099}.tar or \
    a/*.parquet, also as TRAIN,TEST; any of them may follow inverted:, rotated: or shuffled:";

/// Opens the data set that `spec` names, the value of `--data`.
///
/// - `fashion-mnist`: the files of Debian's package `dataset-fashion-mnist`, or of the directory that
///   the environment variable `WAVE_FASHION_MNIST` names
/// - `shapes`: eight kinds of procedurally generated figures, 6,000 for training and 1,000 for testing
/// - a directory with IDX files, with the binary files of CIFAR-10 or CIFAR-100, or with tar shards
///   (WebDataset): the ones that its `_info.json` names, or `train*.tar` and `val*.tar` or `test*.tar`
/// - an ImageFolder: `train/CLASS/*.jpg` (or further [`IMAGE_EXTENSIONS`], and in folders below) and the
///   same classes in `val/`, `validation/` or `test/`; or labels in `val.txt` or a [`METADATA`] table
///   instead of folders; or one split alone; or `CLASS/*.jpg` alone: [`unsplit`](Dataset::unsplit)
/// - a directory with images, in it or in `train/`: unlabelled, without classes and test images
/// - tar shards by pattern, `a/{00000..00099}.tar`; or `*.parquet` in Hugging Face's layout for images, in
///   builds with the feature `parquet`. `TRAIN,TEST` names both splits. With one pattern, the names of
///   the files say which are for testing (`val`, `validation` or `test` is a word of them)
/// - `inverted:SPEC`, `rotated:SPEC` or `shuffled:SPEC`: another data set with dark and light
///   exchanged, a quarter turn to the left, or all images' pixels permuted in the same way
///
/// Nothing is ever downloaded. IDX and CIFAR files are read whole; of image folders only the names,
/// of shards only the images' offsets. Indices of large data sets are cached, in
/// `$WAVE_CACHE`, `$XDG_CACHE_HOME/wave` or `~/.cache/wave`; an empty `WAVE_CACHE` turns it off.
///
/// # Errors
/// When `spec` is none of these, or names missing, incomplete or malformed data. All are bad requests
/// ([`DataError::is_request`]).
pub fn open(spec: &str) -> Result<Dataset, DataError> {
    if let Some((kind, of)) = control::split(spec) {
        return control::open(spec, kind, of);
    }
    let ends_in = |extension: &str| spec.to_ascii_lowercase().ends_with(extension);
    match spec {
        "shapes" => Ok(shapes::open()),
        "fashion-mnist" => {
            let named = std::env::var_os(FASHION_MNIST_VARIABLE).map(PathBuf::from);
            open_fashion_mnist(named.as_deref())
        }
        _ if Path::new(spec).is_dir() => open_directory(spec),
        _ if ends_in(".tar") => webdataset::open_pattern(spec),
        #[cfg(feature = "parquet")]
        _ if ends_in(".parquet") => parquet::open_pattern(spec),
        #[cfg(not(feature = "parquet"))]
        _ if ends_in(".parquet") => Err(DataError::Settings(format!(
            "`{spec}`: this program was built without parquet; build it with `--features parquet`, or \
             convert the data to tar shards or folders"
        ))),
        _ => open_directory(spec),
    }
}

fn open_fashion_mnist(named: Option<&Path>) -> Result<Dataset, DataError> {
    let dir = named.unwrap_or(Path::new(FASHION_MNIST_DIR));
    if !dir.is_dir() {
        let blame = match named {
            Some(_) => format!("which the environment variable {FASHION_MNIST_VARIABLE} names"),
            None => "where Debian's package `dataset-fashion-mnist` installs it".to_owned(),
        };
        return Err(DataError::Settings(format!(
            "Fashion-MNIST is not in {}, {blame}: install it (`apt-get install \
             dataset-fashion-mnist`), or set {FASHION_MNIST_VARIABLE} to the directory of its four \
             IDX files, or use other data, such as `shapes`, which is built in",
            dir.display()
        )));
    }
    const CLASSES: &str =
        "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot";
    let classes = CLASSES.split(',').map(str::to_owned).collect();
    idx::open(dir, "fashion-mnist".to_owned(), classes)
}

fn open_directory(spec: &str) -> Result<Dataset, DataError> {
    let dir = Path::new(spec);
    if !dir.is_dir() {
        let problem = match dir.exists() {
            true => "is a file, not a data set",
            false => "is neither a data set nor a directory",
        };
        return Err(DataError::Settings(format!(
            "`{spec}` {problem}: {ACCEPTED}"
        )));
    }
    let name = source::name_of(dir).unwrap_or_else(|| spec.to_owned());
    if idx::is_idx(dir) {
        return idx::open(dir, name, Vec::new());
    }
    if let Some(kind) = cifar::kind(dir) {
        return cifar::open(dir, name, kind);
    }
    if webdataset::is_shards(dir) {
        return webdataset::open_directory(dir, name);
    }
    folder::open(dir, name)?.ok_or_else(|| {
        let problem = format!(
            "holds neither IDX, CIFAR nor tar files, nor a folder `train` or `val`; {ACCEPTED}"
        );
        DataError::content(dir, problem)
    })
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
