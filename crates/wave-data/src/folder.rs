//! A folder for each class: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, or one of them.
//!
//! Opening reads names only, and those of large folders from a cache. Files are read and decoded when
//! their image is asked for. A `val` without folders needs a file of labels (`labels.rs`).
//!
//! Images without folders, in the directory itself or in its `train/`, have no labels: a source
//! without classes, for what is learnt from images alone.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::decode::MAX_FILE_BYTES;
use crate::source::{Empty, no_image, open_file};
use crate::{DataError, Dataset, Encoded, RawImage, Source, cache, labels, listing};

/// The label of an image that has none: beyond all classes.
const UNLABELLED: u32 = u32::MAX;

/// Folders of test images; the first that exists is taken.
const TEST: [&str; 3] = ["val", "validation", "test"];

/// Whether `dir` has a folder `train`, or one of test images.
pub(crate) fn is_folder(dir: &Path) -> bool {
    dir.join("train").exists() || test_dir(dir).is_some()
}

fn test_dir(dir: &Path) -> Option<PathBuf> {
    let mut candidates = TEST.iter().map(|part| dir.join(part));
    candidates.find(|path| path.exists())
}

/// Opens `dir/train` and `dir/val`, `dir/validation` or `dir/test`. Classes are numbered in the order of
/// their names.
pub(crate) fn open(dir: &Path, name: String) -> Result<Dataset, DataError> {
    open_cached(dir, name, cache::directory().as_deref())
}

/// Opens `dir` if there is a folder for each class in it, each with images: images to test on, since
/// nothing says that they are to be trained on.
pub(crate) fn open_classes(dir: &Path, name: String) -> Result<Option<Dataset>, DataError> {
    let classes = listing::folders(dir)?;
    for class in &classes {
        if listing::image_names(&dir.join(class))?.is_empty() {
            return Ok(None);
        }
    }
    // One folder is rather where the images are than a class.
    if classes.len() < 2 {
        return Ok(None);
    }
    test_only(dir, name, cache::directory().as_deref()).map(Some)
}

/// A folder for each class, and nothing to train on.
fn test_only(dir: &Path, name: String, cache: Option<&Path>) -> Result<Dataset, DataError> {
    let classes = listing::folders(dir)?;
    if classes.is_empty() {
        return Err(no_folder(dir));
    }
    let names: Arc<[String]> = classes.into();
    Ok(Dataset {
        name,
        test: Arc::new(list_images(dir, names.clone(), cache)?),
        train: Arc::new(Empty(names)),
    })
}

/// Opens `dir` if there are images, and no folders, directly in it: images without labels.
pub(crate) fn open_images(dir: &Path, name: String) -> Result<Option<Dataset>, DataError> {
    if !listing::folders(dir)?.is_empty() {
        return Ok(None);
    }
    Ok(unlabelled(dir)?.map(|train| Dataset {
        name,
        train: Arc::new(train),
        test: Arc::new(Empty(Arc::new([]))),
    }))
}

/// The images of a directory, as images without labels, if there are any.
fn unlabelled(dir: &Path) -> Result<Option<Folder>, DataError> {
    let mut folder = Folder::new(Arc::new([]));
    folder.dirs.push(dir.to_owned());
    let names = listing::image_names(dir)?;
    names
        .iter()
        .try_for_each(|name| folder.push(name, UNLABELLED))?;
    Ok((!folder.is_empty()).then_some(folder))
}

fn open_cached(dir: &Path, name: String, cache: Option<&Path>) -> Result<Dataset, DataError> {
    let train_dir = dir.join("train");
    if train_dir.is_dir()
        && let Some(data) = open_images(&train_dir, name.clone())?
    {
        return Ok(data);
    }
    let test_dir = test_dir(dir).ok_or_else(|| {
        DataError::layout(
            dir,
            "has a folder `train`, but neither `val` nor `test`; expected one of them with the \
             same classes",
        )
    })?;
    if !train_dir.exists() {
        return test_only(&test_dir, name, cache);
    }
    let classes = listing::folders(&train_dir)?;
    if classes.is_empty() {
        return Err(no_folder(&train_dir));
    }
    let names: Arc<[String]> = classes.clone().into();
    let train = list_images(&train_dir, names.clone(), cache)?;
    let test_classes = listing::folders(&test_dir)?;
    let test = match labels::find(&test_dir) {
        Some(file) if test_classes.is_empty() => flat(&test_dir, &file, names)?,
        _ => {
            same_classes((&classes, &train_dir), (&test_classes, &test_dir))?;
            list_images(&test_dir, names, cache)?
        }
    };
    Ok(Dataset {
        name,
        train: Arc::new(train),
        test: Arc::new(test),
    })
}

type Classes<'a> = (&'a [String], &'a Path);

fn same_classes(train: Classes, test: Classes) -> Result<(), DataError> {
    if test.0.is_empty() {
        return Err(no_folder(test.1));
    }
    for ((here, _), (other, there)) in [(train, test), (test, train)] {
        if let Some(missing) = here
            .iter()
            .find(|class| other.binary_search(class).is_err())
        {
            return Err(DataError::layout(
                there,
                format!(
                    "has no folder `{missing}`; expected the same classes for training and testing"
                ),
            ));
        }
    }
    Ok(())
}

fn no_folder(part: &Path) -> DataError {
    DataError::layout(
        part,
        "has no folder in it; expected one for each class (or, of `val`, images and a file of \
         labels beside it: val.txt, val_labels.txt or val.csv, with a name and a class a line)",
    )
}

/// Images in files. A million names take some 40 MB.
pub(crate) struct Folder {
    /// Directories that hold images.
    dirs: Vec<PathBuf>,
    /// File names, one after the other.
    names: String,
    /// The end of each name.
    ends: Vec<u32>,
    /// Which directory each image is in.
    places: Vec<u32>,
    labels: Vec<u32>,
    class_names: Arc<[String]>,
}

impl Folder {
    fn new(class_names: Arc<[String]>) -> Self {
        Self {
            dirs: Vec::new(),
            names: String::new(),
            ends: Vec::new(),
            places: Vec::new(),
            labels: Vec::new(),
            class_names,
        }
    }

    fn push(&mut self, name: &str, label: u32) -> Result<(), DataError> {
        self.names.push_str(name);
        let end = u32::try_from(self.names.len());
        self.ends.push(end.map_err(|_| {
            let problem = "holds images whose names take more than 4 GB";
            DataError::layout(&self.dirs[0], problem)
        })?);
        self.places.push(self.dirs.len() as u32 - 1);
        self.labels.push(label);
        Ok(())
    }

    fn path(&self, i: usize) -> Option<PathBuf> {
        let end = *self.ends.get(i)? as usize;
        let start = i
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        Some(self.dirs[self.places[i] as usize].join(&self.names[start..end]))
    }

    fn file(&self, i: usize) -> Result<Encoded, DataError> {
        let path = self.path(i).ok_or_else(|| no_image(i, self.len()))?;
        let read = || {
            let file = open_file(&path)?;
            let length = file.metadata()?.len().min(MAX_FILE_BYTES);
            let mut bytes = Vec::with_capacity(length as usize + 1);
            // One byte more than is allowed is enough to refuse it.
            file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Encoded {
                bytes,
                name: path.display().to_string(),
            }),
            Err(source) => Err(DataError::Read { path, source }),
        }
    }
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn label(&self, i: usize) -> u32 {
        self.labels[i]
    }

    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        self.file(i)?.decode()
    }

    fn encoded(&self, i: usize) -> Result<Option<Encoded>, DataError> {
        self.file(i).map(Some)
    }

    fn file_size(&self, i: usize) -> Option<u64> {
        Some(self.path(i)?.metadata().ok()?.len())
    }

    fn name(&self, i: usize) -> String {
        self.path(i)
            .map_or_else(|| format!("image {i}"), |path| path.display().to_string())
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn native_size(&self) -> Option<(usize, usize, usize)> {
        None
    }
}

/// The images in the folders of all classes.
fn list_images(
    part: &Path,
    classes: Arc<[String]>,
    cache: Option<&Path>,
) -> Result<Folder, DataError> {
    let mut folder = Folder::new(classes.clone());
    let listed = listing::images(part, &classes, cache)?;
    for ((label, class), names) in (0..).zip(&*classes).zip(listed) {
        let class_dir = part.join(class);
        if names.is_empty() {
            return Err(DataError::layout(
                &class_dir,
                format!(
                    "holds no image; expected at least one .{}",
                    listing::EXTENSIONS.join(", .")
                ),
            ));
        }
        folder.dirs.push(class_dir);
        names.iter().try_for_each(|name| folder.push(name, label))?;
    }
    Ok(folder)
}

/// A directory of images whose labels are in a file.
fn flat(part: &Path, labels_file: &Path, class_names: Arc<[String]>) -> Result<Folder, DataError> {
    let names = listing::image_names(part)?;
    let labels = labels::read(labels_file, &names, &class_names)?;
    let mut folder = Folder::new(class_names);
    folder.dirs.push(part.to_owned());
    for (name, label) in names.iter().zip(labels) {
        folder.push(name, label)?;
    }
    if folder.is_empty() {
        return Err(DataError::layout(part, "holds no image"));
    }
    Ok(folder)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
