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

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use crate::error::Problem;
use crate::source::{InMemory, numbered, open_file};
use crate::{DataError, Dataset};

const IMAGES: &str = "images-idx3-ubyte";
const LABELS: &str = "labels-idx1-ubyte";

/// True if `dir` holds at least one file named as in an IDX data set.
pub(crate) fn is_idx(dir: &Path) -> bool {
    let has = |part, kind| find(dir, part, kind).is_ok();
    ["train", "t10k"]
        .into_iter()
        .any(|part| has(part, IMAGES) || has(part, LABELS))
}

/// Opens the four IDX files in `dir`. Without `class_names`, classes are named by their numbers.
pub(crate) fn open(
    dir: &Path,
    name: String,
    class_names: Option<Vec<String>>,
) -> Result<Dataset, DataError> {
    let mut train = open_part(dir, "train")?;
    let mut test = open_part(dir, "t10k")?;
    if (train.height, train.width) != (test.height, test.width) {
        let problem = format!(
            "training images of {} x {} pixels, but test images of {} x {}; expected one size",
            train.height, train.width, test.height, test.width
        );
        return Err(DataError::content(dir, problem));
    }
    let highest = train.labels.iter().chain(&test.labels).max().copied();
    let highest = highest.unwrap_or(0);
    let names = class_names.unwrap_or_else(|| numbered(highest.into()));
    if usize::from(highest) >= names.len() {
        let problem = format!(
            "has a label {highest}, but {name} has {} classes; expected labels from 0",
            names.len()
        );
        return Err(DataError::content(dir, problem));
    }
    train.class_names = names.into();
    test.class_names = train.class_names.clone();
    Ok(Dataset::new(name, train, test))
}

fn open_part(dir: &Path, part: &str) -> Result<InMemory, DataError> {
    let images_path = find(dir, part, IMAGES)?;
    let labels_path = find(dir, part, LABELS)?;
    let images = read(&images_path, 3)?;
    let labels = read(&labels_path, 1)?;
    if images.shape[0] != labels.shape[0] {
        let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let problem = format!(
            "{} images in {} but {} labels in {}; expected equal numbers",
            images.shape[0],
            name(&images_path),
            labels.shape[0],
            name(&labels_path)
        );
        return Err(DataError::content(dir, problem));
    }
    Ok(InMemory {
        height: images.shape[1],
        width: images.shape[2],
        channels: 1,
        pixels: images.values,
        labels: labels.values,
        class_names: Arc::new([]),
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

fn read(path: &Path, dimensions: usize) -> Result<Idx, DataError> {
    let file = open_file(path).map_err(DataError::open(path))?;
    parse(BufReader::new(file), dimensions).map_err(|problem| problem.of(path))
}

/// The content of an IDX file of bytes.
#[derive(Debug)]
struct Idx {
    /// Sizes, outermost first; none is 0.
    shape: Vec<usize>,
    /// Row by row; their number is the product of the sizes.
    values: Vec<u8>,
}

/// Reads an IDX file of bytes with this number of dimensions, compressed or not. Memory grows with the
/// file's content and never beyond the size in its header.
fn parse(mut file: impl BufRead, dimensions: usize) -> Result<Idx, Problem> {
    let start = file.fill_buf().map_err(Problem::Reading)?;
    match start.starts_with(&[0x1F, 0x8B]) {
        true => parse_plain(MultiGzDecoder::new(file), dimensions),
        false => parse_plain(file, dimensions),
    }
}

fn parse_plain(mut file: impl Read, dimensions: usize) -> Result<Idx, Problem> {
    let content = |problem: String| Err(Problem::Content(problem));
    let expected_magic = 0x0800 + dimensions as u32;
    let magic = read_number(&mut file)?;
    if magic != expected_magic {
        return content(format!(
            "begins with {magic:#010x}; expected {expected_magic:#010x}, the magic number of an \
             IDX file of bytes with {dimensions} dimension(s), or gzip's 0x1f8b"
        ));
    }
    let sizes = (0..dimensions).map(|_| Ok(read_number(&mut file)? as usize));
    let shape: Vec<usize> = sizes.collect::<Result<_, Problem>>()?;
    let declared = shape
        .iter()
        .try_fold(1, |n: u64, &size| n.checked_mul(size as u64));
    let Some(declared) = declared.filter(|&n| n < 1 << 40) else {
        return content(format!("declares the impossible sizes {shape:?}"));
    };
    if declared == 0 {
        return content(format!(
            "declares the sizes {shape:?}; expected at least one in each dimension"
        ));
    }
    let mut values = Vec::new();
    let read = file.take(declared + 1).read_to_end(&mut values);
    read.map_err(describe)?;
    let found = values.len() as u64;
    if found < declared {
        return content(format!(
            "is truncated: its header declares {shape:?}, {declared} bytes, but only {found} follow"
        ));
    }
    if found > declared {
        return content(format!(
            "is too long: its header declares {shape:?}, {declared} bytes, but more follow"
        ));
    }
    Ok(Idx { shape, values })
}

fn read_number(file: &mut impl Read) -> Result<u32, Problem> {
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Problem::Content("is truncated: it ends within its header".to_owned())
            }
            _ => describe(error),
        })?;
    Ok(u32::from_be_bytes(bytes))
}

/// Corrupt compression surfaces as a read error, like a failing disk.
fn describe(error: io::Error) -> Problem {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | UnexpectedEof => {
            Problem::Content(format!("is damaged: its gzip compression ends in: {error}"))
        }
        _ => Problem::Reading(error),
    }
}

#[cfg(test)]
#[path = "idx_tests.rs"]
pub(crate) mod tests;
