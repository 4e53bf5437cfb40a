//! A folder for each class: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, or one of them. Images may lie in
//! folders below that of their class.
//!
//! Opening reads names only; names of large folders are cached. Files are read and decoded when their image
//! is requested. Without class folders the labels come from a table (`labels.rs`).
//!
//! With neither, images have no labels: a source without classes, for training on images alone.

use std::io::Read;
use std::iter::repeat;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::decode::MAX_FILE_BYTES;
use crate::listing::is_part;
use crate::source::{PassedOver, open_file};
use crate::{DataError, Dataset, Source, cache, labels, listing};

/// The label of an image that has none: beyond all classes.
const UNLABELLED: u32 = u32::MAX;

/// Folders of test images; the first that exists is used.
const TEST: [&str; 3] = ["val", "validation", "test"];

/// True if `dir` has a folder `train`, or one of test images.
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
    let (train_dir, test_dir) = (dir.join("train"), test_dir(dir));
    if !train_dir.exists() {
        let test_dir = test_dir.unwrap_or(train_dir);
        let mut test = part(&test_dir, None)?.ok_or_else(|| no_folder(&test_dir))?;
        test.passed_over.append(&beside(dir, &[&test_dir])?);
        return Ok(dataset(name, test.without_images(), test));
    }
    let train = match part(&train_dir, None)? {
        Some(train) => Some(train),
        None => walked(&train_dir)?,
    };
    let mut train = train.ok_or_else(|| no_folder(&train_dir))?;
    // Without labels there is nothing to test.
    let unlabelled = train.class_names.is_empty();
    let mut test = None;
    if let Some(test_dir) = test_dir.filter(|_| !unlabelled) {
        let found = part(&test_dir, Some((&train, &train_dir)))?;
        // The test images of competitions come without their labels.
        let competition = |dir: &Path| -> Result<bool, DataError> {
            Ok(dir.ends_with("test") && !listing::entries(dir)?.images.is_empty())
        };
        if found.is_some() || !competition(&test_dir)? {
            test = Some((found.ok_or_else(|| no_folder(&test_dir))?, test_dir));
        }
    }
    if let Some((test, test_dir)) = test {
        let others = beside(dir, &[&train_dir, &test_dir])?;
        train.passed_over.append(&others);
        return Ok(dataset(name, train, test));
    }
    let folders = listing::entries(dir)?.folders;
    let other = |name: &&String| is_part(name) && !["train", "test"].contains(&name.as_str());
    if let Some(other) = folders.iter().find(other).filter(|_| !unlabelled) {
        let problem = format!(
            "has folders `train` and `{other}`, but neither `val` nor `test`; name the folder of \
             test images `val`"
        );
        return Err(DataError::content(dir, problem));
    }
    train.passed_over.append(&beside(dir, &[&train_dir])?);
    Ok(train.alone(name, !unlabelled))
}

/// Both splits, and the files that neither reads.
fn dataset(name: String, train: Folder, test: Folder) -> Dataset {
    let mut passed_over = train.passed_over.clone();
    passed_over.append(&test.passed_over);
    Dataset {
        passed_over,
        ..Dataset::new(name, train, test)
    }
}

/// Opens `dir` if its folders are classes, each with images, or a table in it names classes. A directory
/// named like test images is for testing; any other is unsplit.
pub(crate) fn open_classes(dir: &Path, name: String) -> Result<Option<Dataset>, DataError> {
    let found = listing::entries(dir)?;
    let folders = &found.folders;
    if let Some(part) = folders.iter().find(|name| is_part(name)) {
        let problem = format!(
            "has a folder `{part}`, but no `train`, `val` or `test`; name the folders of training \
             and test images `train` and `val`"
        );
        return Err(DataError::content(dir, problem));
    }
    // A single folder is more likely a container than a class; so is the only one with images, next to images.
    if labels::metadata(dir).is_none() {
        let mut classes = folders.len();
        if classes > 1 && !found.images.is_empty() {
            let any = |folder: &String| Ok(!listing::walk(&dir.join(folder))?.names.is_empty());
            let with_images: Vec<bool> = folders.iter().map(any).collect::<Result<_, _>>()?;
            classes = with_images.into_iter().filter(|any| *any).count();
        }
        if classes < 2 {
            return Ok(None);
        }
    }
    let Some(images) = part(dir, None)? else {
        return Ok(None);
    };
    let is_test = TEST.iter().any(|part| name.eq_ignore_ascii_case(part));
    Ok(Some(match is_test {
        true => dataset(name, images.without_images(), images),
        false => images.alone(name, true),
    }))
}

/// Opens `dir` as unlabelled images, if there are images in it or below.
pub(crate) fn open_images(dir: &Path, name: String) -> Result<Option<Dataset>, DataError> {
    Ok(walked(dir)?.map(|images| images.alone(name, false)))
}

/// All images of a directory, unlabelled, if there are any.
fn walked(dir: &Path) -> Result<Option<Folder>, DataError> {
    let listed = listing::walk(dir)?;
    let mut folder = Folder {
        passed_over: listed.passed_over,
        ..Folder::default()
    };
    folder.add(dir.to_owned(), &listed.names, repeat(UNLABELLED))?;
    Ok((!folder.is_empty()).then_some(folder))
}

/// The labelled images of a split of a data set, if it has class folders or a table; a test split takes
/// the classes of the training split.
fn part(dir: &Path, train: Option<(&Folder, &Path)>) -> Result<Option<Folder>, DataError> {
    let found = listing::entries(dir)?;
    if found.folders.is_empty() {
        let table = match train {
            Some(_) => labels::find(dir),
            None => labels::metadata(dir),
        };
        let Some(table) = table else {
            return Ok(None);
        };
        let names = &found.images;
        let known = train.map(|(train, _)| train.class_names.clone());
        let (class_names, labels) = labels::read(&table, dir, names, known)?;
        let own = table.file_name().and_then(|name| name.to_str());
        let mut images = Folder {
            class_names,
            passed_over: found.strays(dir, &[own.unwrap_or_default()]),
            ..Folder::default()
        };
        images.add(dir.to_owned(), names, labels)?;
        if images.is_empty() {
            return Err(DataError::content(dir, "holds no image"));
        }
        return Ok(Some(images));
    }
    if let Some((train, train_dir)) = train {
        same_classes((&train.class_names, train_dir), (&found.folders, dir))?;
    }
    let strays = found.strays(dir, &[]);
    let mut images = list_images(dir, found.folders.into())?;
    images.passed_over.append(&strays);
    images.passed_over.add(dir, &found.images);
    Ok(Some(images))
}

/// Files and folders in `dir` other than the splits that are read and the label tables.
fn beside(dir: &Path, read: &[&PathBuf]) -> Result<PassedOver, DataError> {
    let tables: Vec<PathBuf> = read.iter().filter_map(|part| labels::find(part)).collect();
    let tables = tables
        .iter()
        .filter_map(|table| table.file_name()?.to_str());
    let found = listing::entries(dir)?;
    let mut passed_over = found.strays(dir, &tables.collect::<Vec<_>>());
    let others = found.folders.iter().chain(&found.images);
    passed_over.add(dir, others.filter(|name| !read.contains(&&dir.join(name))));
    Ok(passed_over)
}

type Classes<'a> = (&'a [String], &'a Path);

fn same_classes(train: Classes, test: Classes) -> Result<(), DataError> {
    for ((here, _), (other, there)) in [(train, test), (test, train)] {
        let is_missing = |class: &&String| other.binary_search(class).is_err();
        if let Some(missing) = here.iter().find(is_missing) {
            let problem = format!(
                "has no folder `{missing}`; expected the same classes for training and testing"
            );
            return Err(DataError::content(there, problem));
        }
    }
    Ok(())
}

fn no_folder(part: &Path) -> DataError {
    DataError::content(
        part,
        "has no subfolders; expected one for each class (or images and a file of labels: \
         metadata.csv in it or, for `val`, val.txt, val_labels.txt or val.csv beside it, with a \
         name and a class per line)",
    )
}

/// Images in files. A million names take some 40 MB.
#[derive(Default)]
pub(crate) struct Folder {
    /// Directories that hold images.
    dirs: Vec<PathBuf>,
    /// File names, one after the other.
    names: String,
    /// The end of each name.
    ends: Vec<u32>,
    /// Index of each image's directory.
    places: Vec<u32>,
    labels: Vec<u32>,
    class_names: Arc<[String]>,
    passed_over: PassedOver,
}

impl Folder {
    /// Adds images of a directory.
    fn add(
        &mut self,
        dir: PathBuf,
        names: &[String],
        labels: impl IntoIterator<Item = u32>,
    ) -> Result<(), DataError> {
        self.dirs.push(dir);
        for (name, label) in names.iter().zip(labels) {
            self.names.push_str(name);
            let end = u32::try_from(self.names.len());
            self.ends.push(end.map_err(|_| {
                let problem = "holds images whose names take more than 4 GB";
                DataError::content(&self.dirs[0], problem)
            })?);
            self.places.push(self.dirs.len() as u32 - 1);
            self.labels.push(label);
        }
        Ok(())
    }

    fn path(&self, i: usize) -> PathBuf {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        let name = &self.names[start as usize..self.ends[i] as usize];
        self.dirs[self.places[i] as usize].join(name)
    }

    /// The same classes without an image.
    fn without_images(&self) -> Folder {
        Folder {
            class_names: self.class_names.clone(),
            ..Folder::default()
        }
    }

    /// A data set without test images, which may have to be split.
    fn alone(self, name: String, unsplit: bool) -> Dataset {
        let test = self.without_images();
        Dataset {
            unsplit,
            ..dataset(name, self, test)
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

    fn encoded(&self, i: usize) -> Result<Option<Vec<u8>>, DataError> {
        let path = self.path(i);
        let read = || {
            let file = open_file(&path)?;
            let length = file.metadata()?.len().min(MAX_FILE_BYTES);
            let mut bytes = Vec::with_capacity(length as usize + 1);
            // One byte over the limit is enough to reject it.
            file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map(Some).map_err(DataError::read(&path))
    }

    fn file_size(&self, i: usize) -> Option<u64> {
        Some(self.path(i).metadata().ok()?.len())
    }

    fn modified(&self, i: usize) -> Option<SystemTime> {
        self.path(i).metadata().ok()?.modified().ok()
    }

    fn name(&self, i: usize) -> String {
        self.path(i).display().to_string()
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }
}

/// The images in the folders of all classes.
fn list_images(part: &Path, classes: Arc<[String]>) -> Result<Folder, DataError> {
    let mut folder = Folder {
        class_names: classes.clone(),
        ..Folder::default()
    };
    let listed = listing::images(part, &classes, cache::directory().as_deref())?;
    for ((label, class), found) in (0..).zip(&*classes).zip(listed) {
        let class_dir = part.join(class);
        if found.names.is_empty() {
            let known = listing::IMAGE_EXTENSIONS.join(", .");
            let problem = format!("holds no image; expected at least one .{known}");
            return Err(DataError::content(&class_dir, problem));
        }
        folder.passed_over.append(&found.passed_over);
        folder.add(class_dir, &found.names, repeat(label))?;
    }
    Ok(folder)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
