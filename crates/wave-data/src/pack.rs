//! Writes a data set as tar shards, which are read faster than many small files.

use std::fs;
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};

use image::{ExtendedColorType, ImageFormat};
use serde_json::{Map, Value, json};

use crate::cache::write_atomically;
use crate::tar::{append, finish};
use crate::webdataset::{self, INCOMPLETE, INFO};
use crate::{DataError, Dataset, Source};

/// The files written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The shards, in order.
    pub shards: Vec<PathBuf>,
    /// Images in them.
    pub images: usize,
    /// Their total size in bytes.
    pub bytes: u64,
}

/// Writes `out/train-00000.tar`, ..., `out/val-00000.tar`, ... of about `shard_bytes` each, and last `out/_info.json`.
/// Each is written atomically. Image files are copied as they are; images in memory become PNG files. Until the end,
/// `out/_incomplete` keeps the shards from being opened; after a failure it stays, and `out` may be packed again.
///
/// # Errors
/// When `out` already holds a packed data set or other shards, when `shard_bytes` is less than 64 KiB, when an image
/// cannot be read, or when a file cannot be written. Damaged images are copied too: see [`check`](crate::check()).
pub fn pack(data: &Dataset, out: &Path, shard_bytes: u64) -> Result<Packed, DataError> {
    if shard_bytes < 1 << 16 {
        return Err(DataError::Settings(format!(
            "shards of {shard_bytes} bytes are too small; expected at least 65536"
        )));
    }
    let info = out.join(INFO);
    if info.exists() {
        let problem = format!("already holds a packed data set ({INFO}); choose another directory");
        return Err(DataError::content(out, problem));
    }
    // An interrupted run leaves this behind, so that its output is not mistaken for a data set.
    let incomplete = out.join(INCOMPLETE);
    let theirs = webdataset::splits(out).concat();
    if let (Some(shard), false) = (theirs.first(), incomplete.exists()) {
        let problem = "is no shard of an interrupted run of wave; choose another directory";
        return Err(DataError::content(shard, problem));
    }
    let text = "not all shards are written";
    write_atomically(&incomplete, |file| writeln!(file, "{text}"))
        .map_err(DataError::write(&incomplete))?;
    let mut packed = Packed::default();
    let mut splits = Map::new();
    for (prefix, split, source) in [
        ("train", "train", &data.train),
        ("val", "validation", &data.test),
    ] {
        let lengths = pack_source(&**source, out, prefix, shard_bytes, &mut packed)?;
        if !lengths.is_empty() {
            let names: Vec<String> = (0..lengths.len()).map(|k| shard_name(prefix, k)).collect();
            let content = json!({
                "name": split,
                "filenames": names,
                "shard_lengths": lengths,
                "num_samples": lengths.iter().sum::<usize>(),
            });
            splits.insert(split.to_owned(), content);
        }
    }
    let content = json!({ "splits": Value::Object(splits), "class_names": data.class_names });
    write_atomically(&info, |file| writeln!(file, "{content:#}"))
        .map_err(DataError::write(&info))?;
    fs::remove_file(&incomplete).map_err(DataError::write(&incomplete))?;
    Ok(packed)
}

fn shard_name(prefix: &str, k: usize) -> String {
    format!("{prefix}-{k:05}.tar")
}

/// Writes one split and returns the number of images in each of its shards.
fn pack_source(
    source: &dyn Source,
    out: &Path,
    prefix: &str,
    shard_bytes: u64,
    packed: &mut Packed,
) -> Result<Vec<usize>, DataError> {
    let (mut lengths, mut next) = (Vec::new(), 0);
    while next < source.len() {
        let path = out.join(shard_name(prefix, lengths.len()));
        let first = next;
        let mut bytes = 0;
        let write = |file: &mut dyn Write| -> io::Result<()> {
            while next < source.len() && (next == first || bytes < shard_bytes) {
                let (content, extension) = file_of(source, next).map_err(io::Error::other)?;
                append(file, &format!("{next:09}.{extension}"), &content)?;
                let label = source.label(next).to_string();
                append(file, &format!("{next:09}.cls"), label.as_bytes())?;
                bytes += (content.len() as u64).next_multiple_of(512) + 3 * 512;
                next += 1;
            }
            bytes += 1024;
            finish(file)
        };
        // An image that cannot be read is an error of its own.
        let wrong = |error: io::Error| error.downcast().unwrap_or_else(DataError::write(&path));
        write_atomically(&path, write).map_err(wrong)?;
        lengths.push(next - first);
        packed.shards.push(path);
        packed.images += next - first;
        packed.bytes += bytes;
    }
    // An interrupted run may have written more shards, which a pattern would find.
    let left = (lengths.len()..).map(|k| out.join(shard_name(prefix, k)));
    left.take_while(|path| fs::remove_file(path).is_ok())
        .for_each(drop);
    Ok(lengths)
}

/// An image's file and its extension.
fn file_of(source: &dyn Source, i: usize) -> Result<(Vec<u8>, &'static str), DataError> {
    if let Some(file) = source.encoded(i)? {
        let extension = match &file[..] {
            [0x89, b'P', b'N', b'G', ..] => "png",
            [b'R', b'I', b'F', b'F', ..] => "webp",
            [b'G', b'I', b'F', ..] => "gif",
            _ => "jpg",
        };
        return Ok((file, extension));
    }
    let image = source.image(i)?;
    image.check()?;
    let (w, h) = (image.width as u32, image.height as u32);
    let colours = match image.channels {
        1 => ExtendedColorType::L8,
        _ => ExtendedColorType::Rgb8,
    };
    let mut bytes = Cursor::new(Vec::new());
    image::write_buffer_with_format(&mut bytes, &image.pixels, w, h, colours, ImageFormat::Png)
        .map_err(|error| DataError::Settings(format!("{}: {error}", source.name(i))))?;
    Ok((bytes.into_inner(), "png"))
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
