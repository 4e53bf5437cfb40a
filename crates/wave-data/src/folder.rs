//! A folder for each class: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`, or one of them. Images may lie in
//! folders below that of their class. Without class folders the labels come from a table (`labels.rs`), or
//! images have none: a source for training on images alone.
//!
//! Opening reads names only; names of large folders are cached.

use std::collections::BTreeSet;
use std::iter::repeat;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::decode::MAX_FILE_BYTES;
use crate::listing::{Entries, TEST, is_part};
use crate::source::{PassedOver, read_whole};
use crate::{DataError, Dataset, Source, cache, labels, listing};

/// The label of an image that has none: beyond all classes.
const UNLABELLED: u32 = u32::MAX;

/// Opens splits, the folders of classes, or unlabelled images in `dir` or below; `None` if there are none.
pub(crate) fn open(dir: &Path, name: String) -> Result<Option<Dataset>, DataError> {
    let mut test_dirs = TEST.iter().map(|part| dir.join(part));
    let test_dir = test_dirs.find(|path| path.exists());
    if test_dir.is_some() || dir.join("train").exists() {
        return open_splits(dir, name, test_dir).map(Some);
    }
    Ok(match open_classes(dir)? {
        Some(images) if TEST.iter().any(|part| name.eq_ignore_ascii_case(part)) => {
            Some(dataset(name, None, Some(images)))
        }
        Some(images) => Some(dataset(name, Some(images), None)),
        None => walked(dir)?.map(|images| dataset(name, Some(images), None)),
    })
}

/// Opens `dir/train` and `test_dir`. Classes are numbered in the order of their names.
fn open_splits(dir: &Path, name: String, test_dir: Option<PathBuf>) -> Result<Dataset, DataError> {
    let train_dir = dir.join("train");
    let (mut read, mut train, mut test) = (Vec::new(), None, None);
    if train_dir.exists() {
        train = match part(&train_dir, None)? {
            Some(labelled) => Some(labelled),
            None => Some(walked(&train_dir)?.ok_or_else(|| no_folder(&train_dir))?),
        };
        read.push(&train_dir);
    }
    let labelled = |folder: &Folder| !folder.class_names.is_empty();
    // Without labels there is nothing to test.
    if let (Some(test_dir), true) = (&test_dir, train.as_ref().is_none_or(labelled)) {
        test = part(test_dir, train.as_ref().map(|train| (train, &*train_dir)))?;
        // The test images of competitions come without their labels.
        let competition = train.is_some() && test_dir.ends_with("test");
        if test.is_some() {
            read.push(test_dir);
        } else if !competition || listing::entries(test_dir)?.images.is_empty() {
            return Err(no_folder(test_dir));
        }
    }
    let found = listing::entries(dir)?;
    if test.is_none() && train.as_ref().is_some_and(labelled) {
        let other = |name: &&String| is_part(name) && !["train", "test"].contains(&name.as_str());
        if let Some(other) = found.folders.iter().find(other) {
            let problem = format!(
                "has folders `train` and `{other}`, but neither `val` nor `test`; name the folder \
                 of test images `val`"
            );
            return Err(DataError::content(dir, problem));
        }
    }
    let tables = [&train, &test].into_iter().flatten();
    let tables = tables.filter_map(|part| part.table.as_ref()?.strip_prefix(dir).ok()?.to_str());
    // Files and folders other than the splits and the label tables that are read.
    let mut beside = found.strays(dir, &tables.collect::<Vec<_>>());
    let others = found.folders.iter().chain(&found.images);
    beside.add(dir, others.filter(|name| !read.contains(&&dir.join(name))));
    let mut dataset = dataset(name, train, test);
    dataset.passed_over.append(&beside);
    Ok(dataset)
}

/// Both splits, and the files that neither reads.
fn dataset(name: String, train: Option<Folder>, test: Option<Folder>) -> Dataset {
    let has_test = test.is_some();
    let (mut train, mut test) = (train.unwrap_or_default(), test.unwrap_or_default());
    let mut passed_over = std::mem::take(&mut train.passed_over);
    passed_over.append(&test.passed_over);
    let mut class_names = std::mem::take(&mut train.class_names);
    if class_names.is_empty() {
        class_names = std::mem::take(&mut test.class_names);
    }
    Dataset {
        unsplit: !has_test && !class_names.is_empty(),
        passed_over,
        ..Dataset::new(name, class_names, train, test)
    }
}

/// The images of `dir` if its folders are classes, each with images, or a table in it names classes.
fn open_classes(dir: &Path) -> Result<Option<Folder>, DataError> {
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
    let mut classes = folders.len();
    if classes > 1 && !found.images.is_empty() {
        let any = |folder: &String| Ok(!listing::walk(&dir.join(folder))?.names.is_empty());
        let with_images: Vec<bool> = folders.iter().map(any).collect::<Result<_, _>>()?;
        classes = with_images.into_iter().filter(|any| *any).count();
    }
    if classes > 1 {
        return part(dir, None);
    }
    match labels::metadata(dir)? {
        Some(table) => tabled(dir, &found, table, None).map(Some),
        None => Ok(None),
    }
}

/// All images of a directory, unlabelled, if there are any.
fn walked(dir: &Path) -> Result<Option<Folder>, DataError> {
    let listed = listing::walk(dir)?;
    let mut folder = Folder {
        passed_over: listed.passed_over,
        ..Folder::default()
    };
    folder.add(dir.to_owned(), &listed.names, repeat(UNLABELLED));
    Ok((!folder.is_empty()).then_some(folder))
}

/// The labelled images of a split, if it has class folders or a table. A test split takes the training split's classes.
fn part(dir: &Path, train: Option<(&Folder, &Path)>) -> Result<Option<Folder>, DataError> {
    let found = listing::entries(dir)?;
    let table = match (&found.folders[..], train) {
        // A single folder is more likely a container than a class.
        (folders @ ([] | [_]), Some((train, _)))
            if folders.iter().all(|name| !train.class_names.contains(name)) =>
        {
            labels::find(dir)?
        }
        ([] | [_], _) => labels::metadata(dir)?,
        _ => None,
    };
    if let Some(table) = table {
        return tabled(dir, &found, table, train.map(|(train, _)| train)).map(Some);
    }
    if found.folders.is_empty() {
        return Ok(None);
    }
    let mut images = Folder {
        passed_over: found.strays(dir, &[]),
        ..Folder::default()
    };
    images.passed_over.add(dir, &found.images);
    let classes = match train {
        // In the order of training: a table's numbers are not sorted as text.
        Some((train, train_dir)) => {
            same_classes((&train.class_names, train_dir), (&found.folders, dir))?;
            train.class_names.clone()
        }
        None => found.folders,
    };
    let listed = listing::images(dir, &classes, cache::directory().as_deref())?;
    for ((label, class), found) in (0..).zip(&classes).zip(listed) {
        let class_dir = dir.join(class);
        if found.names.is_empty() {
            let known = listing::IMAGE_EXTENSIONS.join(", .");
            let problem = format!("holds no image; expected at least one .{known}");
            return Err(DataError::content(&class_dir, problem));
        }
        images.passed_over.append(&found.passed_over);
        images.add(class_dir, &found.names, repeat(label));
    }
    images.class_names = classes;
    Ok(Some(images))
}

/// The images in `dir` and the folders below it, whose labels are in `table`.
fn tabled(
    dir: &Path,
    found: &Entries,
    mut table: labels::Table,
    train: Option<&Folder>,
) -> Result<Folder, DataError> {
    let own = table.file.file_name().and_then(|name| name.to_str());
    let mut passed_over = found.strays(dir, &[own.unwrap_or_default()]);
    let mut names = found.images.clone();
    for folder in &found.folders {
        let listed = listing::walk(&dir.join(folder))?;
        names.extend(listed.names.iter().map(|name| format!("{folder}/{name}")));
        passed_over.append(&listed.passed_over);
    }
    let known = train.map(|train| train.class_names.clone());
    let (class_names, labels) = labels::read(&mut table, dir, &names, known)?;
    let mut images = Folder {
        class_names,
        table: Some(table.file),
        passed_over,
        ..Folder::default()
    };
    images.add(dir.to_owned(), &names, labels);
    match images.is_empty() {
        true => Err(DataError::content(dir, "holds no image")),
        false => Ok(images),
    }
}

fn same_classes(train: (&[String], &Path), test: (&[String], &Path)) -> Result<(), DataError> {
    for ((here, _), (other, there)) in [(train, test), (test, train)] {
        let other: BTreeSet<&String> = other.iter().collect();
        if let Some(missing) = here.iter().find(|class| !other.contains(class)) {
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
    /// The directory of all images, or one for each class.
    dirs: Vec<PathBuf>,
    /// File names, one after the other.
    names: String,
    /// The end of each name.
    ends: Vec<usize>,
    labels: Vec<u32>,
    class_names: Vec<String>,
    /// The table of the labels, if they are not folders.
    table: Option<PathBuf>,
    passed_over: PassedOver,
}

impl Folder {
    fn add(&mut self, dir: PathBuf, names: &[String], labels: impl IntoIterator<Item = u32>) {
        self.dirs.push(dir);
        for (name, label) in names.iter().zip(labels) {
            self.names.push_str(name);
            self.ends.push(self.names.len());
            self.labels.push(label);
        }
    }

    fn path(&self, i: usize) -> PathBuf {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        let name = &self.names[start..self.ends[i]];
        let dir = match &self.dirs[..] {
            [only] => only,
            dirs => &dirs[self.labels[i] as usize],
        };
        dir.join(name)
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
        read_whole(&path, MAX_FILE_BYTES, DataError::read(&path)).map(Some)
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
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
