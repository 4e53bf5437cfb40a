//! CIFAR-10 and CIFAR-100 in their binary version: a label (CIFAR-100: a coarse one, then the fine
//! one, which is used), then 32 x 32 red, green and blue values.

use std::path::Path;

use crate::source::{InMemory, numbered, read_whole};
use crate::{DataError, Dataset};

const SIDE: usize = 32;
const VALUES: usize = 3 * SIDE * SIDE;

/// Many times the size of the data set; a longer file is not CIFAR.
const MAX_BYTES: u64 = 4 << 30;

/// Enough for a hundred names.
const MAX_NAMES_BYTES: u64 = 1 << 20;

/// The differences between the two data sets.
pub(crate) struct Kind {
    train: &'static [&'static str],
    test: &'static str,
    names: &'static str,
    labels: usize,
    classes: u32,
}

const KINDS: [Kind; 2] = [
    Kind {
        train: &[
            "data_batch_1.bin",
            "data_batch_2.bin",
            "data_batch_3.bin",
            "data_batch_4.bin",
            "data_batch_5.bin",
        ],
        test: "test_batch.bin",
        names: "batches.meta.txt",
        labels: 1,
        classes: 10,
    },
    Kind {
        train: &["train.bin"],
        test: "test.bin",
        names: "fine_label_names.txt",
        labels: 2,
        classes: 100,
    },
];

/// The data set of which `dir` holds at least one file, by CIFAR's file names.
pub(crate) fn kind(dir: &Path) -> Option<&'static Kind> {
    let is_there = |file: &str| dir.join(file).is_file();
    let mut kinds = KINDS.iter();
    kinds.find(|kind| is_there(kind.train[0]) || is_there(kind.test))
}

/// Opens the binary files in `dir`; of CIFAR-10's five training files, all that exist.
pub(crate) fn open(dir: &Path, name: String, kind: &Kind) -> Result<Dataset, DataError> {
    let class_names = read_names(&dir.join(kind.names), kind.classes);
    let read = |files: &[&str]| -> Result<InMemory, DataError> {
        let mut images = InMemory {
            size: (3, SIDE, SIDE),
            pixels: Vec::new(),
            labels: Vec::new(),
        };
        for (i, file) in files.iter().enumerate() {
            let path = dir.join(file);
            if i == 0 || path.is_file() {
                let bytes = read_whole(&path, MAX_BYTES, DataError::open(&path))?;
                let parsed = parse(&bytes, kind.labels, kind.classes, &mut images);
                parsed.map_err(|problem| DataError::content(&path, problem))?;
            }
        }
        Ok(images)
    };
    let (train, test) = (read(kind.train)?, read(&[kind.test])?);
    Ok(Dataset::new(name, class_names, train, test))
}

/// Appends the images of a file.
fn parse(bytes: &[u8], labels: usize, classes: u32, to: &mut InMemory) -> Result<(), String> {
    let record = labels + VALUES;
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        return Err(format!(
            "is {} bytes long; expected a multiple of {record}, a record's length",
            bytes.len()
        ));
    }
    to.pixels.reserve(bytes.len() / record * VALUES);
    for (i, record) in bytes.chunks_exact(record).enumerate() {
        let label = record[labels - 1];
        if u32::from(label) >= classes {
            return Err(format!(
                "record {i} has the label {label}; expected less than {classes}"
            ));
        }
        to.labels.push(label);
        let planes = &record[labels..]; // (3, 32, 32)
        let area = SIDE * SIDE;
        let pixels = (0..area).flat_map(|k| [0, 1, 2].map(|c| planes[c * area + k]));
        to.pixels.extend(pixels); // (32, 32, 3)
    }
    Ok(())
}

/// Class names, one per line, or numbers if there is no such file.
fn read_names(path: &Path, classes: u32) -> Vec<String> {
    let text = read_whole(path, MAX_NAMES_BYTES, DataError::open(path)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let names: Vec<String> = lines.map(str::to_owned).collect();
    match names.len() == classes as usize {
        true => names,
        false => numbered(classes - 1),
    }
}

#[cfg(test)]
#[path = "cifar_tests.rs"]
mod tests;
