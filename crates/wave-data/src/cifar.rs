//! CIFAR-10 and CIFAR-100 in their binary version: a label (CIFAR-100: a coarse one, then the fine
//! one, which is used), then 32 x 32 red, green and blue values.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::{InMemory, read_whole};
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
    classes: usize,
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
    KINDS
        .iter()
        .find(|kind| dir.join(kind.train[0]).is_file() || dir.join(kind.test).is_file())
}

/// Opens the binary files in `dir`; of CIFAR-10's five training files, all that exist.
pub(crate) fn open(dir: &Path, name: String, kind: &Kind) -> Result<Dataset, DataError> {
    let train: Vec<PathBuf> = kind.train.iter().map(|file| dir.join(file)).collect();
    let there = |file: &&PathBuf| *file == &train[0] || file.is_file();
    let train: Vec<&PathBuf> = train.iter().filter(there).collect();
    let test = dir.join(kind.test);
    let class_names = read_names(&dir.join(kind.names), kind.classes);
    let read = |files: &[&PathBuf]| -> Result<InMemory, DataError> {
        let mut images = InMemory {
            width: SIDE,
            height: SIDE,
            channels: 3,
            pixels: Vec::new(),
            labels: Vec::new(),
            class_names: class_names.clone(),
        };
        for file in files {
            let bytes = read_whole(file, MAX_BYTES)?;
            let parsed = parse(&bytes, kind.labels, kind.classes, &mut images);
            parsed.map_err(|problem| DataError::content(file, problem))?;
        }
        Ok(images)
    };
    Ok(Dataset::new(name, read(&train)?, read(&[&test])?))
}

/// Appends the images of a file.
fn parse(bytes: &[u8], labels: usize, classes: usize, to: &mut InMemory) -> Result<(), String> {
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
        if usize::from(label) >= classes {
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
fn read_names(path: &Path, classes: usize) -> Arc<[String]> {
    let text = read_whole(path, MAX_NAMES_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let names: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    if names.len() == classes {
        names.into()
    } else {
        (0..classes).map(|k| k.to_string()).collect()
    }
}

#[cfg(test)]
#[path = "cifar_tests.rs"]
mod tests;
