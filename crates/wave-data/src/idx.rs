//! The IDX format of MNIST and its successors.
//!
//! A file is a header of big-endian 32-bit numbers, then one byte for each value:
//!
//! | file | magic | then |
//! |---|---|---|
//! | images | 0x00000803 | count, rows, columns |
//! | labels | 0x00000801 | count |
//!
//! Either may be compressed with gzip, which is recognised by its content.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::source::{InMemory, named, open_file};
use crate::{DataError, Dataset};

const IMAGES: &str = "images-idx3-ubyte";
const LABELS: &str = "labels-idx1-ubyte";

/// True if `dir` holds at least one file named as in an IDX data set.
pub(crate) fn is_idx(dir: &Path) -> bool {
    let has = |part, kind| find(dir, part, kind).is_ok();
    let mut parts = ["train", "t10k"].into_iter();
    parts.any(|part| has(part, IMAGES) || has(part, LABELS))
}

/// Opens the four IDX files in `dir`. Without `class_names`, classes are named by their numbers.
pub(crate) fn open(
    dir: &Path,
    name: String,
    class_names: Vec<String>,
) -> Result<Dataset, DataError> {
    let train = open_part(dir, "train")?;
    let test = open_part(dir, "t10k")?;
    let ((_, height, width), (_, test_height, test_width)) = (train.size, test.size);
    if train.size != test.size {
        let problem = format!(
            "training images of {height} x {width} pixels, but test images of {test_height} x \
             {test_width}; expected one size"
        );
        return Err(DataError::content(dir, problem));
    }
    let highest = train.labels.iter().chain(&test.labels).max().copied();
    let highest = highest.unwrap_or(0);
    let names = named(class_names, highest.into(), &format!("{name} has"))
        .map_err(|problem| DataError::content(dir, problem))?;
    Ok(Dataset::new(name, names, train, test))
}

fn open_part(dir: &Path, part: &str) -> Result<InMemory, DataError> {
    let images_path = find(dir, part, IMAGES)?;
    let labels_path = find(dir, part, LABELS)?;
    let ([n, height, width], pixels) = read(&images_path)?;
    let ([labelled], labels) = read(&labels_path)?;
    if n != labelled {
        let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let problem = format!(
            "{n} images in {} but {labelled} labels in {}; expected equal numbers",
            name(&images_path),
            name(&labels_path)
        );
        return Err(DataError::content(dir, problem));
    }
    Ok(InMemory {
        size: (1, height, width),
        pixels,
        labels,
    })
}

/// The file of one split and kind, uncompressed if it exists, else compressed.
fn find(dir: &Path, part: &str, kind: &str) -> Result<PathBuf, DataError> {
    let plain = format!("{part}-{kind}");
    let compressed = format!("{plain}.gz");
    let mut paths = [&plain, &compressed].map(|name| dir.join(name)).into_iter();
    paths.find(|path| path.is_file()).ok_or_else(|| {
        let problem = format!("neither {plain} nor {compressed} exists; expected one of them");
        DataError::content(dir, problem)
    })
}

/// The sizes, outermost first, and the values of a file of bytes with `N` dimensions.
type Idx<const N: usize> = ([usize; N], Vec<u8>);

fn read<const N: usize>(path: &Path) -> Result<Idx<N>, DataError> {
    let file = open_file(path).map_err(DataError::open(path))?;
    parse(BufReader::new(file), path)
}

/// Reads a file, compressed or not. Memory grows with its content and never beyond the size in its header.
fn parse<const N: usize>(mut file: impl BufRead, path: &Path) -> Result<Idx<N>, DataError> {
    let start = file.fill_buf().map_err(DataError::open(path))?;
    match start.starts_with(&[0x1F, 0x8B]) {
        true => parse_plain(MultiGzDecoder::new(file), path),
        false => parse_plain(file, path),
    }
}

fn parse_plain<const N: usize>(mut file: impl Read, path: &Path) -> Result<Idx<N>, DataError> {
    let wrong = |problem: String| DataError::content(path, problem);
    // Corrupt compression surfaces as a read error, like a failing disk.
    let damaged = |error: io::Error| match error.kind() {
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
            wrong(format!("is damaged: its gzip compression ends in: {error}"))
        }
        _ => DataError::open(path)(error),
    };
    let mut number = || -> Result<u32, DataError> {
        let mut bytes = [0; 4];
        match file.read_exact(&mut bytes) {
            Ok(()) => Ok(u32::from_be_bytes(bytes)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(wrong("is truncated: it ends within its header".to_owned()))
            }
            Err(error) => Err(damaged(error)),
        }
    };
    let (magic, expected) = (number()?, 0x0800 + N as u32);
    if magic != expected {
        return Err(wrong(format!(
            "begins with {magic:#010x}; expected {expected:#010x}, the magic number of an IDX file \
             of bytes with {N} dimension(s), or gzip's 0x1f8b"
        )));
    }
    let mut shape = [0; N];
    for size in &mut shape {
        *size = number()? as usize;
    }
    let mut sizes = shape.iter();
    let declared = sizes.try_fold(1, |n: u64, &size| n.checked_mul(size as u64));
    let Some(declared) = declared.filter(|&n| n < 1 << 40) else {
        return Err(wrong(format!("declares the impossible sizes {shape:?}")));
    };
    if declared == 0 {
        return Err(wrong(format!(
            "declares the sizes {shape:?}; expected at least one in each dimension"
        )));
    }
    let mut values = Vec::new();
    let read = file.take(declared + 1).read_to_end(&mut values);
    let found = read.map_err(damaged)? as u64;
    if found < declared {
        return Err(wrong(format!(
            "is truncated: its header declares {shape:?}, {declared} bytes, but only {found} follow"
        )));
    }
    if found > declared {
        return Err(wrong(format!(
            "is too long: its header declares {shape:?}, {declared} bytes, but more follow"
        )));
    }
    Ok((shape, values))
}

#[cfg(test)]
#[path = "idx_tests.rs"]
pub(crate) mod tests;
